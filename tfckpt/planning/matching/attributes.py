"""Attributes that differ only by a leading underscore.

Canonical names drop it: ``self._head`` is ``head``, so that a model may make an attribute private.
But if a class has both and loses one, the other would take its name. So if only one side has the
underscore, the attributes count as different, as in TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.core.inventory import Inventory


def other_attributes(stored: Inventory, live: Inventory) -> Mapping[str, str]:
    """Stored path → live path of the same attribute, if the paths differ.

    ``""`` if the model only has an attribute that differs by the underscore.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> head = Entry("model/head/kernel", Role.WEIGHT, "float32", (2,))
    >>> public = Inventory("", {head.name: head}, private={})
    >>> private = Inventory("", {head.name: head}, private={"model/head": "_head"})
    >>> other_attributes(private, public), other_attributes(public, private)
    ({'model/head': ''}, {'model/head': '', 'model/_head': 'model/head'})
    """
    if stored.private is None or live.private is None or stored.private == live.private:
        return {}
    paths = {"/".join(parts[:end]) for parts in _split(live) for end in range(len(parts) + 1)}
    live_paths = {}
    for path in stored.private.keys() - live.private.keys():
        if path in paths:
            literal = _literal(path, stored.private[path])
            live_paths[path] = literal if literal in paths else ""
    for path in live.private.keys() - stored.private.keys():
        live_paths[path] = ""
        live_paths[_literal(path, live.private[path])] = path
    return live_paths


def _literal(path: str, attribute: str) -> str:
    return f"{path.rpartition('/')[0]}/{attribute}"


def _split(inventory: Inventory) -> Iterator[list[str]]:
    return (name.split("/") for name in inventory.entries)
