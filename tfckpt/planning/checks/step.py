"""The steps of a plan: what happens to each value."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry
    from tfckpt.planning.adaptation.change import Change


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
