"""A plan as text: 80 columns, no colours, fit for a terminal, a log and a pull request.

What refuses the plan comes first, then what was let pass, then what is fine; steps that share a
status and a reason stand together under it, and repeated blocks are written once. A list that is
cut says how much is missing and where all of it is. Names are never broken or shortened, since they
are there to be copied into a config; a longer one than the page has a line of its own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.planning.plan import ASSIGNED, Severity, Status
from tfckpt.planning.text import WIDTH, collapse, printable, signature, size, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.planning.plan import Plan, Step

LINES = 40
_TITLES = {
    Severity.ERROR: "Refused",
    Severity.WARN: "Warnings",
    Severity.NOTE: "Notes",
    Severity.OK: "Fine",
}
_INDENT = " " * 4
_FROM = " ← "


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One value, or a block of values that differ in their indices alone."""

    name: str
    kind: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Values of one status, reason and origin; ``hidden`` have no line, the list being cut."""

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
        """Why, or how many; and, where the plan has several sources, from which."""
        if not self.origin:
            return self.reason or _values(self.count)
        if not self.reason:
            return f"{_values(self.count)} from {self.origin}"
        return f"{self.origin}: {self.reason}"


def groups(plan: Plan) -> list[Group]:
    """The steps of a plan as they are shown, the gravest first."""
    alike: dict[tuple[Severity, Status, str, str], list[str]] = {}
    for step in plan.steps:
        texts = _title(step), step.reason, step.hint
        key = step.severity, step.status, _kind(step), printable(step.origin)
        alike.setdefault(key, []).append("\n".join(map(printable, texts)))
    found: dict[tuple[Severity, Status, str, str, str], list[Line]] = {}
    for (severity, status, kind, origin), texts_of in alike.items():
        # the reason is collapsed along with the name, so an index in it stays true for the block
        for block in collapse(texts_of):
            title, reason, hint = block.text.split("\n")
            line = Line(title, kind, block.count)
            found.setdefault((severity, status, reason, hint, origin), []).append(line)
    severities, statuses = list(_TITLES), list(Status)
    ordered = sorted(
        found.items(), key=lambda item: (severities.index(item[0][0]), statuses.index(item[0][1]))
    )
    for lines in found.values():
        lines.sort(key=lambda line: line.name)
    return [
        Group(
            status,
            severity,
            reason,
            hint,
            origin,
            tuple(lines[:LINES]),
            sum(line.count for line in lines),
            sum(line.count for line in lines[LINES:]),
        )
        for (severity, status, reason, hint, origin), lines in ordered
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
    """Per status that occurs: its name, how many values, and their size."""
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
    many = _values(len(plan.assignments))
    place = f"from {printable(plan.source)} under policy {plan.policy!r}"
    if plan.ok:
        return f"{many} ({size(plan.nbytes)}) {place}"
    faults = len(plan.faults) + len(plan.errors)
    return f"refused, {faults} error{'s' * (faults != 1)}: {many} {place}"


def render_text(plan: Plan) -> str:
    """The report of a plan; ends without a line break."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    yield from wrap(f"Plan: {verdict(plan)}", "")
    if plan.training and plan.ok:
        yield from wrap(plan.training, "")
    yield ""
    for status, count, total in totals(plan):
        yield f"  {status:<12}{count:>8,}  {total:>12}"
    if plan.faults:
        yield from ("", "Problems")
        for problem in plan.faults:
            message, _, _ = problem.show(plan.file or "policy").partition("\n")
            yield from wrap(printable(message), "  ")
            if problem.hint:
                yield from wrap("→ " + printable(problem.hint), _INDENT)
    shown = groups(plan)
    for severity, title in _TITLES.items():
        section = [group for group in shown if group.severity is severity]
        if section:
            yield from ("", title)
        for group in section[:LINES]:
            yield from _group(group)
        if hidden := sum(group.count for group in section[LINES:]):
            yield f"  … and {hidden:,} more for reasons of their own (--json lists all)"


def _group(group: Group) -> Iterator[str]:
    yield from wrap(f"{group.status}  {group.headline}", "  ")
    for line in group.lines:
        yield from _row(line)
    if group.hidden:
        yield f"{_INDENT}… and {group.hidden:,} more like these (--json lists all)"
    if group.hint:
        yield from wrap("→ " + group.hint, _INDENT)


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
