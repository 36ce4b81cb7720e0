"""What the order of layers says about which one is which.

Layers that are matched already, and those of which there is one of their shapes on either side,
hold the two orders together. Between two of these, layers are the same one by one if both sides
have equally many of the same shapes; a layer whose shapes differ there is another one. Where a side
has one layer more, nothing between is paired.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

from tfckpt.planning.matching.align import creation_order
from tfckpt.planning.suggestion.units import ATTRIBUTES, CLASS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Container, Inventory, Layer
    from tfckpt.planning.suggestion.units import Sizes, Unit

    Fit = Callable[[Unit, Unit], Mapping[str, str] | None]


def by_order(
    stored: Sequence[Unit],
    live: Sequence[Unit],
    matched: Mapping[str, str],
    fit: Fit,
    suspects: Collection[str],
) -> dict[str, str]:
    """Live path → stored path, for layers that are not matched yet."""
    found: dict[str, str] = {}
    whose = {entry.name: unit.path for unit in stored for entry in unit.values.values()}
    back = {name: whose[old] for old, name in matched.items() if old in whose}
    anchors = {
        unit.path: back[entry.name]
        for unit in live
        for entry in unit.values.values()
        if entry.name in back
    }
    for old, new in _sequences(stored, live):
        found |= _Order(old, new, anchors, fit, suspects).pairs()
    return found


def on_branches(stored: Inventory, live: Inventory, units: Sequence[Unit]) -> set[str]:
    """The live layers that may have come in another order before others were added or removed.

    A record does not say how many layers there were. Those that come in the same order in which
    they were created, in both, did not.
    """
    found: set[str] = set()
    sizes = {unit.path: unit.sizes for unit in units}
    for path, held in live.containers.items():
        old = stored.containers.get(path, held._replace(sizes=()))
        if old.sizes and {*old.sizes} & {*held.sizes}:
            continue
        groups: dict[Sizes | None, list[Layer]] = {}
        for layer in held.layers:
            groups.setdefault(sizes.get(f"{path}/{layer.place}"), []).append(layer)
        for group in groups.values():
            apart = [layer for layer in group if layer.beside]
            if apart and not _created_alike({layer.cls for layer in group}, held, stored):
                found |= {f"{path}/{layer.place}" for layer in apart}
    return found


def _created_alike(classes: Collection[str], held: Container, stored: Inventory) -> bool:
    """Whether the one stored container with as many layers of that class was created alike."""
    if len(classes) != 1:
        return False
    (cls,) = classes
    new = creation_order(cls, held.layers)
    orders = [creation_order(cls, each.layers) for each in stored.containers.values()]
    return bool(new) and [each for each in orders if len(each) == len(new)] == [new]


def _sequences(
    stored: Sequence[Unit], live: Sequence[Unit]
) -> Iterator[tuple[list[Unit], list[Unit]]]:
    """The ordered layers below each root; by class, where the checkpoint has no other order."""
    old, new = ({unit.root for unit in side if unit.at} for side in (stored, live))
    pairs = [(root, root) for root in sorted(old & new)]
    if len(old - new) == len(new - old) == 1:
        pairs += zip(old - new, new - old, strict=True)
    for stored_root, live_root in pairs:
        ones = [unit for unit in stored if unit.at and unit.root == stored_root]
        others = [unit for unit in live if unit.at and unit.root == live_root]
        if all(unit.order != CLASS for unit in ones):
            yield ones, others
            continue
        yield from _by_class(ones, others)


def _by_class(
    stored: Sequence[Unit], live: Sequence[Unit]
) -> Iterator[tuple[list[Unit], list[Unit]]]:
    """The layers of a class in each layer of the classes above it, if both sides have as many.

    Where a layer of another class stands among them, the file does not say.
    """
    old, new = _below_each(stored), _below_each(live)
    for classes in sorted({unit.classes for unit in stored}):
        same = [side.get(classes[:-1], {}) for side in (old, new)]
        if len(same[0]) == len(same[1]):
            for one, other in zip(*(each.values() for each in same), strict=True):
                yield one.get(classes, []), other.get(classes, [])


def _below_each(units: Sequence[Unit]) -> dict[tuple[str, ...], dict[Any, dict[Any, list[Unit]]]]:
    """Classes → each layer of these, by its position → the layers in it, by their classes."""
    found: dict[tuple[str, ...], dict[Any, dict[Any, list[Unit]]]] = {}
    for unit in units:
        for level in range(len(unit.classes)):
            inside = found.setdefault(unit.classes[:level], {}).setdefault(unit.at[:level], {})
        inside.setdefault(unit.classes, []).append(unit)
    return found


class _Order:
    def __init__(
        self,
        stored: list[Unit],
        live: list[Unit],
        anchors: Mapping[str, str],
        fit: Fit,
        suspects: Collection[str],
    ) -> None:
        self._stored, self._live = stored, live
        at = {unit.path: index for index, unit in enumerate(stored)}
        self._anchors = [
            (at[anchors[unit.path]], index)
            for index, unit in enumerate(live)
            if anchors.get(unit.path) in at
        ]
        self._fit = fit
        self._suspects = suspects
        self._weak = any(unit.order == ATTRIBUTES for unit in (*stored, *live))

    def pairs(self) -> dict[str, str]:
        """Live path → stored path."""
        alone = _lone(self._stored, self._live)
        joined = sorted({*self._anchors, *alone})
        if not _rising(joined):
            joined = sorted(self._anchors)
            alone = []
        if not _rising(joined):
            return {}
        found = {}
        for i, j in alone:
            if (i, j) not in self._anchors and self._fit(self._stored[i], self._live[j]):
                found[self._live[j].path] = self._stored[i].path
        ends = [(-1, -1), *joined, (len(self._stored), len(self._live))]
        for (i, j), (next_i, next_j) in itertools.pairwise(ends):
            between = self._stored[i + 1 : next_i], self._live[j + 1 : next_j]
            found |= {new.path: old.path for old, new in self._between(*between)}
        return found

    def _between(self, old: Sequence[Unit], new: Sequence[Unit]) -> Iterator[tuple[Unit, Unit]]:
        if len(old) != len(new):
            return
        counts = [Counter(unit.sizes for unit in side) for side in (old, new)]
        for one, other in zip(old, new, strict=True):
            if self._fit(one, other) is None:
                continue
            only = all(count[one.sizes] == 1 for count in counts)
            says_nothing = one.automatic or other.automatic
            if only or (says_nothing and not self._weak and other.path not in self._suspects):
                yield one, other


def _lone(stored: Sequence[Unit], live: Sequence[Unit]) -> list[tuple[int, int]]:
    """The indices of layers that are the only ones of their shapes on both sides."""
    sides = [{unit.sizes: index for index, unit in enumerate(side)} for side in (stored, live)]
    counts = [Counter(unit.sizes for unit in side) for side in (stored, live)]
    return [
        (sides[0][sizes], sides[1][sizes])
        for sizes in sides[0].keys() & sides[1].keys()
        if counts[0][sizes] == counts[1][sizes] == 1
    ]


def _rising(pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether both indices of each pair are greater than those of the one before."""
    return all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(pairs))
