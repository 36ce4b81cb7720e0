"""What becomes of one value in a restore: the steps that a plan is made of."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry
    from tfckpt.planning.adaptation.change import Change


class Status(str, Enum):
    """What becomes of one value."""

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
    """How much a step matters; one ``error`` anywhere refuses the whole plan."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    ERROR = "error"

    __str__ = str.__str__


ASSIGNED = frozenset({Status.LOADED, Status.RENAMED, Status.CAST, Status.ADAPTED})


class Step(NamedTuple):
    """What becomes of one value, or of a stored and a live one that belong together.

    A tuple, as :class:`~tfckpt.core.inventory.Entry` is, and for the same reason.

    Attributes:
        status: what happens.
        name: canonical name of the live value, ``""`` where none is concerned.
        source: canonical name of the stored value, ``""`` where none is concerned.
        live: the live value, or None.
        stored: the stored value, or None.
        severity: how much it matters.
        reason: why, in words; ``""`` for a plain load.
        hint: what to do about it, where something is known.
        target: for a stored value that the policy selects, or resets, and that nothing here answers
            to, the live name that it was meant for, after renaming.
        parts: the further stored values, in order, where several are joined.
        changes: what is done to what is stored before it is assigned, in order.
        origin: the source of the stored value, where a plan has several; ``""`` where it has one.

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
        """The stored values that are read for it."""
        return () if self.stored is None else (self.stored, *self.parts)

    @property
    def entry(self) -> Entry:
        """The live value where there is one, else the stored one.

        >>> from tfckpt.core.inventory import Entry, Role
        >>> rate = Entry("optimizer/learning_rate", Role.HYPERPARAMETER, "float32", ())
        >>> Step(Status.MISSING, rate.name, "", rate, None).entry is rate
        True
        """
        entry = self.live or self.stored
        assert entry is not None, "a step is about a value"  # noqa: S101 (narrows the type)
        return entry
