"""A stored value and the live one it is meant for: may the one go into the other?

Shapes must be equal, ``(1,)`` and ``()`` included: TensorFlow refuses that pair as well. Types must
be equal, or numbers of which the policy says that they may be converted; a string is never a
number, a number never a bool, and a complex number is not cut down to its real part. Last comes the
question whether this really is the value that the name says, which `structure` answers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tfckpt.planning.plan import Severity, Status, Step
from tfckpt.planning.structure import SLOTS_HINT, TRUST_HINT, Layers, Optimizers
from tfckpt.records import Role

if TYPE_CHECKING:
    from tfckpt.planning.route import Route
    from tfckpt.planning.untold import Untold
    from tfckpt.policy import Policy
    from tfckpt.records import Entry, Inventory

_EXCLUDE = "exclude it and it keeps the value it has"
_REAL = ("float", "bfloat", "int", "uint")
_COMPLEX = "complex"


class Comparison:
    """Steps for pairs that a policy has selected."""

    def __init__(self, policy: Policy, stored: Inventory, live: Inventory, untold: Untold) -> None:
        self._skip_shapes = policy.on_shape_mismatch == "skip"
        self._cast = policy.on_dtype_mismatch == "cast"
        self._match = frozenset(policy.match)
        self._layers = Layers(stored, live, untold)
        self._optimizers = Optimizers(stored, live)

    def step(self, route: Route, live: Entry) -> Step:
        stored = route.stored
        step = partial(Step, name=live.name, source=stored.name, live=live, stored=stored)
        if (refused := self._unequal(stored, live)) is not None:
            severity, reason, hint = refused
            return step(Status.MISMATCH, severity=severity, reason=reason, hint=hint)
        doubt, hint = self._doubt(route, live)
        if doubt and self._match != {"name"}:
            error = Severity.ERROR
            return step(Status.SUSPECT, severity=error, reason=doubt, hint=hint)
        cast = f"{stored.dtype} → {live.dtype}" if stored.dtype != live.dtype else ""
        trusted = f"{doubt} (match: name)" if doubt else ""
        reason = "; ".join(filter(None, (cast, _how(route), route.untold, trusted)))
        severity = Severity.NOTE if cast or trusted or route.untold else Severity.OK
        status = Status.RENAMED if route.rule and stored.name != live.name else Status.LOADED
        return step(Status.CAST if cast else status, severity=severity, reason=reason)

    def _unequal(self, stored: Entry, live: Entry) -> tuple[Severity, str, str] | None:
        if stored.shape != live.shape:
            reason = (
                f"incompatible tensor with shape {_shape(stored)} in the checkpoint, "
                f"{_shape(live)} here"
            )
            if self._skip_shapes:
                return Severity.WARN, reason, ""
            return Severity.ERROR, reason, f"{_EXCLUDE}; so does on_shape_mismatch: skip"
        if stored.dtype == live.dtype:
            return None
        if (can := castable(stored.dtype, live.dtype)) and self._cast:
            return None
        reason = f"{_dtype(stored)} in the checkpoint, {_dtype(live)} here"
        hint = f"on_dtype_mismatch: cast converts it; {_EXCLUDE}" if can else _EXCLUDE
        return Severity.ERROR, reason, hint

    def _doubt(self, route: Route, live: Entry) -> tuple[str, str]:
        stored = route.stored
        if "name" in self._match:
            variables = stored.of or stored.name, live.of or live.name
            if reason := self._layers.doubt(*variables):
                return reason, TRUST_HINT
        if live.role is Role.SLOT and not (route.explicit and stored.slot != live.slot):
            return self._optimizers.doubt(stored, live), SLOTS_HINT
        return "", ""


def castable(old: str, new: str) -> bool:
    """Whether values of one type can become another without ceasing to be what they are.

    >>> castable("float32", "bfloat16"), castable("bool", "int32"), castable("float32", "complex64")
    (True, True, True)
    >>> castable("string", "int64"), castable("complex64", "float32"), castable("int32", "bool")
    (False, False, False)
    """
    if new.startswith(_COMPLEX):
        return old == "bool" or old.startswith((*_REAL, _COMPLEX))
    return new.startswith(_REAL) and (old == "bool" or old.startswith(_REAL))


def _how(route: Route) -> str:
    if route.rule:
        return route.rule
    return f"{route.stored.name} is the same value" if route.alias else ""


def _shape(entry: Entry) -> str:
    return "none (not a tensor)" if entry.shape is None else str(entry.shape)


def _dtype(entry: Entry) -> str:
    return entry.dtype or "no tensor"
