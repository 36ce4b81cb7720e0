"""Merges the plans of several sources into one, for one transaction.

Each source is planned by its own policy against all live values. In the merged plan, the step of a
value is that of the source that provides it; the others may exclude it or lack it. It is an error
if two sources provide the same value, or if one restores and another resets it. A value that no
source provides is MISSING, with the severity of the strictest policy that selects it.

Unexpected values, and rules that match nothing, are reported for each source separately.
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
    """A step with the title of its plan."""

    step: Step
    title: str


def union_of(plans: Sequence[Plan]) -> Plan:
    """Merge plans that were made against the same live values.

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
            with_origin = step._replace(origin=plan.source if step.stored else "")
            if step.name:
                by_name.setdefault(step.name, []).append(_From(with_origin, title))
            else:
                steps.append(with_origin)
    for steps_of_it in by_name.values():
        steps += _merge(steps_of_it)
    steps.sort(key=lambda s: (s.name or s.source, s.source, s.target, s.origin))
    files = {plan.file for plan in plans}
    return Plan(
        _listed(plan.policy for plan in plans),
        _listed(plan.source for plan in plans),
        tuple(steps),
        tuple(problem for plan in plans for problem in _problems(plan, alone=len(files) == 1)),
        files.pop() if len(files) == 1 else "",
        tuple(origin for plan in plans for origin in plan.origins),
        policies=tuple(policy for plan in plans for policy in plan.policies),
    )


def _merge(steps_of_it: Sequence[_From]) -> Iterator[Step]:
    """The step of one live value, and the steps of stored values that it does not use."""
    begun = [each for each in steps_of_it if each.step.status is Status.RESET]
    asked = [each for each in begun if each.step.severity is Severity.OK]  # by the policy
    claims = [each for each in steps_of_it if each.step.status in ASSIGNED or each in asked]
    restored = [each for each in claims if each.step.status in ASSIGNED]
    refused = [each for each in steps_of_it if _is_refused(each.step)]
    if restored and len(claims) > 1:
        restore, reset = (" and ".join(x.title for x in each) for each in (restored, asked))
        reason = f"{restore} would both restore it"
        if reset:
            reason = f"{restore} would restore it, and {reset} would reset it"
        chosen = restored[0]
        yield chosen.step._replace(
            status=Status.MISMATCH,
            severity=Severity.ERROR,
            reason=reason,
            hint=_HINT,
        )
    else:
        chosen = (refused or claims or begun or [max(steps_of_it, key=_gravity)])[0]
        step = chosen.step
        if step.status is Status.MISSING:
            reasons = _listed(
                each.step.reason for each in steps_of_it if each.step.status is step.status
            )
            step = step._replace(reason=reasons)
        yield step
    for each in steps_of_it:
        if each is not chosen and each.step.stored is not None:
            yield _left(each.step, chosen)


def _is_refused(step: Step) -> bool:
    """Whether the source's value is refused; a MISSING one may come from another source."""
    return step.severity is Severity.ERROR and step.status is not Status.MISSING


def _gravity(each: _From) -> tuple[int, bool]:
    return _GRAVITY.index(each.step.severity), each.step.status is not Status.EXCLUDED


def _left(step: Step, chosen: _From) -> Step:
    """The step of a stored value whose variable gets its value from another source."""
    alone = step._replace(name="", live=None, changes=())
    if step.status in ASSIGNED:
        reason = f"its variable is restored from {chosen.title}"
        return alone._replace(status=Status.UNEXPECTED, reason=reason)
    if step.status is Status.RESET:  # the other source's step resets the value
        return alone._replace(status=Status.EXCLUDED)
    return alone


def _problems(plan: Plan, *, alone: bool) -> Iterator[Problem]:
    """The problems of one plan with its source, and its file unless ``alone``."""
    for problem in plan.problems:
        complete = problem
        if not problem.message.endswith(f" {plan.source}"):
            complete = problem._replace(message=f"{plan.source}: {problem.message}")
        if not alone:
            text = complete._replace(hint="").show(plan.file) if plan.file else complete.message
            complete = type(problem)(text, hint=problem.hint)
        yield complete


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))
