"""Automatic layer names of a file without order, as the live side numbers the same layers.

TF1's keys number layers as they were made, and so does Keras; but in a functional model a layer's
canonical name counts its place, and two layers may stand in another order than they were made in.
Where both sides have as many layers of a class in one scope, those made first are the same, and so
on. And where the live side has no layers there but attributes, ``self.dense_2``, the number in a
key is part of the name that somebody chose.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.core.inventory import rebased
from tfckpt.stored.graphs.rename_roots import Move

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.core.inventory import Inventory, Layer


def numbered_as(live: Inventory, stored: Inventory) -> Inventory:
    """The stored inventory, its automatic layers under the names of the live ones.

    >>> from tfckpt.core.inventory import Entry, Inventory, Layer, Role
    >>> def inventory(*layers, **more):
    ...     entries = [Entry(f"model/{one.name}/w", Role.WEIGHT, "float32", ()) for one in layers]
    ...     return Inventory("", {e.name: e for e in entries}, {"model": layers}, **more)
    >>> stored = inventory(
    ...     Layer("dense", "dense"), Layer("dense_1", "dense", number=1),
    ...     unordered=frozenset({"model"}),
    ... )
    >>> live = inventory(Layer("dense", "dense", number=7), Layer("dense_1", "dense", number=6))
    >>> list(numbered_as(live, stored).entries)
    ['model/dense_1/w', 'model/dense/w']
    """
    scopes = {name.rpartition("/")[0] for name in live.entries} if stored.unordered else set()
    scopes |= {"/".join(scope.split("/")[:end]) for scope in scopes for end in range(1, 64)}
    heads: dict[str, str] = {}
    for path in sorted(stored.unordered & stored.sequences.keys()):
        above = rebased(path, heads) or path
        here = live.sequences.get(above)
        layers = stored.sequences[path]
        pairs = dict(_as_made(layers, here) if here is not None else ())
        chosen = [layer for layer in layers if own_name(layer) != layer.name]
        if here is None and any(f"{above}/{own_name(layer)}" in scopes for layer in chosen):
            pairs = {layer.name: own_name(layer) for layer in layers}
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


def own_name(layer: Layer) -> str:
    """A layer's name as it was, with the number that it had.

    >>> from tfckpt.core.inventory import Layer
    >>> own_name(Layer("dense_1", "dense", number=4))
    'dense_4'
    """
    if layer.number < 0:
        return layer.name
    return f"{layer.base}_{layer.number}" if layer.number else layer.base


def in_order_of_making(layers: Sequence[Layer], base: str) -> bool:
    """Whether the layers of a class stand as they were made."""
    made = [layer.number for layer in layers if layer.base == base]
    return made == sorted(made)


def _as_made(stored: Sequence[Layer], live: Sequence[Layer]) -> Iterator[tuple[str, str]]:
    for base in {layer.base for layer in stored if layer.base}:
        there = sorted((x for x in stored if x.base == base), key=lambda layer: layer.number)
        here = sorted((x for x in live if x.base == base), key=lambda layer: layer.number)
        told = (len({layer.number for layer in side}) for side in (there, here))
        if len(there) == len(here) and all(count == len(here) for count in told):
            yield from ((old.name, new.name) for old, new in zip(there, here, strict=True))


def _renamed(layer: Layer, name: str | None) -> Layer:
    return layer if name is None else dataclasses.replace(layer, name=name.rpartition("/")[2])
