"""What a restore leaves out, in one line, for users who do not read the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.text import FOLD, listed, printable
from tfckpt.planning.checks.one_sided import ADAPTERS_HINT, ONE_SIDED, is_adapter
from tfckpt.planning.checks.step import ASSIGNED, SAVE_COUNTER, Severity, Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tfckpt.planning.checks.step import Step
    from tfckpt.planning.plan import Plan

_FEW = 3  # in one line
_OF_MODEL = "not in the checkpoint, unchanged in the model"
_OF_CHECKPOINT = "in the checkpoint, not used"
_OF_LAYER = f"{_OF_CHECKPOINT}, in layers whose other weights were restored"
_OF_NOBODY = (
    "in the checkpoint, not used: the file identifies their variables only by position. A policy "
    "with `optimizer: reset` starts the optimizer from scratch"
)
_OF_MISSING = "of these, unchanged too"
_OTHER_SHAPE = "with another shape in the checkpoint, unchanged in the model"


def warned_of(plan: Plan) -> str:
    """What a policy asks to warn about, and what only one side has; "" for nothing.

    >>> from tfckpt.core.inventory import Entry
    >>> from tfckpt.planning.checks.step import Step
    >>> from tfckpt.planning.plan import Plan
    >>> bias = Entry("model/head/bias", Role.WEIGHT, "float32", (3,))
    >>> step = Step(Status.MISSING, bias.name, "", bias, None, Severity.WARN)
    >>> warned_of(Plan("finetune", "zoo/ckpt-900", (step,)))
    '1 value not in the checkpoint, unchanged in the model: model/head/bias'
    """
    steps = [step for step in plan.steps if step.severity is Severity.WARN]
    kinds = (
        (Status.MISSING, _OF_MODEL),
        (Status.UNEXPECTED, _OF_CHECKPOINT),
        (Status.MISMATCH, _OTHER_SHAPE),
    )
    steps_by_kind = ((what, [s for s in steps if s.status is status]) for status, what in kinds)
    warned = [_counted("value", what, each) for what, each in steps_by_kind if each]
    return "; ".join([*warned, *_one_sided(plan)])


def _one_sided(plan: Plan) -> Iterator[str]:
    for reason in ONE_SIDED:
        alike = (s for s in plan.steps if s.reason == reason and s.entry.name != SAVE_COUNTER)
        if steps := list(alike):
            yield _counted("value", reason, steps)


def weights_left_out(plan: Plan, waiting: Collection[str]) -> str:
    """The weights that only the model has, and those that only the checkpoint has.

    "" if only one of the two has any: a part was added, or is not wanted. ``waiting`` are names of
    stored values whose variables may be created later.
    """
    missing = _weights(plan, {Status.MISSING})
    unused = _unused(plan, waiting) if missing else []
    if not unused:
        return ""
    both = _counted("weight", _OF_MODEL, missing), _counted("weight", _OF_CHECKPOINT, unused)
    return "; ".join(both)


def layers_in_part(plan: Plan, waiting: Collection[str]) -> str:
    """Unused weights of layers whose other weights were restored; "" for none."""
    unused = _unused(plan, waiting)
    layers = {_layer(step.source) for step in _weights(plan, ASSIGNED)} if unused else set()
    left = [step for step in unused if _layer(step.source) in layers]
    if not left:
        return ""
    adapters = any(is_adapter(step.source) for step in left)
    return _counted("weight", _OF_LAYER, left) + (f". {ADAPTERS_HINT}" if adapters else "")


def slots_by_number(plan: Plan) -> str:
    """Unused slots whose variables the file identifies only by position; "" for none."""
    if not any(step.name and step.entry.role is Role.SLOT for step in plan.steps):
        return ""  # there is no optimizer to restore
    left = [s for s in plan.steps if s.status is Status.UNEXPECTED and s.entry.of.isdecimal()]
    return _counted("slot", _OF_NOBODY, left) if left else ""


def missing(plan: Plan) -> str:
    """The values that a checkpoint does not have, and their optimizer slots; "" for none."""
    steps = [
        step
        for step in plan.steps
        if step.status is Status.MISSING
        and step.entry.role is not Role.METRIC
        and step.name != SAVE_COUNTER
    ]
    if not steps:
        return ""
    names = {step.name for step in steps}
    slots = [s for s in plan.steps if s.status is Status.EXCLUDED and s.entry.of in names]
    text = _counted("value", _OF_MODEL, steps, FOLD)
    return f"{text}; {_counted('slot', _OF_MISSING, slots, FOLD)}" if slots else text


def _weights(plan: Plan, statuses: Collection[Status]) -> list[Step]:
    return [s for s in plan.steps if s.status in statuses and s.entry.role is Role.WEIGHT]


def _unused(plan: Plan, waiting: Collection[str]) -> list[Step]:
    unused = _weights(plan, {Status.UNEXPECTED})
    return [step for step in unused if step.source not in waiting]


def _layer(name: str) -> str:
    return name.rpartition("/")[0]


def _counted(word: str, what: str, steps: Sequence[Step], most: int = _FEW) -> str:
    plural = "s" * (len(steps) != 1)
    names = listed([printable(step.entry.name) for step in steps], most)
    return f"{len(steps):,} {word}{plural} {what}: {names}"
