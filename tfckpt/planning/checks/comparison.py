"""A stored value and the live one it is meant for: may the one go into the other?

Shapes must be equal, ``(1,)`` and ``()`` included: TensorFlow refuses that pair as well. Types must
be equal, or numbers of which the policy says that they may be converted; a string is never a
number, a number never a bool, and a complex number is not cut down to its real part. Last comes the
question whether this really is the value that the name says, which `structure` answers.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.dtypes import castable
from tfckpt.core.inventory import Role
from tfckpt.planning.adaptation.change import Change, Impossible, ValueSpec
from tfckpt.planning.checks import datasets, vocabularies
from tfckpt.planning.checks.step import Severity, Status, Step
from tfckpt.planning.matching.optimizers import SETTING_HINT, SLOTS_HINT, Optimizers
from tfckpt.planning.matching.structure import Layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.core.inventory import Dataset, Entry, Inventory
    from tfckpt.planning.adaptation.pipeline import Adaptations
    from tfckpt.planning.matching.renames import Renames
    from tfckpt.planning.matching.routing import Route
    from tfckpt.planning.matching.unnamed_layers import Unnamed
    from tfckpt.policy import Policy

_KNOWN_BY_MORE = frozenset({Role.VOCABULARY, Role.ITERATOR})
_OPTIMIZERS = frozenset({Role.SLOT, Role.HYPERPARAMETER})
_EXCLUDE = "exclude it to keep the model's value"
_SHAPE_HINT = (
    "exclude it, or set on_shape_mismatch: skip, to keep the model's value; an `adapt` rule may "
    "make it fit"
)


class Comparison:
    """Steps for pairs that a policy has selected."""

    def __init__(
        self,
        policy: Policy,
        stored: Inventory,
        live: Inventory,
        unnamed: Unnamed,
        *,
        renames: Renames,
        adaptations: Adaptations,
    ) -> None:
        self._adapts = bool(policy.adapt)
        self._takes = live.takes
        self._skip_shapes = policy.on_shape_mismatch == "skip"
        self._cast = policy.on_dtype_mismatch == "cast"
        self._match = frozenset(policy.match)
        self._layers = Layers(stored, live, unnamed, renames)
        self._optimizers = Optimizers(stored, live)
        self._adaptations = adaptations
        self._datasets = stored.datasets, live.datasets

    def plain(self, stored: Entry, live: Entry) -> bool:
        """Whether a value goes as it is into the live one of the same name, without a word.

        What :meth:`step` says at length, of a route that says nothing either.
        """
        return (
            stored.shape == live.shape
            and stored.dtype == live.dtype
            and not self._adapts
            and (live.role in self._sure or not self._ambiguity(stored, live, explicit=False)[0])
            and live.role not in _KNOWN_BY_MORE
        )

    @cached_property
    def _sure(self) -> frozenset[Role]:
        """The roles of which no value is doubtful that has the same name on both sides."""
        if "name" in self._match and not self._layers.alike:
            return frozenset()
        doubtful = {Role.HYPERPARAMETER} if self._optimizers.alike else _OPTIMIZERS
        return frozenset(Role) - doubtful

    def step(self, routes: Sequence[Route], live: Entry) -> Step:
        """One for a live value and what is meant for it: a value, or several that are joined."""
        route, stored = routes[0], routes[0].stored
        parts = tuple(other.stored for other in routes[1:])
        error, subject = Severity.ERROR, (live.name, stored.name, live, stored)
        if live.role is Role.VOCABULARY and (other := vocabularies.ambiguity(stored, live)):
            return Step(Status.SUSPECT, *subject, error, other, vocabularies.HINT, parts=parts)
        try:
            changes = self._adaptations.changes(routes, live) if self._adapts else ()
        except Impossible as why:
            hint = why.hint or _EXCLUDE
            return Step(Status.MISMATCH, *subject, error, why.reason, hint, parts=parts)
        made = changes[-1].after[0] if changes else stored
        if (refused := self._unequal(made, live, changes)) is not None:
            severity, reason, hint = refused
            return Step(Status.MISMATCH, *subject, severity, reason, hint, "", parts, changes)
        ambiguity, hint = self._ambiguity(stored, live, explicit=route.explicit)
        if ambiguity and self._match != {"name"}:
            return Step(Status.SUSPECT, *subject, error, ambiguity, hint, parts=parts)
        cast = f"{made.dtype} → {live.dtype}" if made.dtype != live.dtype else ""
        trusted = f"{ambiguity} (accepted: match: name)" if ambiguity else ""
        how = "" if route.adapt >= 0 else _how(route)
        notes = *map(str, changes), cast, how, route.unnamed, trusted
        reason = "; ".join(filter(None, notes))
        severity = Severity.NOTE if changes or cast or trusted or route.unnamed else Severity.OK
        if datasets.built_differently(*self._both(stored, live)):
            reason, severity = (
                "; ".join(filter(None, (datasets.BUILT_DIFFERENTLY, reason))),
                Severity.WARN,
            )
        status = Status.RENAMED if route.rule and stored.name != live.name else Status.LOADED
        status = Status.ADAPTED if changes else Status.CAST if cast else status
        return Step(status, *subject, severity, reason, "", "", parts, changes)

    def _unequal(
        self, made: Entry | ValueSpec, live: Entry, changes: Sequence[Change]
    ) -> tuple[Severity, str, str] | None:
        """Why what is there, after its changes, is not what the live value takes."""
        where = f"after {changes[-1].how}" if changes else "in the checkpoint"
        if made.shape != live.shape and not self._takes(live.name, made.shape):
            shapes = f"{_shape(made)} {where}, {_shape(live)} in the model"
            reason = f"incompatible tensor with shape {shapes}"
            if self._skip_shapes and not changes:
                return Severity.WARN, reason, ""
            return Severity.ERROR, reason, _EXCLUDE if changes else _SHAPE_HINT
        if made.dtype == live.dtype:
            return None
        if (can := castable(made.dtype, live.dtype)) and self._cast:
            return None
        reason = f"{_dtype(made)} {where}, {_dtype(live)} in the model"
        hint = f"on_dtype_mismatch: cast converts it; {_EXCLUDE}" if can else _EXCLUDE
        return Severity.ERROR, reason, hint

    def _ambiguity(self, stored: Entry, live: Entry, *, explicit: bool) -> tuple[str, str]:
        """Why it may be another value, and a hint; ``explicit`` says that a rule names this one."""
        if "name" in self._match:
            ambiguity = self._layers.ambiguity(stored.of or stored.name, live.of or live.name)
            if ambiguity[0]:
                return ambiguity
        if live.role is Role.SLOT and not (explicit and stored.slot != live.slot):
            return self._optimizers.ambiguity(stored, live), SLOTS_HINT
        if live.role is Role.ITERATOR:
            return datasets.ambiguity(*self._both(stored, live)), datasets.HINT
        if live.role is Role.HYPERPARAMETER and not explicit:
            return self._optimizers.ambiguity_of_setting(stored, live), SETTING_HINT
        return "", ""

    def _both(self, stored: Entry, live: Entry) -> tuple[Dataset | None, Dataset | None]:
        """The data sets of a stored iterator and of a live one."""
        stored_datasets, live_datasets = self._datasets
        return stored_datasets.get(stored.name), live_datasets.get(live.name)


def _how(route: Route) -> str:
    if route.rule:
        return route.rule
    return f"{route.stored.name} is the same value" if route.alias else ""


def _shape(entry: Entry | ValueSpec) -> str:
    return "none (not a tensor)" if entry.shape is None else str(entry.shape)


def _dtype(entry: Entry | ValueSpec) -> str:
    return entry.dtype or "not a tensor"
