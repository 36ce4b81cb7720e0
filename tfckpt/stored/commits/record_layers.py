"""The layers of a commit record: their names, how they were created, and their other traits.

They are stored in three fields because older readers know only the first, or the first two.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Layer, Traits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfckpt.errors import DamagedCheckpointError

_SHORT, _LONG = [str, str], [str, str, str, bool]
_TRAITS = [str, str, str, bool]


def plain(sequences: Mapping[str, tuple[Layer, ...]]) -> dict[str, dict[str, list[Any]]]:
    """The three fields as plain JSON types."""
    return {
        "stacks": {path: [_short(layer) for layer in layers] for path, layers in sequences.items()},
        "made": {
            path: [[layer.kind, layer.number] for layer in layers]
            for path, layers in sequences.items()
        },
        "traits": {
            path: [[*layer.traits] for layer in layers]
            for path, layers in sequences.items()
            if any(layer.traits != Traits() for layer in layers)
        },
    }


def _short(layer: Layer) -> list[str | bool]:
    """The two fields that most layers need, or all four."""
    usual = not layer.label and layer.named
    return [layer.name, layer.base, *(() if usual else (layer.label, layer.named))]


def parse(
    sequences: Mapping[str, list[Any]],
    made: Mapping[str, list[Any]],
    traits: Mapping[str, list[Any]],
    damaged: Callable[[str], DamagedCheckpointError],
) -> dict[str, tuple[Layer, ...]]:
    """The layers that :func:`plain` wrote; ``damaged`` makes the error for an invalid field."""
    result = {}
    for path, items in sequences.items():
        if any(_types(item) not in (_SHORT, _LONG) for item in items):
            raise damaged("'stacks' contains an invalid layer")
        layers = [Layer(*item) for item in items]
        if (stored := made.get(path)) is not None:
            if len(stored) != len(layers) or any(_types(item) != [str, int] for item in stored):
                raise damaged(f"'made' does not match 'stacks' for {path!r}")
            pairs = zip(layers, stored, strict=True)
            layers = [dataclasses.replace(layer, kind=kind, number=n) for layer, (kind, n) in pairs]
        if (stored := traits.get(path)) is not None:
            if len(stored) != len(layers) or any(_types(item) != _TRAITS for item in stored):
                raise damaged(f"'traits' does not match 'stacks' for {path!r}")
            both = zip(layers, stored, strict=True)
            layers = [dataclasses.replace(layer, traits=Traits(*item)) for layer, item in both]
        result[path] = tuple(layers)
    return result


def _types(item: Any) -> list[type]:
    return [type(part) for part in item] if type(item) is list else []
