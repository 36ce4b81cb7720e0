"""What says that a layer that an attribute, an index or a key names is another one.

The layers there are compared by their own names within what holds them (``structure``). A layer may
also move from a list to an attribute, or from one model to another. Its name says so only where no
other layer has it: blocks are often built alike, with the same names. Layers of two classes that
change places show it by their variables.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.names import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfckpt.core.inventory import Inventory, Shape

    _Variable = tuple[str, Shape | None]


class MovedLayers:
    """The names that layers were given, and the variables that they have, on both sides."""

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._sides = stored, live
        self._stored_names, self._live_names = _given_names(stored), _given_names(live)
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
