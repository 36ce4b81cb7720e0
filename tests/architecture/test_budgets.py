"""A room has its budget, and the ways through the house are no longer than they were."""

from __future__ import annotations

import json
import subprocess
import sys

from architecture.rooms import BUDGET, PROJECT, beside, rooms

WAYS = ("restore", "second save", "fit", "fit resumed")
LONGEST_FILE = 600
LOOSE = 100


def test_each_room_is_within_its_budget() -> None:
    sizes, budgets = {**rooms(), **beside()}, {**BUDGET["rooms"], **BUDGET["beside"]}
    assert budgets.keys() == sizes.keys(), "each room has a line in budget.toml"
    above, loose = {}, {}
    for room, size in sizes.items():
        lines, files, goal = (budgets[room][key] for key in ("lines", "files", "goal"))
        if size.lines > lines or size.files > files:
            above[room] = size
        if room in BUDGET["rooms"] and lines > max(size.lines + LOOSE, goal[0]):
            loose[room] = size
    assert not above, "these rooms are above their lines in budget.toml"
    assert not loose, "lower these lines in budget.toml"
    longest = {size.longest: size.length for size in rooms().values()}
    assert not {file for file, length in longest.items() if length > LONGEST_FILE}


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
