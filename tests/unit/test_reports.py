"""Reports, results and plans as text: in a terminal, by `print`, in a notebook."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.core.text import collapse
from tfckpt.errors import Problem
from tfckpt.manager.retention import Decision
from tfckpt.planning import Plan, RestoreReport, Severity, Status, Step, make_plan, render_text
from tfckpt.planning.suggested import Suggestion
from tfckpt.policy import Policy
from tfckpt.stored.commits.discovery import CheckpointInfo
from tfckpt.tools.comparison import ComparedCheckpoints, Difference, DifferenceKind, compare
from tfckpt.tools.inspection import Inspection
from tfckpt.tools.listing import CheckpointList

HOSTILE = "model/<script>alert(1)</script>\x1b]0;owned\x07\u202e\nREFUSED"
LONG = "model/" + "/".join(f"a_rather_long_component_{i}" for i in range(6))
BLOCKS = [f"model/block_{i}/kernel" for i in range(30)]
MANY = [f"model/{chr(200 + i % 700)}{i}/kernel" for i in range(2000)]


def of(*names: str, source: str = "zoo/iris/ckpt-1", **odd: tuple[int, ...]) -> Inventory:
    """Values of two by two; ``odd``: the shape of a block's kernel."""
    shapes = {f"model/{block}/kernel": shape for block, shape in odd.items()}
    entries = (Entry(n, Role.WEIGHT, "float32", shapes.get(n, (2, 2)), 16) for n in names)
    return Inventory(source, {entry.name: entry for entry in entries})


def planned(stored: Inventory, live: Inventory, **policy: Any) -> Plan:
    return make_plan(Policy(**policy), stored, live)


def compared(*names: str) -> ComparedCheckpoints:
    entries = of(*names).entries.values()
    differences = tuple(Difference(DifferenceKind.VALUE, one, one) for one in entries)
    return ComparedCheckpoints("<a>", "b", differences, 3)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"model/block_{i}/kernel" for i in range(12)], ["model/block_{0…11}/kernel"]),
        ([f"b_{i}/c_{j}/w" for i in range(3) for j in range(2)], ["b_{0…2}/c_{0…1}/w"]),
        (["b/0", "b/1", "b/3"], ["b/{0…1}", "b/3"]),
        (["b/0", "b/10", "b/2", "b/1"], ["b/{0…2}", "b/10"]),
        (["conv2d/w", "conv3d/w"], ["conv{2…3}d/w"]),
        (["b/00", "b/01"], ["b/00", "b/01"]),
        ([], []),
    ],
)
def test_contiguous_indices_are_written_once(names: list[str], expected: list[str]) -> None:
    assert [block.text for block in collapse(names)] == expected
    assert sum(block.count for block in collapse(names)) == len(names)


# --- the report of a plan


def test_blocks_of_another_shape_or_status_stay_apart() -> None:
    stored, live = of(*BLOCKS[:5], block_2=(9, 9)), of(*BLOCKS[:6], block_2=(9, 9))
    text = render_text(planned(stored, live, on_missing="warn"))
    for block in ("{0…1}", "{3…4}", "2", "5"):
        assert f"model/block_{block}/kernel" in text


def test_thousands_of_values_or_reasons_are_a_screen() -> None:
    sides = of(*(f"{name}/a" for name in MANY[:1400])), of(*(f"{name}/b" for name in MANY[600:]))
    assert len(render_text(planned(*sides)).splitlines()) < 30
    names = MANY[:30]
    lines = render_text(planned(of(*names), of(*names))).splitlines()
    assert sum(line.split()[0] in names for line in lines if line) == 5
    assert lines[-1].strip() == "… and 25 more like these (all: --json or plan.steps)"
    (live,) = of("model/a").entries.values()
    steps = tuple(
        Step(Status.SUSPECT, f"m/{letter}", "", live, None, Severity.ERROR, f"why {letter}")
        for letter in map(chr, range(200, 300))
    )
    text = render_text(Plan("p", "runs/ckpt-1", steps))
    shown = sum(f"why {chr(200 + i)}" in text for i in range(100))
    assert f"… and {100 - shown} more for other reasons (all: --json or plan.steps)" in text


def test_the_report_keeps_to_80_columns_and_breaks_no_name() -> None:
    names = ["model/a", "model/" + "b" * 45, LONG]
    text = render_text(planned(of(*names, "model/old"), of(*names), on_unexpected="warn"))
    assert all(len(line) <= 80 or line.strip() == LONG for line in text.splitlines())
    assert all(name in text for name in names)


# --- what `repr` and `print` show

POLICY = {"name": "finetune"}
FINE = planned(of("model/a", "model/b"), of("model/a", "model/b"), exclude=("model/b",), **POLICY)
REFUSED = planned(of("model/a", "model/b"), of("model/a", "model/c"), **POLICY)
NOTHING = Plan("", "", ())
FROM = "from zoo/iris/ckpt-1 under policy 'finetune'"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (FINE, f"<Plan: 1 of 2 values (16 B) {FROM}>"),
        (REFUSED, f"<Plan: refused, 2 errors among 3 values {FROM}>"),
        (
            RestoreReport(FINE, "zoo/iris/ckpt-1", 20, 1),
            f"<RestoreReport: 1 of 2 values (16 B) {FROM}, step 20, epoch 1>",
        ),
        (
            RestoreReport(NOTHING, ""),
            "<RestoreReport: no checkpoint found; all values stay unchanged>",
        ),
        (of("a", "b"), "<Inventory: 2 values of 'zoo/iris/ckpt-1'>"),
        (CheckpointList([CheckpointInfo("a/ckpt-3", 3, "committed")]), "<CheckpointList: ckpt-3>"),
        (
            compare(of("a", "b"), of("b", "c"), {}, {}),
            "<Diff: 2 differ, 0 are equal, 1 are not compared>",
        ),
        (
            Decision({"a": ("newest",)}, ("b", "c"), frozenset(), 0.0),
            "<Decision: 1 kept, 2 to delete>",
        ),
        (
            Policy(name="finetune", include=("model/**",), api="read"),
            "Policy(name='finetune', api='read', include=('model/**',))",
        ),
    ],
)
def test_repr_is_a_line(value: Any, expected: str) -> None:
    assert repr(value) == expected


PROBLEM = Problem("exclude: 'x' matches nothing", 7, 14, "did you mean 'y'?")
LISTED = CheckpointInfo("runs/<script>\x1b", 1, "damaged", nbytes=3, problem="the <file> is short")


@pytest.mark.parametrize(
    "value",
    [
        FINE,
        REFUSED,
        Plan(REFUSED.policy, REFUSED.source, REFUSED.steps, (PROBLEM,), "configs/p.yaml"),
        replace(REFUSED, suggest=lambda: Suggestion({}, gave_up="too <many>")),
        RestoreReport(FINE, "zoo/iris/ckpt-1", rejected=("ckpt-2: <torn>",)),
        RestoreReport(NOTHING, "", absent=("runs/<a> is empty",)),
        planned(of(HOSTILE, source="<img src=x>"), of("model/<u>"), exclude=("model/<b>/**",)),
        planned(of("model/a", HOSTILE), of("model/q"), rename=({"checkpoint": "a", "model": "z"},)),
        of(HOSTILE),
        Inspection("zoo/<b>", "tensorflow", of(HOSTILE), missing_files=("<i>",)),
        Inspection("zoo", "tensorflow", of(HOSTILE), statistics={HOSTILE: None}),
        compared(HOSTILE),
        CheckpointList([LISTED]),
        of(*MANY),
        compared(*MANY),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_notebook_shows_what_print_does_and_runs_nothing(value: Any) -> None:
    page, text = value._repr_html_(), str(value)
    assert re.fullmatch("<pre>[^<>]*</pre>", page)
    assert unescape(page.removeprefix("<pre>").removesuffix("</pre>")) == text
    assert len(page) < 200_000
    assert not {"\x1b", "\x07", "\u202e"} & {*text}
    assert not any(line.startswith("REFUSED") for line in text.splitlines())
    if "owned" in text:
        assert "<script>alert(1)</script>\\x1b]0;owned\\x07" in text
