"""Which attributes are not the ones that their names, without underscores, say.

``self._head`` is ``head`` in names, so that a model may make an attribute private; but a class that
has both and loses one leaves the other under the name of the first. So where one side has an
underscore and the other has none, the attributes are two, as they are to TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.core.inventory import Inventory


def other_attributes(stored: Inventory, live: Inventory) -> Mapping[str, str]:
    """Path in the checkpoint → that of the same attribute in the model, where it is another path.

    ``""`` where the model has no such attribute, but one with or without an underscore.

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
    found = {}
    for path in stored.private.keys() - live.private.keys():
        if path in paths:
            literal = _literal(path, stored.private[path])
            found[path] = literal if literal in paths else ""
    for path in live.private.keys() - stored.private.keys():
        found[path] = ""
        found[_literal(path, live.private[path])] = path
    return found


def _literal(path: str, attribute: str) -> str:
    return f"{path.rpartition('/')[0]}/{attribute}"


def _split(inventory: Inventory) -> Iterator[list[str]]:
    return (name.split("/") for name in inventory.entries)
