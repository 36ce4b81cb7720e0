"""A room has its budget, and the ways through the house are no longer than they were."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from architecture.rooms import BUDGET, PROJECT, beside, code_of, rooms, together

WAYS = ("restore", "second save", "fit", "fit resumed")
LONGEST_FILE = 600
LOOSE = 100


def test_each_room_is_within_its_budget() -> None:
    sizes = {**rooms(), **beside()}
    assert {*BUDGET["rooms"], *BUDGET["beside"]} == {*sizes}, "each room has a line in budget.toml"
    budgets = {**BUDGET["rooms"], **BUDGET["beside"], "together": BUDGET["together"]}
    above, loose = {}, {}
    for room, size in {**sizes, "together": together()}.items():
        budget = budgets[room]
        lines, code, files = budget["lines"], budget.get("code", size.code), budget["files"]
        if size.lines > lines or size.code > code or size.files > files:
            above[room] = size
        if room not in BUDGET["beside"] and lines > max(size.lines + LOOSE, budget["goal"][0]):
            loose[room] = size
        if code > max(size.code + LOOSE, budget.get("goal_code", 0)):
            loose[room] = size
    assert not above, "these rooms are above their lines in budget.toml"
    assert not loose, "lower these lines in budget.toml"
    longest = {size.longest: size.length for size in rooms().values()}
    assert not {file for file, length in longest.items() if length > LONGEST_FILE}


def test_comments_docstrings_and_blank_lines_are_no_code(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""Of\nit."""\n\nx = """a\n\nb"""  # text\n# no\n\ndef f():\n    "It."\n    return 1\n'
    )
    assert code_of(path) == 5  # three of x, the definition, the return


def test_no_way_has_become_longer() -> None:
    command = [sys.executable, "tests/architecture/ways.py", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=PROJECT)
    ways = json.loads(done.stdout.splitlines()[-1])
    assert tuple(ways) == tuple(BUDGET["ways"]) == WAYS
    for name, way in ways.items():
        print(name, way)
        ceiling = BUDGET["ways"][name]
        longer = {what for what in ("files", "functions", "calls") if way[what] > ceiling[what]}
        assert not longer, f"{name}: {way}, and budget.toml has {ceiling}"
