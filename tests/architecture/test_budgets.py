"""A room has its budget, and the ways through the house are no longer than they were."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from architecture.rooms import BUDGET, PROJECT, Size, beside, rooms

WAYS = ("restore", "second save", "fit", "fit resumed")
LONGEST_FILE = 600
LOOSE = 100


@pytest.fixture(scope="module")
def sizes() -> dict[str, Size]:
    return {**rooms(), **beside()}


def test_each_room_is_within_its_budget(sizes: dict[str, Size]) -> None:
    budgets = {**BUDGET["rooms"], **BUDGET["beside"]}
    assert budgets.keys() == sizes.keys(), "each room has a line in budget.toml"
    too_large = {
        room: (size.lines, size.files)
        for room, size in sizes.items()
        if size.lines > budgets[room]["lines"] or size.files > budgets[room]["files"]
    }
    assert not too_large, "these rooms are above their lines in budget.toml"


def test_a_line_is_lowered_to_what_its_room_has_reached(sizes: dict[str, Size]) -> None:
    loose = {
        room: size.lines
        for room, size in rooms().items()
        if (budget := BUDGET["rooms"][room])["lines"] > max(size.lines + LOOSE, budget["goal"][0])
    }
    assert not loose, "lower these lines in budget.toml"


def test_a_file_can_be_held_in_the_head() -> None:
    assert not {
        size.longest: size.length for size in rooms().values() if size.length > LONGEST_FILE
    }


def test_no_way_has_become_longer() -> None:
    done = subprocess.run(
        [sys.executable, "tests/architecture/ways.py", "--json"],
        check=True,
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    ways = json.loads(done.stdout.splitlines()[-1])
    assert tuple(ways) == tuple(BUDGET["ways"]) == WAYS
    for name, way in ways.items():
        print(name, way)
        ceiling = BUDGET["ways"][name]
        longer = {what for what in ("files", "functions", "calls") if way[what] > ceiling[what]}
        assert not longer, f"{name}: {way}, and budget.toml has {ceiling}"
