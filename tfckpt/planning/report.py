"""A plan as text: 80 columns, no colors, for a terminal, a log or a pull request.

A terminal shows the end of the output, so a refused plan puts the reasons last: totals, warnings,
refused values with hints, then problems with the policy's rules; values without trouble are only
counted. Steps with the same status and reason form a group; what to do comes before the names, once
for the groups that share it; repeated blocks are printed once. A shortened list says how many
values it omits and where to find all. Names are never broken or shortened, so that they can be
copied into a config; a long name gets a line of its own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.text import (
    FOLD,
    WIDTH,
    collapse,
    natural,
    printable,
    signature,
    size,
    wrap,
)
from tfckpt.planning.checks.step import ASSIGNED, LEAVING_HINTS, Severity, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfckpt.errors import Problem
    from tfckpt.planning.checks.step import Step
    from tfckpt.planning.plan import Plan
    from tfckpt.planning.suggested import Suggestion

_TITLES = {
    Severity.WARN: "Warnings",
    Severity.NOTE: "Notes",
    Severity.OK: "Fine",
    Severity.ERROR: "Refused",
}
# A refused plan is kept short.
_ASKED = 2  # values of a group, above a question
_GROUPS = {True: 40, False: 10}
_INDENT = " " * 4
_ALL = "all: --json or plan.steps"
_FROM = " ← "


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One value, or a block of values whose names differ only in indices."""

    name: str
    kind: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class StepGroup:
    """Values of one status, reason and origin; ``hidden`` of them are not listed."""

    status: Status
    severity: Severity
    reason: str
    hint: str
    origin: str
    lines: tuple[Line, ...]
    count: int
    hidden: int

    @property
    def headline(self) -> str:
        """The reason or the number of values; with the source, if the plan has several."""
        if not self.origin:
            return self.reason or _values(self.count)
        if not self.reason:
            return f"{_values(self.count)} from {self.origin}"
        return f"{self.origin}: {self.reason}"


class ReportRow(NamedTuple):
    """A line of the report; with ``severity`` if its first word is a status or a title."""

    text: str
    severity: Severity | None = None


class Section(NamedTuple):
    """Groups of one severity; ``hidden`` values are in groups that are not shown."""

    severity: Severity
    title: str
    groups: list[StepGroup]
    hidden: int


def sections(plan: Plan) -> Iterator[Section]:
    """The groups to show; for a refused plan only warnings and errors."""
    shown = _groups(plan)
    most = _GROUPS[plan.ok]
    for severity, title in _TITLES.items():
        groups = [group for group in shown if group.severity is severity]
        if groups and (plan.ok or severity in (Severity.WARN, Severity.ERROR)):
            hidden = sum(group.count for group in groups[most:])
            yield Section(severity, title, groups[:most], hidden)


def _groups(plan: Plan) -> list[StepGroup]:
    """The groups of a plan, with their first lines; those that share a hint adjoin."""
    alike: dict[tuple[Severity, Status, str, str], list[str]] = {}
    for step in plan.steps:
        texts = _title(step), step.reason, step.hint
        key = step.severity, step.status, _kind(step), printable(step.origin)
        alike.setdefault(key, []).append("\n".join(map(printable, texts)))
    by_group: dict[tuple[Status, str, str, str, Severity], list[Line]] = {}
    for (severity, status, kind, origin), texts_of in alike.items():
        # collapsed together with the name, so that an index in the reason is right for the block
        for block in collapse(texts_of):
            title, reason, hint = block.text.split("\n")
            line = Line(title, kind, block.count)
            by_group.setdefault((status, reason, hint, origin, severity), []).append(line)
    statuses = list(Status)
    first: dict[str, int] = {}
    for status, _, hint, *_ in by_group:
        order = statuses.index(status)
        first[hint] = min(first.get(hint, order), order) if hint else 0
    ordered = sorted(
        by_group.items(),
        key=lambda item: (first[item[0][2]], item[0][2], statuses.index(item[0][0])),
    )
    for lines in by_group.values():
        lines.sort(key=lambda line: natural(line.name))
    return [
        StepGroup(
            status,
            severity,
            reason,
            hint,
            origin,
            tuple(lines[:FOLD]),
            sum(line.count for line in lines),
            sum(line.count for line in lines[FOLD:]),
        )
        for (status, reason, hint, origin, severity), lines in ordered
    ]


def _title(step: Step) -> str:
    if step.name and step.source and step.name != step.source:
        return step.name + _FROM + " + ".join(entry.name for entry in step.reads)
    return step.name or step.source


def _kind(step: Step) -> str:
    if step.live and step.stored and signature(step.live) != signature(step.stored):
        return f"{signature(step.live)} ← {signature(step.stored)}"
    return signature(step.entry)


def totals(plan: Plan) -> list[tuple[str, int, str]]:
    """For each status that occurs: its name, the number of values, and their size."""
    nbytes = dict.fromkeys(Status, 0)
    for step in plan.steps:
        read = step.reads if step.status in ASSIGNED else (step.entry,)
        nbytes[step.status] += sum(entry.nbytes for entry in read)
    return [(status.value, count, size(nbytes[status])) for status, count in plan.counts.items()]


def verdict(plan: Plan) -> str:
    """The plan in one sentence.

    >>> from tfckpt.planning.plan import Plan
    >>> verdict(Plan("finetune", "zoo/ckpt-900", ()))
    "0 values (0 B) from zoo/ckpt-900 under policy 'finetune'"
    """
    if not plan.source and not plan.steps:
        return "no checkpoint found; all values stay unchanged"
    assigned, steps = len(plan.assignments), len(plan.steps)
    chosen = f", {printable(plan.chosen)}," if plan.chosen else ""
    source = f"from {printable(plan.source)}{chosen} under policy {plan.policy!r}"
    if plan.ok:
        count = f"{assigned:,} of {_values(steps)}" if assigned < steps else _values(steps)
        return f"{count} ({size(plan.nbytes)}) {source}"
    faults = len(plan.problems) + len(plan.errors)
    return f"refused, {faults:,} error{'s' * (faults != 1)} among {_values(steps)} {source}"


def render_text(plan: Plan, suggestion: Suggestion | None = None) -> str:
    """The report of a plan, to be followed by a suggestion; ends without a line break."""
    return "\n".join(row.text for row in rows(plan, suggestion))


def rows(plan: Plan, suggestion: Suggestion | None = None) -> Iterator[ReportRow]:
    """The lines of the report; no hint contradicts the suggestion."""
    suggested = suggestion is not None and bool(suggestion.policy or suggestion.choices)
    dropped = LEAVING_HINTS if suggested else frozenset()
    head, *more = wrap(f"Plan: {verdict(plan)}", "")
    yield ReportRow(head, Severity.OK if plan.ok else Severity.ERROR)
    yield from _plain(more)
    if plan.training and plan.ok:
        yield from _plain(wrap(plan.training, ""))
    yield ReportRow("")
    for status, count, total in totals(plan):
        yield ReportRow(f"  {status:<12}{count:>8,}  {total:>12}")
    for section in sections(plan):
        yield ReportRow("")
        yield ReportRow(section.title, section.severity)
        hint = ""
        for group in section.groups:
            repeated = group.hint == hint or group.hint in dropped
            most = _ASKED if suggestion is not None and suggestion.answers else FOLD
            yield from _group(group, "" if repeated else group.hint, most)
            hint = group.hint
        if section.hidden:
            yield ReportRow(f"  … and {section.hidden:,} more for other reasons ({_ALL})")
    if plan.problems:
        yield ReportRow("")
        yield ReportRow("Problems", Severity.ERROR)
    for problem in plan.problems:
        message, hint = problem_of(plan, problem)
        yield from _plain(wrap(message, "  "))
        yield from _hint("" if suggested else hint)


def problem_of(plan: Plan, problem: Problem) -> tuple[str, str]:
    """A fault's message with its position in the config, and its hint."""
    message, _, _ = problem.show(plan.file or f"policy {plan.policy!r}").partition("\n")
    return printable(message), printable(problem.hint)


def _plain(lines: Iterable[str]) -> Iterator[ReportRow]:
    return map(ReportRow, lines)


def _group(group: StepGroup, hint: str, most: int) -> Iterator[ReportRow]:
    head, *more = wrap(f"{group.status}  {group.headline}", "  ")
    yield ReportRow(head, group.severity)
    yield from _plain(more)
    yield from _hint(hint)
    for line in group.lines[:most]:
        yield from _plain(_row(line))
    if hidden := group.hidden + sum(line.count for line in group.lines[most:]):
        yield ReportRow(f"{_INDENT}… and {hidden:,} more like these ({_ALL})")


def _hint(hint: str) -> Iterator[ReportRow]:
    return _plain(wrap(f"→ {hint}", _INDENT) if hint else ())


def _values(count: int) -> str:
    return f"{count:,} value{'s' * (count != 1)}"


def _row(line: Line) -> Iterator[str]:
    detail = line.kind + (f"  ×{line.count}" if line.count > 1 else "")
    for row in (f"{_INDENT}{line.name:<42}  {detail}", f"{_INDENT}{line.name}  {detail}"):
        if len(row) <= WIDTH:
            yield row
            return
    new, arrow, old = line.name.partition(_FROM)
    yield f"{_INDENT}{new}"
    if arrow:
        yield f"{_INDENT}{arrow}{old}"
    yield f"{_INDENT}{_INDENT}{detail}"
