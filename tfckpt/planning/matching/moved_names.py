"""A name that the user gave to a layer, and that a layer elsewhere has on the other side.

Layers that attributes, indices or keys name are compared by their own names within what holds them
(``structure``). A layer may also move from a list to an attribute, or from one model to another.
Its name says so only where no other layer has it: blocks are often built alike, with the same
names.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfckpt.core.names import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.core.inventory import Inventory


class MovedNames:
    """The names that layers were given, on both sides."""

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._stored_names, self._live_names = _given_names(stored), _given_names(live)
        self._stored_paths = _paths(self._stored_names)
        self._live_paths = _paths(self._live_names)

    def conflict(self, stored: str, live: str) -> str:
        """Why a stored layer and a live one, by their paths, are two; ``""`` for no reason.

        >>> from tfckpt.core.inventory import Inventory
        >>> stored = Inventory("", {}, labels={"model/one/a": "proj"})
        >>> live = Inventory("", {}, labels={"model/two/a": "proj"})
        >>> MovedNames(stored, live).conflict("model/one/a", "model/one/a")
        "model/one/a is the layer 'proj' in the checkpoint, which is model/two/a in the model"
        """
        old, new = self._stored_names.get(stored, ""), self._live_names.get(live, "")
        if old == new:
            return ""
        if old and self._stored_paths[old] and (path := self._live_paths.get(old)):
            return f"{live} is the layer {old!r} in the checkpoint, which is {path} in the model"
        if new and self._live_paths[new] and (path := self._stored_paths.get(new)):
            return f"{live} is the layer {new!r} in the model, which is {path} in the checkpoint"
        return ""


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
