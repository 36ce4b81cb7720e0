"""The plans of several sources become one, for one transaction.

Each source is planned by itself, by its own policy, against all that is live. Put together, a value
has its one step from the source that provides it; that the others leave it alone or do not have it
is then no matter. Two that provide one value are an error, since nothing says which is meant; so is
a value that one of them restores and another resets. A value that none provides is missing, as
gravely as the strictest of the policies that selected it has it.

What is left over in a checkpoint, and rules that met nothing, are judged for each source alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tfckpt.planning.checks.step import ASSIGNED, Severity, Status, Step
from tfckpt.planning.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfckpt.errors import Problem

_GRAVITY = list(Severity)
_HINT = "exclude it in every policy but one"


class _From(NamedTuple):
    """A step of one of the plans, and what its plan is called."""

    step: Step
    title: str


def union_of(plans: Sequence[Plan]) -> Plan:
    """One plan of several that were made against the same live values.

    >>> from tfckpt.core.inventory import Entry, Role
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2, 2), 16)
    >>> gives = Plan("p", "zoo/a", (Step(Status.LOADED, kernel.name, kernel.name, kernel, kernel),))
    >>> lacks = Plan("q", "zoo/b", (Step(Status.MISSING, kernel.name, "", kernel, None),))
    >>> [(step.status.value, step.origin) for step in union_of([lacks, gives]).steps]
    [('LOADED', 'zoo/a')]
    >>> union_of([gives, gives]).errors[0].reason
    "zoo/a (policy 'p') and zoo/a (policy 'p') would both restore it"
    """
    steps: list[Step] = []
    by_name: dict[str, list[_From]] = {}
    for plan in plans:
        title = f"{plan.source} (policy {plan.policy!r})"
        for step in plan.steps:
            placed = step._replace(origin=plan.source if step.stored else "")
            if step.name:
                by_name.setdefault(step.name, []).append(_From(placed, title))
            else:
                steps.append(placed)
    for found in by_name.values():
        steps += _merge(found)
    steps.sort(key=lambda s: (s.name or s.source, s.source, s.target, s.origin))
    files = {plan.file for plan in plans}
    return Plan(
        _listed(plan.policy for plan in plans),
        _listed(plan.source for plan in plans),
        tuple(steps),
        tuple(problem for plan in plans for problem in _problems(plan, alone=len(files) == 1)),
        files.pop() if len(files) == 1 else "",
        tuple(origin for plan in plans for origin in plan.origins),
    )


def _merge(found: Sequence[_From]) -> Iterator[Step]:
    """The step of one live value, and what becomes of the stored values that it leaves."""
    claims = [one for one in found if one.step.status in ASSIGNED | {Status.RESET}]
    restored = [one for one in claims if one.step.status in ASSIGNED]
    refused = [one for one in found if _is_refused(one.step)]
    if restored and len(claims) > 1:
        reason = f"{' and '.join(one.title for one in claims)} would both restore it"
        if len(restored) < len(claims):
            reset = next(one for one in claims if one.step.status is Status.RESET)
            reason = f"{restored[0].title} would restore it, and {reset.title} would reset it"
        chosen = restored[0]
        yield chosen.step._replace(
            status=Status.MISMATCH,
            severity=Severity.ERROR,
            reason=reason,
            hint=_HINT,
        )
    else:
        chosen = (refused or claims or [max(found, key=_gravity)])[0]
        step = chosen.step
        if step.status is Status.MISSING:
            reasons = _listed(one.step.reason for one in found if one.step.status is step.status)
            step = step._replace(reason=reasons)
        yield step
    for one in found:
        if one is not chosen and one.step.stored is not None:
            yield _left(one.step, chosen)


def _is_refused(step: Step) -> bool:
    """Whether something is wrong with what the source has; that it has nothing, others mend."""
    return step.severity is Severity.ERROR and step.status is not Status.MISSING


def _gravity(one: _From) -> tuple[int, bool]:
    return _GRAVITY.index(one.step.severity), one.step.status is not Status.EXCLUDED


def _left(step: Step, chosen: _From) -> Step:
    """A stored value that does not go where its name leads."""
    alone = step._replace(name="", live=None, changes=())
    if step.status in ASSIGNED:
        reason = f"its variable is restored from {chosen.title}"
        return alone._replace(status=Status.UNEXPECTED, reason=reason)
    if step.status is Status.RESET:  # there is one value to reset, and its step is another's
        return alone._replace(status=Status.EXCLUDED)
    return alone


def _problems(plan: Plan, *, alone: bool) -> Iterator[Problem]:
    """Those of one plan, each with its source; of policies in several files, with its file."""
    for problem in plan.problems:
        told = problem
        if not problem.message.endswith(f" {plan.source}"):
            told = problem._replace(message=f"{plan.source}: {problem.message}")
        if not alone:
            place = told._replace(hint="").show(plan.file) if plan.file else told.message
            told = type(problem)(place, hint=problem.hint)
        yield told


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))
