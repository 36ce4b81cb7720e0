"""Entries of inventories: the weights of layers, and an optimizer's values beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.inventory import Entry, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def weights(**layers: Mapping[str, tuple[int, ...]]) -> list[Entry]:
    """Layers by path, `__` for a slash; of each the shapes of its variables."""
    return [
        Entry(f"{layer.replace('__', '/')}/{variable}", Role.WEIGHT, "float32", shape, 4)
        for layer, shapes in layers.items()
        for variable, shape in shapes.items()
    ]


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
