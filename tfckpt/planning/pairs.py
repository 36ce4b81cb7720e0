"""Which stored value goes with which live one, by a plan, and what only one side has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.text import natural
from tfckpt.planning.checks.step import ASSIGNED

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry
    from tfckpt.planning.checks.step import Status
    from tfckpt.planning.plan import Plan


class ValuePair(NamedTuple):
    """A stored value and the live one that it is meant for; None where only one side has it."""

    stored: Entry | None
    live: Entry | None
    status: Status

    def to_json(self) -> dict[str, str | None]:
        """The names of both sides, and what happens."""
        return {
            "checkpoint": self.stored.name if self.stored else None,
            "model": self.live.name if self.live else None,
            "status": self.status.value,
        }


class PairedValues(NamedTuple):
    """All values of a plan.

    Attributes:
        restored: what is assigned to what; a value that is joined from several has several pairs.
        apart: the others that have a counterpart.
        stored: what only the checkpoint has.
        live: what only the model has.
    """

    restored: list[ValuePair]
    apart: list[ValuePair]
    stored: list[ValuePair]
    live: list[ValuePair]


def paired(plan: Plan) -> PairedValues:
    """The values of a plan, sorted by their names in the model, or else in the checkpoint.

    >>> from tfckpt.core.inventory import Entry, Role
    >>> from tfckpt.planning.checks.step import Status, Step
    >>> from tfckpt.planning.plan import Plan
    >>> bias = Entry("model/head/bias", Role.WEIGHT, "float32", (3,))
    >>> step = Step(Status.MISSING, bias.name, "", bias, None)
    >>> [pair.live.name for pair in paired(Plan("strict", "zoo/ckpt-900", (step,))).live]
    ['model/head/bias']
    """
    found = PairedValues([], [], [], [])
    for step in sorted(plan.steps, key=lambda step: natural(step.entry.name)):
        for stored in step.reads or (None,):
            pair = ValuePair(stored, step.live, step.status)
            if stored is None:
                found.live.append(pair)
            elif step.live is None:
                found.stored.append(pair)
            else:
                (found.restored if step.status in ASSIGNED else found.apart).append(pair)
    return found
