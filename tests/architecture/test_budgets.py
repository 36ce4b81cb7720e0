"""A room has its budget."""

from __future__ import annotations

from architecture.rooms import BUDGET, beside, rooms, together

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
