"""Records of versions that left a key its slash: ``'a/b'`` and ``['a']['b']`` were ``a/b`` both.

The keys of TensorFlow tell them apart, as these write the slash ``.S``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfckpt.names import escaped
from tfckpt.stored.graphs.keys import edges
from tfckpt.stored.graphs.roots import Move

if TYPE_CHECKING:
    from tfckpt.records import Inventory

_OURS = "_tfckpt/"  # below which a key is the whole name
_REPEATED = re.compile(r"~\d+$")


def with_escapes(inventory: Inventory) -> Inventory:
    """The inventory with the names of now.

    >>> from tfckpt.records import Entry, Inventory, Role
    >>> keys = {"d/a/b": "d/a.Sb/.ATTRIBUTES/V", "d/a/b~2": "d/a/b/.ATTRIBUTES/V"}
    >>> old = [Entry(name, Role.STATE, "float32", (), key=key) for name, key in keys.items()]
    >>> list(with_escapes(Inventory("", {entry.name: entry for entry in old})).entries)
    ['d/a%2Fb', 'd/a/b']
    """
    heads: dict[str, str] = {}
    for name, entry in inventory.entries.items():
        if ".S" in entry.key and not entry.of and not entry.key.startswith(_OURS):
            new = name
            for edge in edges(entry.key):
                if "/" in edge and escaped(edge) not in name:
                    new = re.sub(f"(^|/){re.escape(edge)}(?=[/~]|$)", rf"\1{escaped(edge)}", new)
            if new != name:
                heads[name] = _REPEATED.sub("", new)
    for name in inventory.entries.keys() - heads.keys():
        if _REPEATED.sub("", name) in heads:
            heads[name] = _REPEATED.sub("", name)
    return Move(inventory, heads).done() if heads else inventory
