"""Entries of inventories: the weights of layers, and an optimizer's values beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tfckpt.core.inventory import SEQUENCE, Container, Entry, Layer, Role


def weights(**layers: Mapping[str, tuple[int, ...]]) -> list[Entry]:
    """Layers by path, `__` for a slash; of each the shapes of its variables."""
    return [
        Entry(f"{layer.replace('__', '/')}/{variable}", Role.WEIGHT, "float32", shape, 4)
        for layer, shapes in layers.items()
        for variable, shape in shapes.items()
    ]


def layer(text: str, **more: Any) -> Layer:
    """``dense_1?`` has an automatic name, ``head`` a given one, ``#2`` one that a file lacks."""
    if text.startswith("#"):
        return Layer(f"layer_with_weights-{text[1:]}", **more)
    name = text.rstrip("?*")
    if name == text:
        return Layer(name, **{"own": name, "given": True, **more})
    return Layer(name, **{"own": name, "auto": True, "cls": re.sub(r"_\d+$", "", name), **more})


def sequence(*layers: str | Layer) -> Container:
    """A functional or sequential model."""
    return Container(SEQUENCE, tuple(x if isinstance(x, Layer) else layer(x) for x in layers))


def slots(entries: Iterable[Entry], slot: str = "momentum") -> list[Entry]:
    return [
        e._replace(
            name=f"optimizer/{slot}/{e.name.removeprefix('model/')}",
            role=Role.SLOT,
            slot=slot,
            of=e.name,
        )
        for e in entries
    ]


OPTIMIZER = [
    Entry("optimizer/iterations", Role.ITERATIONS, "int64", (), 8),
    Entry("optimizer/learning_rate", Role.HYPERPARAMETER, "float32", (), 4),
]
