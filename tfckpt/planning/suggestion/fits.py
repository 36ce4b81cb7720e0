"""Which layers of a checkpoint fit which layers of a model, by their weights and classes.

Layers with the same names and shapes of weights fit alike, so they are compared once for all.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from tfckpt.planning.suggestion.adapting import merges
from tfckpt.planning.suggestion.units import sorted_shape
from tfckpt.planning.suggestion.words import UNUSED, last_word, means

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfckpt.core.inventory import Entry
    from tfckpt.planning.suggestion.units import Unit

_KERAS = ("kernel", "bias")
_INDEX = re.compile(r"(\A|/)vars/\d+\Z")


class Rivals:
    """For each layer of the model, the layers of the checkpoint that fit it."""

    def __init__(self, stored: Iterable[Unit], live: Iterable[Unit]) -> None:
        self._stored, self._live = _alike(stored), _alike(live)
        by_sizes: dict[object, list[object]] = {}
        for key, units in self._stored.items():
            by_sizes.setdefault(sizes_of(units[0]), []).append(key)
        self._fitting: dict[object, list[Unit]] = {}
        self._claims: Counter[object] = Counter()
        for key, units in self._live.items():
            keys = [
                other
                for other in by_sizes.get(sizes_of(units[0]), ())
                if fit(self._stored[other][0], units[0]) is not None
            ]
            self._fitting[key] = [unit for other in keys for unit in self._stored[other]]
            self._claims.update(dict.fromkeys(keys, len(units)))

    def of(self, live: Unit) -> Sequence[Unit]:
        """The layers that fit; the same list for layers that are alike."""
        return self._fitting[_key(live)]

    def claims(self, stored: Unit) -> int:
        """How many layers of the model a layer of the checkpoint fits."""
        return self._claims[_key(stored)]


def fit(stored: Unit, live: Unit) -> dict[str, str] | None:
    """Stored name → live name of the weights of two layers; None if they do not fit."""
    if stored.kind and live.kind and stored.kind != live.kind:
        return None
    if _same_list(stored, live):  # the plan goes by the index
        return {e.name: live.path + e.name[len(stored.path) :] for e in stored.listed}
    rest = dict(live.values)
    found: dict[str, str] = {}
    left = _used(stored)
    if len(left) != len(rest):
        return None
    if all(map(_INDEX.search, left)):  # as above; in a cell, say
        same = stored.sizes == live.sizes
        return {e.name: f"{live.path}/{word}" for word, e in left.items()} if same else None
    for word in left.keys() & rest.keys():
        if _values_fit(left[word], rest[word], live):
            found[left.pop(word).name] = rest.pop(word).name
    for word, entry in list(left.items()):
        fits = [
            other
            for other, new in rest.items()
            if _values_fit(entry, new, live) and means(last_word(word), last_word(other))
        ]
        if len(fits) == 1:
            found[entry.name] = rest.pop(fits[0]).name
            del left[word]
    return None if left else found


def _alike(units: Iterable[Unit]) -> dict[object, list[Unit]]:
    groups: dict[object, list[Unit]] = {}
    for unit in units:
        groups.setdefault(_key(unit), []).append(unit)
    return groups


def _key(unit: Unit) -> object:
    """The same for layers that fit the same layers."""
    shapes = sorted((word, entry.shape or ()) for word, entry in unit.values.items())
    return unit.kind, tuple(shapes), tuple(entry.shape for entry in unit.listed)


def sizes_of(unit: Unit) -> object:
    """How many numbers each of its weights has; equal for layers that fit."""
    return tuple(sorted(math.prod(entry.shape or ()) for entry in _used(unit).values()))


def _used(unit: Unit) -> dict[str, Entry]:
    """Without the values that only other libraries keep."""
    return {word: entry for word, entry in unit.values.items() if last_word(word) not in UNUSED}


def _same_list(stored: Unit, live: Unit) -> bool:
    old, new = ([entry.shape for entry in unit.listed] for unit in (stored, live))
    return bool(old) and old == new


def _values_fit(old: Entry, new: Entry, layer: Unit) -> bool:
    """Whether the shapes are the same but for the order of the axes, or for axes that are merged.

    Those of a convolution are not: libraries merge them in different orders.
    """
    if old.shape is None or new.shape is None:
        return False
    if sorted_shape(old.shape) == sorted_shape(new.shape):
        return True
    merged = merges(old.shape, new.shape) or merges(old.shape[::-1], new.shape)
    apart = len(old.shape) < len(new.shape) or last_word(old.name) in _KERAS
    return merged and apart and "conv" not in layer.kind
