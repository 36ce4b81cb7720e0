"""A checkpoint and a model side by side: what each has below a path, and what rules map of it."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import Counter
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Layer, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Inventory, Shape
    from tfckpt.planning.matching.rules import Renames


def containers(name: str) -> Iterator[tuple[str, str, str]]:
    """Each path above a value, from the top, with the component below it and the rest.

    >>> list(containers("model/a/kernel"))
    [('model', 'a', '/kernel'), ('model/a', 'kernel', '')]
    """
    end = name.find("/")
    while end != -1:
        below = name.find("/", end + 1)
        stop = len(name) if below == -1 else below
        yield name[:end], name[end + 1 : stop], name[stop:]
        end = below


def names_below(path: str, names: Sequence[str]) -> Iterator[str]:
    """Those of sorted names that are below a path.

    >>> list(names_below("model/a", ["model/a", "model/a/bias", "model/a/kernel", "model/b"]))
    ['model/a/bias', 'model/a/kernel']
    """
    start = f"{path}/"
    following = (names[at] for at in range(bisect_left(names, start), len(names)))
    return takewhile(lambda name: name.startswith(start), following)


def component(name: str, path: str) -> str:
    """The component of a name after a path; ``""`` if the name is not below the path."""
    return name[len(path) + 1 :].partition("/")[0] if name.startswith(f"{path}/") else ""


def given_before(stored: Inventory, live: Inventory) -> dict[str, str]:
    """Live layer → its automatic name, if a user gave that name to a stored layer.

    A given name looks automatic once Keras has counted up to its number.
    """
    if not (stored.complete and live.automatic):  # other files may have automatic labels
        return {}
    listed = (layer.label for layers in stored.sequences.values() for layer in layers)
    given = {*stored.labels.values(), *listed}
    return {path: name for path, name in live.automatic.items() if name in given}


class Sides:
    """What is known of all containers; ``live`` is for the model, the checkpoint otherwise."""

    def __init__(self, stored: Inventory, live: Inventory, renames: Renames | None) -> None:
        self._sides = stored, live
        self._renames = renames

    @cached_property
    def labels(self) -> tuple[Mapping[str, Sequence[Layer]], ...]:
        """For each side, path → the layers in its attributes, with the names that users gave."""
        stored, live = self._sides
        return _by_parent(stored.labels), _by_parent({**self._given_before, **live.labels})

    def labeled(self, path: str, layers: Sequence[Layer]) -> Sequence[Layer]:
        """The live layers of a list or dict, with the names that users gave."""
        if not self._given_before:
            return layers
        before = ((self._given_before.get(f"{path}/{layer.name}"), layer) for layer in layers)
        return [dataclasses.replace(x, label=name) if name else x for name, x in before]

    @cached_property
    def _given_before(self) -> dict[str, str]:
        return given_before(*self._sides)

    @cached_property
    def shapes(self) -> tuple[Mapping[str, Counter[Shape | None]], ...]:
        """For each side, path of a layer → how many weights of each shape are below it."""
        return tuple(_shapes_below(side) for side in self._sides)

    @cached_property
    def _names(self) -> tuple[list[str], list[str]]:
        stored, live = (sorted(side.entries) for side in self._sides)
        return stored, live

    def components(self, path: str, *, live: bool = False) -> set[str]:
        """The components below a path."""
        return {component(name, path) for name in names_below(path, self._names[live])}

    def ruled(self, path: str, *, live: bool = False) -> bool:
        """Whether a rule maps a layer as a whole."""
        return self._renames is not None and self._renames.take(path, live=live)

    def attributes(self, path: str, *, live: bool = False) -> list[str]:
        """The components below a path, without those that a rule maps."""
        found = sorted(self.components(path, live=live))
        return [each for each in found if not self.ruled(f"{path}/{each}", live=live)]

    def weights(self, path: str, *, live: bool) -> frozenset[tuple[str, Shape | None]]:
        """Names and shapes of the weights below a path."""
        entries = (self._sides[live].entries[each] for each in names_below(path, self._names[live]))
        return frozenset(
            (entry.name[len(path) :], entry.shape) for entry in entries if entry.role is Role.WEIGHT
        )


def _by_parent(labels: Mapping[str, str]) -> Mapping[str, Sequence[Layer]]:
    layers: dict[str, list[Layer]] = {}
    for path in sorted(labels):
        parent, _, attribute = path.rpartition("/")
        layers.setdefault(parent, []).append(Layer(attribute, label=labels[path]))
    return layers


def _shapes_below(inventory: Inventory) -> dict[str, Counter[Shape | None]]:
    layers = {
        f"{path}/{layer.name}" for path, all_ in inventory.sequences.items() for layer in all_
    }
    shapes: dict[str, Counter[Shape | None]] = {}
    for name, entry in inventory.entries.items():
        if entry.role is Role.WEIGHT:
            for path, below, rest in containers(name):
                if rest and (layer := f"{path}/{below}") in layers:
                    shapes.setdefault(layer, Counter())[entry.shape] += 1
    return shapes
