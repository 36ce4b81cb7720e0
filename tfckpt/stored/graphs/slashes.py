"""Names in old commit records, in which the dict entries ``'a/b'`` and ``['a']['b']`` were ``a/b``.

Today a slash in a dict key is ``%2F``. TensorFlow's keys distinguish the two, since they write the
slash as ``.S``. So do layers in a dict: a layer's name has a slash only from its key. Shorter paths
were named first, so a name with a number appended belongs to ``['a']['b']``.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfckpt.core.inventory import rebased
from tfckpt.core.names import escaped
from tfckpt.core.text import without_repeat
from tfckpt.stored.graphs.keys import EXTRA, edges
from tfckpt.stored.graphs.rename_roots import Move

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.core.inventory import Entry, Inventory, Layer


def with_escapes(inventory: Inventory) -> Inventory:
    """The inventory with slashes in dict keys escaped as in today's names.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> keys = {"d/a/b": "d/a.Sb/.ATTRIBUTES/V", "d/a/b~2": "d/a/b/.ATTRIBUTES/V"}
    >>> old = [Entry(name, Role.STATE, "float32", (), key=key) for name, key in keys.items()]
    >>> list(with_escapes(Inventory("", {entry.name: entry for entry in old})).entries)
    ['d/a%2Fb', 'd/a/b']
    """
    layers = _layers(inventory)
    keys = {
        layer.name
        for members in inventory.sequences.values()
        for layer in members
        if "/" in layer.name
    }
    heads = dict(layers)
    for name, entry in inventory.entries.items():
        if new := "" if entry.of else _by_key(entry):
            heads[name] = without_repeat(new)
        elif not entry.of:
            heads[name] = name if _of_edges(entry, keys) else rebased(name, layers) or name
    for name in inventory.entries.keys() & heads.keys():
        first = without_repeat(name)
        if heads[name] == name and heads.get(first, first) != first:
            heads[name] = first
    if all(old == new for old, new in heads.items()):
        return inventory
    sequences = {
        path: tuple(map(_renamed, members)) for path, members in inventory.sequences.items()
    }
    return Move(dataclasses.replace(inventory, sequences=sequences), heads).done()


def _layers(inventory: Inventory) -> dict[str, str]:
    """Path of each layer whose name has a slash → its escaped path."""
    heads: dict[str, str] = {}
    for path in sorted(inventory.sequences, key=len):
        for layer in inventory.sequences[path]:
            if "/" in layer.name:
                new = rebased(path, heads) or path
                heads[f"{path}/{layer.name}"] = f"{new}/{escaped(layer.name)}"
    return heads


def _renamed(layer: Layer) -> Layer:
    if "/" not in layer.name:
        return layer
    return dataclasses.replace(layer, name=escaped(layer.name))


def _by_key(entry: Entry) -> str:
    """The escaped name of a value with a slash in an edge of its key, else ""."""
    new = entry.name
    if ".S" in entry.key and not entry.key.startswith(f"{EXTRA}/"):
        for edge in edges(entry.key):
            if "/" in edge and escaped(edge) not in entry.name:
                parts = re.split(f"(?<![^/]){re.escape(edge)}(?=[/~]|$)", new)
                new = escaped(edge).join(parts)
    return "" if new == entry.name else new


def _of_edges(entry: Entry, keys: Iterable[str]) -> bool:
    """Whether a value is at ``['a']['b']``, by its own key or by the number after its name."""
    return without_repeat(entry.name) != entry.name or any(f"/{key}/" in entry.key for key in keys)
