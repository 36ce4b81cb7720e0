"""Renumbers automatic layer names of a file without layer order to match the live model.

TF1's keys number layers in order of creation, as Keras does. A canonical name, though, counts a
layer's position in a functional model, where the order may differ from that of creation. If both
sides have the same number of layers of a class in a scope, they correspond in order of creation.
If the live model has attributes there instead of a layer sequence, ``self.dense_2``, the number in
the key is part of a name that the user chose.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.core.inventory import rebased
from tfckpt.planning.matching.alignment import Alignments, Pair
from tfckpt.stored.graphs.rename_roots import Move

if TYPE_CHECKING:
    from tfckpt.core.inventory import Inventory, Layer


def renumbered_like(live: Inventory, stored: Inventory) -> Inventory:
    """The stored inventory, its automatic layers renamed to those of the live model.

    >>> from tfckpt.core.inventory import Entry, Inventory, Layer, Role
    >>> def inventory(*layers, **more):
    ...     entries = [Entry(f"model/{x.name}/w", Role.WEIGHT, "float32", ()) for x in layers]
    ...     return Inventory("", {e.name: e for e in entries}, {"model": layers}, **more)
    >>> stored = inventory(
    ...     Layer("dense", "dense"), Layer("dense_1", "dense", number=1),
    ...     unordered=frozenset({"model"}),
    ... )
    >>> live = inventory(Layer("dense", "dense", number=7), Layer("dense_1", "dense", number=6))
    >>> list(renumbered_like(live, stored).entries)
    ['model/dense_1/w', 'model/dense/w']
    """
    scopes = {name.rpartition("/")[0] for name in live.entries} if stored.unordered else set()
    scopes |= {"/".join(scope.split("/")[:end]) for scope in scopes for end in range(1, 64)}
    alignments = Alignments(stored, live)
    heads: dict[str, str] = {}
    for path in sorted(stored.unordered & stored.sequences.keys()):
        above = rebased(path, heads) or path
        layers = stored.sequences[path]
        pairs = alignments.of(Pair(path, above)).created_alike
        chosen = [layer for layer in layers if layer.own_name != layer.name]
        if above not in live.sequences and any(
            f"{above}/{layer.own_name}" in scopes for layer in chosen
        ):
            pairs = {layer.name: layer.own_name for layer in layers}
        heads.update(
            {f"{path}/{old}": f"{above}/{new}" for old, new in pairs.items() if old != new}
        )
    if not heads:
        return stored
    sequences = {
        path: tuple(_renamed(layer, heads.get(f"{path}/{layer.name}")) for layer in layers)
        for path, layers in stored.sequences.items()
    }
    return Move(dataclasses.replace(stored, sequences=sequences), heads).done()


def _renamed(layer: Layer, name: str | None) -> Layer:
    return layer if name is None else dataclasses.replace(layer, name=name.rpartition("/")[2])
