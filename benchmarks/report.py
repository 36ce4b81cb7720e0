"""Results → a page of Markdown: goals first, then one table for each workload and size."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.contestants import TENSORFLOW, TFCKPT
from benchmarks.goals import LARGE, RESNET, SMALL, TRANSFORMER, Of, outcomes
from benchmarks.measure import FAILS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.goals import Outcome
    from benchmarks.measure import Result

COMPARED = ("save ms", "restore ms")
HEAD = """# Results

Written by `make bench`. Medians of all rounds, in brackets the least; who takes part in a workload
takes turns, after a round that does not count. How it is measured is in
[benchmarks](../../docs/benchmarks.md); the numbers of each round are in
[results.json](results.json).
"""


def markdown(
    machine: Mapping[str, Any],
    titles: Mapping[str, str],
    results: Sequence[Result],
    plots: Iterable[str],
) -> str:
    """The page.

    Args:
        machine: of ``machine.describe``.
        titles: workload → its heading.
        results: of all workloads.
        plots: files that are shown.
    """
    parts = [HEAD, *(f"![{plot}]({plot})\n" for plot in plots)]
    parts.append(table(["", ""], [[name, str(value)] for name, value in machine.items()]))
    if in_short := summary(results):
        parts += ["## In short\n", in_short]
    found = outcomes(results)
    if found:
        met = sum(one.met for one in found)
        parts.append(f"## Goals\n\n{met} of {len(found)} are met.\n")
        parts.append(goals_table(found))
    for workload in dict.fromkeys(one.workload for one in results):
        parts.append(f"## {titles[workload]}\n")
        for case in dict.fromkeys(one.case for one in results if one.workload == workload):
            here = [one for one in results if (one.workload, one.case) == (workload, case)]
            parts += [f"### {case}\n", case_table(here)]
    return "\n".join(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def summary(results: Sequence[Result]) -> str:
    """Durable saves and whole restores beside TensorFlow's, on disk."""
    rows = []
    for workload, title in (LARGE, TRANSFORMER, RESNET, SMALL):
        row = [title]
        for measure in COMPARED:
            theirs, ours = (
                Of(workload, f"{title}, disk", who, measure).among(results)
                for who in (TENSORFLOW, TFCKPT)
            )
            if theirs and ours:
                medians = statistics.median(theirs), statistics.median(ours)
                row += [*map(number, medians), number(medians[0] / medians[1])]
        if len(row) > 1:
            rows.append(row)
    heads = (f"{what}, {who}" for what in COMPARED for who in ("TensorFlow", "tfckpt", "×"))
    return table(["", *(head.replace(" ms, ×", ", ×") for head in heads)], rows) if rows else ""


def goals_table(found: Iterable[Outcome]) -> str:
    """Each goal, what was measured, and whether it is met."""
    rows = []
    for one in found:
        goal = one.goal
        bound = f"{goal.sense} {number(goal.bound)} {goal.unit}"
        measured = f"{number(one.median)} {goal.unit} ({number(one.minimum)})"
        rows.append([goal.about, goal.where, bound, measured, "met" if one.met else "**missed**"])
    return table(["goal", "workload", "bound", "measured", ""], rows)


def case_table(here: Sequence[Result]) -> str:
    """A line for each contestant, a column for each measure."""
    measures = sorted(
        dict.fromkeys(one.measure for one in here if one.measure != FAILS),
        key=lambda measure: measure.startswith("first "),
    )
    contestants = list(dict.fromkeys(one.contestant for one in here))
    by = {(one.contestant, one.measure): one for one in here}
    head = [""]
    for measure in measures:
        compared = measure in COMPARED and (TENSORFLOW, measure) in by
        head += [measure, f"× {TENSORFLOW}"] if compared else [measure]
    rows = []
    for contestant in contestants:
        row, failure = [contestant], by.get((contestant, FAILS))
        for measure in measures:
            one = by.get((contestant, measure))
            row.append(cell(one) if one else "")
            base = by.get((TENSORFLOW, measure))
            if measure in COMPARED and base:
                row.append(number(base.median / one.median) if one else "")
        if failure:
            row[1] = f"{row[1]} {failure.note.replace('|', '/')}".strip()
        rows.append(row)
    return table(head, rows)


def cell(one: Result) -> str:
    """A median and, in brackets, the least; what is no number as it is."""
    if not one.values:
        return one.note
    if len(one.values) == 1:
        return number(one.median)
    return f"{number(one.median)} ({number(one.least)})"


def number(value: float) -> str:
    """Three digits that count.

    >>> number(0.012345), number(1234.5), number(2), number(12.34)
    ('0.0123', '1,234', '2', '12.3')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return f"{value:.4f}".rstrip("0").rstrip(".") if "e" in text else text
