"""The steps of a plan: what happens to each value, and whether that is enough.

TensorFlow calls a restore of nothing a success; here it is a problem of the plan, as is a restore
of less than ``min_restored``. Values that match almost any checkpoint do not count as restored: a
save counter never does; an optimizer's step and learning rate, metrics, seeds and vocabularies
count only if the policy selects nothing else.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.errors import Problem
from tfckpt.planning.matching.layers import MAPPING_HINT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning.adaptation.pipeline import Change
    from tfckpt.policy import Policy


class Status(str, Enum):
    """What happens to one value."""

    LOADED = "LOADED"
    RENAMED = "RENAMED"
    CAST = "CAST"
    ADAPTED = "ADAPTED"
    EXCLUDED = "EXCLUDED"
    RESET = "RESET"
    MISSING = "MISSING"
    UNEXPECTED = "UNEXPECTED"
    MISMATCH = "MISMATCH"
    SUSPECT = "SUSPECT"

    __str__ = str.__str__
    __hash__ = str.__hash__  # an Enum's own is a function in Python


class Severity(str, Enum):
    """How serious a step is; a single ``error`` refuses the whole plan."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    ERROR = "error"

    __str__ = str.__str__


ASSIGNED = frozenset({Status.LOADED, Status.RENAMED, Status.CAST, Status.ADAPTED})


class Step(NamedTuple):
    """What happens to one value, or to a stored and a live value that belong together.

    A named tuple for speed, like :class:`~tfckpt.core.inventory.Entry`.

    Attributes:
        status: what happens.
        name: canonical name of the live value; ``""`` if there is none.
        source: canonical name of the stored value; ``""`` if there is none.
        live: the live value, or None.
        stored: the stored value, or None.
        severity: how serious it is.
        reason: why; ``""`` for a plain load.
        hint: what to do about it; ``""`` if nothing is known.
        target: for a stored value that the policy selects or resets and that the model does not
            have, the live name that it maps to, after renaming.
        parts: the other stored values, in order, if several are joined.
        changes: the adaptations of the stored value before it is assigned, in order.
        origin: the source of the stored value if the plan has several; ``""`` if it has one.
        copy_of: for a value that a file has twice, the other one, which is restored.

    """

    status: Status
    name: str
    source: str
    live: Entry | None
    stored: Entry | None
    severity: Severity = Severity.OK
    reason: str = ""
    hint: str = ""
    target: str = ""
    parts: tuple[Entry, ...] = ()
    changes: tuple[Change, ...] = ()
    origin: str = ""
    copy_of: Entry | None = None

    @property
    def reads(self) -> tuple[Entry, ...]:
        """The stored values that the step reads."""
        return () if self.stored is None else (self.stored, *self.parts)

    @property
    def entry(self) -> Entry:
        """The live value if there is one, else the stored one.

        >>> from tfckpt.core.inventory import Entry, Role
        >>> rate = Entry("optimizer/learning_rate", Role.HYPERPARAMETER, "float32", ())
        >>> Step(Status.MISSING, rate.name, "", rate, None).entry is rate
        True
        """
        entry = self.live or self.stored
        assert entry is not None, "a step is about a value"  # noqa: S101 (narrows the type)
        return entry


_LEFT_ALONE = frozenset({Status.EXCLUDED, Status.RESET})
_MATCH_ANYTHING = frozenset(
    {Role.ITERATIONS, Role.HYPERPARAMETER, Role.METRIC, Role.SEED, Role.VOCABULARY}
)
_TOPS = 6
MISSING_HINT = "exclude it, declare it in expect_missing, or set on_missing: warn"
UNEXPECTED_HINT = (
    "drop it with exclude_checkpoint, declare it in expect_unexpected, or set on_unexpected: warn"
)
SHAPE_HINT = (
    "exclude it, or set on_shape_mismatch: skip, to keep the model's value; an `adapt` rule may "
    "make it fit"
)
QUANTIZE_HINT = "restore, then call `quantize`; or quantize the model as the saved one was"
# What is not what to do, or no more, where a suggested policy does it.
LEAVING_HINTS = frozenset({
    *(MISSING_HINT, UNEXPECTED_HINT, SHAPE_HINT),
    *map(MAPPING_HINT.format, ("layers", "variables")),
})  # fmt: skip
SAVE_COUNTER = "save_counter"


class NothingRestored(Problem):
    """The problem that a plan restores nothing."""


def coverage(
    policy: Policy, steps: Sequence[Step], stored: Inventory, live: Inventory
) -> Iterator[Problem]:
    """Problems of a plan as a whole."""
    selected = [step for step in steps if step.live and step.status not in _LEFT_ALONE]
    assigned = [step for step in selected if step.status in ASSIGNED]
    yield from _share(policy, selected, assigned)
    if policy.allow_empty or _restores_something(selected, assigned):
        return
    # a mismatch has its own reason
    errors = (step for step in selected if step.severity is Severity.ERROR)
    if not any(step.stored for step in errors):
        in_checkpoint, in_model = _tops(stored), _tops(live)
        differ = f"the checkpoint has {in_checkpoint}, and the model has {in_model}"
        other = "its layers have other names, or it is a checkpoint of another model"
        hint = differ if in_checkpoint != in_model else other
        message = f"no value would be restored from {stored.source}"
        yield NothingRestored(message, hint=f"{hint}; allow_empty: true allows it")


def is_save_counter(entry: Entry) -> bool:
    """Whether it is the ``save_counter`` of ``tf.train.Checkpoint``."""
    return entry.name == SAVE_COUNTER and entry.role is Role.STATE


def counter_left(policy: Policy, stored: Inventory) -> str:
    """Why the save counter is not restored; ``""`` if it must be.

    What another program wrote without a counter holds no training that goes on: weights, an export,
    or what ``write()`` wrote. In a checkpoint with tfckpt's record, it is missing.
    """
    if policy.api == "read":
        return "api: read does not restore the save counter"
    counted = stored.complete or any(map(is_save_counter, stored.entries.values()))
    if counted or "api" in policy.model_fields_set:
        return ""
    return "taken as api: read, because the checkpoint counts no saves"


def _share(policy: Policy, selected: Iterable[Step], assigned: Iterable[Step]) -> Iterator[Problem]:
    if (least := policy.min_restored) is None:
        return
    wanted, got = _parameters(selected), _parameters(assigned)
    if got < least * wanted:
        message = (
            f"min_restored: {got / wanted:.1%} of the {wanted:,} selected parameters would be "
            f"restored, the policy requires {least:.1%}"
        )
        yield Problem(message, *policy.where("min_restored", 0))


def _parameters(steps: Iterable[Step]) -> int:
    entries = (step.live for step in steps if step.live)
    return sum(math.prod(entry.shape or ()) for entry in entries if entry.role is Role.WEIGHT)


def _restores_something(selected: Iterable[Step], assigned: Iterable[Step]) -> bool:
    if any(_substantial(step.entry) for step in selected):
        return any(_substantial(step.entry) for step in assigned)
    return not all(is_save_counter(step.entry) for step in assigned)


def _substantial(entry: Entry) -> bool:
    return entry.role not in _MATCH_ANYTHING and not is_save_counter(entry)


def _tops(inventory: Inventory) -> str:
    """The first components of an inventory's names."""
    entries = inventory.entries.values()
    tops = sorted({e.name.partition("/")[0] for e in entries if not is_save_counter(e)})
    shown = [f"{top}/…" if top not in inventory.entries else top for top in tops[:_TOPS]]
    return (", ".join(shown) + (" …" if len(tops) > _TOPS else "")) or "nothing"
