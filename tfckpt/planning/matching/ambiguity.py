"""Checks whether a stored variable and a live one of the same name are of the same layer.

Keras numbers unnamed layers as it creates them, and restores functional and sequential models by
position. If a ``Dense`` is removed from the middle, every following one silently gets its
neighbor's weights, which have the right shape. So each container on the path of a value is aligned
(``alignment``), and the value is ambiguous if anything there says that its layer is another one. In
a list, the index is the layer's name; if the user named the layer, both sides must have that name
at the index.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.names import VARIABLE
from tfckpt.planning.matching.alignment import Pair
from tfckpt.planning.matching.evidence import which_hint
from tfckpt.planning.matching.sides import containers, given_before

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfckpt.core.inventory import Inventory, Shape
    from tfckpt.planning.matching.layers_by_position import Unnamed
    from tfckpt.planning.matching.rules import Renames

    _Variable = tuple[str, Shape | None]


class Layers:
    """Decides which equal automatic names in two inventories mean the same layer."""

    def __init__(
        self, stored: Inventory, live: Inventory, unnamed: Unnamed, renames: Renames
    ) -> None:
        self._sides = stored, live
        self._renames = renames
        self._unnamed = unnamed
        self._ambiguities: dict[tuple[str, str], tuple[str, str]] = {}

    @cached_property
    def _moved(self) -> MovedLayers:
        return MovedLayers(*self._sides)

    @cached_property
    def alike(self) -> bool:
        """Whether all layer sequences are the same on both sides.

        Then no variable with the same name on both sides is ambiguous.
        """
        stored, live = self._sides
        if stored.unordered or not self._unnamed.silent or stored.labels != live.labels:
            return False
        if stored.entries.keys() != live.entries.keys() and self._moved.exchanged:
            return False
        if self._by_attribute_on_one_side():
            return False
        common = (path for path in stored.sequences if live.sequences.get(path))
        return all(self._unnamed.alignments.of(Pair(path, path)).same for path in common)

    def _by_attribute_on_one_side(self) -> bool:
        """Whether a model's layers are named by attribute on one side, and listed on the other."""
        stored, live = self._sides
        sides = [(stored, live), (live, stored)] if stored.structured else [(stored, live)]
        for one, other in sides:
            listed = one.sequences.keys() - other.sequences.keys()
            below = (path for name in other.entries for path, _, _ in containers(name))
            if listed and not listed.isdisjoint(below):
                return True
        return False

    def ambiguity(self, stored: str, live: str) -> tuple[str, str]:
        """Why a stored variable may not be the live one, and a hint; ``""`` twice for no reason.

        Takes canonical names. A rule that renames a parent of a layer, or a variable in it, does
        not say that the layers are the same, so they are compared nevertheless. A rule that maps
        the layer itself, even to its own name, decides.
        """
        # all variables of a layer share the answer
        layers = None if self._unnamed.silent else self._unnamed.orders.layers(stored)
        layers = layers or self._holders(stored, live)
        if layers not in self._ambiguities:
            self._ambiguities[layers] = self._ambiguity(*layers)
        return self._ambiguities[layers]

    def _holders(self, stored: str, live: str) -> tuple[str, str]:
        """The layers of the variables; for variables in a list, the variables themselves."""
        old, new = stored.rpartition("/")[0], live.rpartition("/")[0]
        return (stored, live) if new in self._sides[1].lists else (old, new)

    def _ambiguity(self, stored: str, live: str) -> tuple[str, str]:
        for path, layer, rest in containers(stored):
            tail = f"/{layer}{rest}"
            if not live.endswith(tail):
                continue
            pair = Pair(path, live.removesuffix(tail))
            alignment = self._unnamed.alignments.of(pair)
            layers = f"{pair.stored}/{layer}", f"{pair.live}/{layer}"
            reason = alignment.conflicts.get(layer) or self._moved.conflict(*layers)
            if reason and not (pair.stored == pair.live and self._renames.keep(layers[0])):
                return reason, which_hint(alignment.kinds.get(layer, ""))
        return "", ""


class MovedLayers:
    """The names that layers were given, and the variables that they have, on both sides.

    The layers of one container are compared by their own names there (``alignment``). A layer may
    also move from a list to an attribute, or from one model to another. Its name says so only where
    no other layer has it: blocks are often built alike, with the same names. Layers of two classes
    that change places show it by their variables.
    """

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._sides = stored, live
        self._stored_names = _given_names(stored)
        self._live_names = {**given_before(stored, live), **_given_names(live)}
        self._stored_paths = _paths(self._stored_names)
        self._live_paths = _paths(self._live_names)

    def conflict(self, stored: str, live: str) -> str:
        """Why a stored layer and a live one, by their paths, are two; ``""`` for no reason.

        >>> from tfckpt.core.inventory import Inventory
        >>> stored = Inventory("", {}, labels={"model/one/a": "proj"})
        >>> live = Inventory("", {}, labels={"model/two/a": "proj"})
        >>> MovedLayers(stored, live).conflict("model/one/a", "model/one/a")
        "model/one/a is the layer 'proj' in the checkpoint, which is model/two/a in the model"
        """
        old, new = self._stored_names.get(stored, ""), self._live_names.get(live, "")
        unnamed = old == new or not (old and new)  # TensorFlow's files do not store all names
        if unnamed and stored == live and (other := self.exchanged.get(live)) is not None:
            return f"{live} has the variables that {other} has in the checkpoint"
        if old == new:
            return ""
        if old and self._stored_paths[old] and (path := self._live_paths.get(old)):
            return f"{live} is the layer {old!r} in the checkpoint, which is {path} in the model"
        if new and self._live_paths[new] and (path := self._stored_paths.get(new)):
            return f"{live} is the layer {new!r} in the model, which is {path} in the checkpoint"
        return ""

    @cached_property
    def exchanged(self) -> dict[str, str]:
        """Path of a live layer → another one beside it, if each has the variables of the other."""
        stored, live = (side.entries.keys() for side in self._sides)
        if stored <= live or live <= stored:
            return {}
        differ = {name.rpartition("/")[0] for name in stored ^ live}
        old, new = (_variables(side, differ) for side in self._sides)
        before = {(path.rpartition("/")[0], has): path for path, has in old.items()}
        found = {}
        for path, has in new.items():
            other = before.get((path.rpartition("/")[0], has))
            if other is not None and path in old and new.get(other) == old[path]:
                found[path] = other
        return found


def _variables(inventory: Inventory, paths: Collection[str]) -> dict[str, frozenset[_Variable]]:
    """Path → names and shapes of the weights directly below."""
    found: dict[str, set[_Variable]] = {}
    for entry in inventory.entries.values():
        path, _, name = entry.name.rpartition("/")
        if entry.role is Role.WEIGHT and path in paths:
            found.setdefault(path, set()).add((name, entry.shape))
    return {path: frozenset(each) for path, each in found.items()}


def _given_names(inventory: Inventory) -> dict[str, str]:
    """Path → name, of layers that an attribute, an index or a key names."""
    held = {
        f"{path}/{layer.name}": layer.label
        for path, layers in inventory.sequences.items()
        for layer in layers
        if layer.label and layer.kind != VARIABLE
    }
    return {**inventory.labels, **held}


def _paths(names: Mapping[str, str]) -> dict[str, str]:
    """Name → path of the layer that has it, ``""`` where several have it."""
    counts = Counter(names.values())
    return {name: path if counts[name] == 1 else "" for path, name in names.items()}
