"""Checks whether a stored value may be assigned to the live one that it maps to.

Shapes must be equal; ``(1,)`` and ``()`` are different, as in TensorFlow. Dtypes must be equal, or
the policy must allow the cast; strings, bools and numbers are never converted into each other, nor
complex numbers into real ones. A seed takes a wider integer as it is: Keras stored uint32, and
stores int64 now. Finally `matching.layers` and `optimizers` check whether
the values really are the same, although their names match.

An iterator's position is only valid for the dataset that it was saved with. A lookup layer creates
its table once, and anything traced with the layer, such as a ``tf.data`` pipeline, keeps using that
table. So an existing vocabulary is never replaced. Vocabularies are compared by the checksum in the
checkpoint's index.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.dtypes import can_cast, castable, is_real
from tfckpt.core.inventory import Role
from tfckpt.planning.checks.one_sided import OF_OPTIMIZERS
from tfckpt.planning.checks.step import QUANTIZE_HINT, SHAPE_HINT, Severity, Status, Step
from tfckpt.policy.blanks import Impossible, ValueSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.core.inventory import Dataset, Entry, Inventory
    from tfckpt.planning.adaptation.pipeline import Adaptations, Change
    from tfckpt.planning.checks.optimizers import Optimizers
    from tfckpt.planning.matching.layers import Layers
    from tfckpt.planning.matching.routing import Route
    from tfckpt.policy import Policy

_INFINITE, _UNKNOWN = -1, -2  # tf.data.INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
_DATASET_HINT = (
    "build the dataset as it was when it was saved; to start the data from the beginning, "
    "exclude the iterator in a policy, or do not pass it to the checkpoint"
)
_BUILT_DIFFERENTLY = (
    "its dataset was built from other data or with other operations when it was saved, so the next "
    "elements may not be those that would have followed"
)
_VOCABULARY_HINT = (
    "build the layer with the entries in the checkpoint (`tfckpt inspect --name` shows them), or "
    "exclude them in the policy to keep the model's"
)
_FROZEN_HINT = (
    "optimizer: {slots: restore} takes the layers that are frozen now; optimizer: reset starts "
    "from scratch"
)
_KNOWN_BY_MORE = frozenset({Role.VOCABULARY, Role.ITERATOR})
_EXCLUDE = "exclude it to keep the model's value"


class Comparison:
    """Makes the steps for pairs that a policy has selected."""

    def __init__(
        self,
        policy: Policy,
        stored: Inventory,
        live: Inventory,
        layers: Layers,
        adaptations: Adaptations | None,
        *,
        optimizers: Optimizers,
    ) -> None:
        self._takes = live.takes
        self._skip_shapes = policy.on_shape_mismatch == "skip"
        self._cast = policy.on_dtype_mismatch == "cast"
        self._match = frozenset(policy.match)
        self._as_frozen_now = "slots" in policy.optimizer.model_fields_set
        self._layers = layers
        self._optimizers = optimizers
        self._adaptations = adaptations
        self._datasets = stored.datasets, live.datasets
        self._entries = stored.entries, live.entries

    def plain(self, stored: Entry, live: Entry) -> bool:
        """Whether a value is simply LOADED into the live one of the same name.

        A fast path: :meth:`step` comes to the same result for such a pair.
        """
        return self._as_is(stored, live) and (
            live.role in self._sure or not self._ambiguity(stored, live, explicit=False)[0]
        )

    def _as_is(self, stored: Entry, live: Entry) -> bool:
        """Whether the value needs no change and is known by its name, dtype and shape alone."""
        return (
            stored.shape == live.shape
            and stored.dtype == live.dtype
            and self._adaptations is None
            and live.role not in _KNOWN_BY_MORE
        )

    @cached_property
    def _sure(self) -> frozenset[Role]:
        """The roles whose values cannot be ambiguous if both sides have the same name."""
        if "name" in self._match and not self._layers.certain:
            return frozenset()
        return frozenset(Role) - self._optimizers.unsure

    def step(self, routes: Sequence[Route], live: Entry) -> Step:
        """The step of a live value and the stored value, or joined values, that map to it."""
        route, stored = routes[0], routes[0].stored
        plainest = len(routes) == 1 and not route.unnamed and self._as_is(stored, live)
        if plainest and not self._ambiguity(stored, live, explicit=route.explicit)[0]:
            status = Status.RENAMED if route.rule and stored.name != live.name else Status.LOADED
            return Step(status, live.name, stored.name, live, stored, Severity.OK, _how(route))
        parts = tuple(other.stored for other in routes[1:])
        error, subject = Severity.ERROR, (live.name, stored.name, live, stored)
        if live.role is Role.VOCABULARY and (conflict := _other_vocabulary(stored, live)):
            return Step(Status.SUSPECT, *subject, error, conflict, _VOCABULARY_HINT, parts=parts)
        try:
            changes = () if (adapt := self._adaptations) is None else adapt.changes(routes, live)
        except Impossible as why:
            hint = why.hint or _EXCLUDE
            return Step(Status.MISMATCH, *subject, error, why.reason, hint, parts=parts)
        adapted = changes[-1].after[0] if changes else stored
        if (mismatch := self._unequal(stored, adapted, live, changes)) is not None:
            severity, reason, hint = mismatch
            return Step(Status.MISMATCH, *subject, severity, reason, hint, "", parts, changes)
        ambiguity, hint = self._ambiguity(stored, live, explicit=route.explicit)
        if ambiguity and self._match != {"name"}:
            return Step(Status.SUSPECT, *subject, error, ambiguity, hint, parts=parts)
        cast = f"{adapted.dtype} → {live.dtype}" if adapted.dtype != live.dtype else ""
        trusted = f"{ambiguity} (accepted: match: name)" if ambiguity else ""
        origin = "" if route.adapt >= 0 else _how(route)
        notes = *map(str, changes), cast, origin, route.unnamed, trusted
        reason = "; ".join(filter(None, notes))
        severity = Severity.NOTE if changes or cast or trusted or route.unnamed else Severity.OK
        if _built_differently(*self._both(stored, live)):
            reason, severity = (
                "; ".join(filter(None, (_BUILT_DIFFERENTLY, reason))),
                Severity.WARN,
            )
        status = Status.RENAMED if route.rule and stored.name != live.name else Status.LOADED
        status = Status.ADAPTED if changes else Status.CAST if cast else status
        return Step(status, *subject, severity, reason, "", "", parts, changes)

    def _unequal(
        self, stored: Entry, adapted: Entry | ValueSpec, live: Entry, changes: Sequence[Change]
    ) -> tuple[Severity, str, str] | None:
        """Why the value, after its changes, has the wrong shape or dtype; None if it fits."""
        where = f"after {changes[-1].how}" if changes else "in the checkpoint"
        if adapted.shape != live.shape and not self._takes(live.name, adapted.shape):
            shapes = f"{_shape(adapted)} {where}, {_shape(live)} in the model"
            reason = f"incompatible tensor with shape {shapes}"
            if self._skip_shapes and not changes:
                return Severity.WARN, reason, ""
            return Severity.ERROR, reason, _EXCLUDE if changes else SHAPE_HINT
        if adapted.dtype == live.dtype:
            return None
        if live.role is Role.SEED and can_cast(adapted.dtype, live.dtype, "safe"):
            return None
        reason = f"{_dtype(adapted)} {where}, {_dtype(live)} in the model"
        could_cast = castable(adapted.dtype, live.dtype)
        if is_real(adapted.dtype) != is_real(live.dtype) and self._one_is_quantized(stored, live):
            could_cast = False
            reason, hint = f"{reason}, and only one of them is quantized", QUANTIZE_HINT
        else:
            hint = f"on_dtype_mismatch: cast converts it; {_EXCLUDE}" if could_cast else _EXCLUDE
        return None if could_cast and self._cast else (Severity.ERROR, reason, hint)

    def _one_is_quantized(self, stored: Entry, live: Entry) -> bool:
        """Whether only one has the scale that Keras 3 keeps beside a quantized kernel.

        A cast would change what the numbers mean.
        """
        both = zip((stored, live), self._entries, strict=True)
        return len({f"{entry.name}_scale" in entries for entry, entries in both}) == 2

    def _ambiguity(self, stored: Entry, live: Entry, *, explicit: bool) -> tuple[str, str]:
        """Why it may be another value, and a hint; ``explicit`` if a rule names this value."""
        if "name" in self._match:
            ambiguity = self._layers.ambiguity(stored.of or stored.name, live.of or live.name)
            if ambiguity[0]:
                return ambiguity
        if live.role is Role.ITERATOR:
            return _other_dataset(*self._both(stored, live)), _DATASET_HINT
        asks = live.role is Role.SLOT and not self._as_frozen_now
        if asks and (unsure := self._layers.orders.unsure(stored.name)):
            return unsure, _FROZEN_HINT
        if live.role in OF_OPTIMIZERS:
            return self._optimizers.ambiguity(stored, live, explicit=explicit)
        return "", ""

    def _both(self, stored: Entry, live: Entry) -> tuple[Dataset | None, Dataset | None]:
        """The datasets of a stored iterator and of a live one."""
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


def _other_dataset(stored: Dataset | None, live: Dataset | None) -> str:
    """Why a position in one dataset is not valid in the other; ``""`` if nothing shows that.

    >>> from tfckpt.core.inventory import Dataset
    >>> ten = Dataset("int64", 10, "1")
    >>> _other_dataset(ten, Dataset("int64", 100, "2"))
    'its dataset has 10 elements in the checkpoint and 100 elements in the model'
    >>> _other_dataset(ten, ten._replace(elements="float32"))
    'its dataset yields int64 in the checkpoint and float32 in the model'
    """
    if stored is None or live is None:
        return ""
    if stored.elements != live.elements:
        in_checkpoint, in_model = stored.elements, live.elements
        return f"its dataset yields {in_checkpoint} in the checkpoint and {in_model} in the model"
    if stored.size != live.size and _UNKNOWN not in (stored.size, live.size):
        in_checkpoint, in_model = _size(stored.size), _size(live.size)
        return f"its dataset has {in_checkpoint} in the checkpoint and {in_model} in the model"
    return ""


def _built_differently(stored: Dataset | None, live: Dataset | None) -> bool:
    """Whether the datasets have different fingerprints; their elements may still be equal."""
    if stored is None or live is None or "" in (stored.fingerprint, live.fingerprint):
        return False
    return stored.fingerprint != live.fingerprint


def _size(number: int) -> str:
    if number == _INFINITE:
        return "infinitely many elements"
    return f"{number:,} element{'s' * (number != 1)}" if number else "no elements"


def _other_vocabulary(stored: Entry, live: Entry) -> str:
    """Why a stored vocabulary cannot be restored into the live layer; ``""`` if it can.

    >>> from tfckpt.core.inventory import Entry, Role
    >>> words = Entry("model/text/vocabulary", Role.VOCABULARY, "string", (3,), crc32c=7)
    >>> _other_vocabulary(words, words._replace(shape=(0,), crc32c=1))
    ''
    >>> _other_vocabulary(words, words._replace(crc32c=1))
    'the layer has 3 entries; the checkpoint has other entries, or another order'
    """
    if stored.dtype != live.dtype:
        return f"the layer's entries are {live.dtype}, those in the checkpoint are {stored.dtype}"
    if live.shape == (0,) or None in (stored.crc32c, live.crc32c):
        return ""  # compared when it is assigned
    if stored.shape != live.shape:
        return f"the layer has {_count(live)}, and the checkpoint has {_count(stored)}"
    if stored.crc32c != live.crc32c:
        return f"the layer has {_count(live)}; the checkpoint has other entries, or another order"
    return ""


def _count(entry: Entry) -> str:
    count = entry.shape[0] if entry.shape else 0
    return f"{count:,} entr{'y' if count == 1 else 'ies'}"
