"""Which seed of a checkpoint is which seed of a model, where layers have other names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.inventory import rebased
from tfckpt.planning.matching.seeds import layer_of, seed_of
from tfckpt.planning.suggestion.units import holder_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


def paired_seeds(
    stored: Collection[str], live: Collection[str], weights: Mapping[str, str]
) -> dict[str, str]:
    """Stored seed → live seed: of the layer that has the weights, or else of the same name.

    The name of a layer counts if no other layer has it; where one of each is left, it is that.

    >>> weights = {"model/a/cell/kernel": "model/b/cell/kernel"}
    >>> paired_seeds({"seed/a/cell", "seed/c/drop"}, {"seed/b/cell", "seed/drop"}, weights)
    {'seed/a/cell': 'seed/b/cell', 'seed/c/drop': 'seed/drop'}
    """
    layers = _layers(weights)
    moved = ((seed, rebased(layer_of(seed), layers)) for seed in sorted(stored))
    found = {seed: name for seed, layer in moved if layer and (name := seed_of(layer)) in live}
    rest: dict[str, tuple[list[str], list[str]]] = {}
    for side, seeds in enumerate(({*stored} - found.keys(), {*live} - {*found.values()})):
        for seed in seeds:
            rest.setdefault(seed.rpartition("/")[2], ([], []))[side].append(seed)
    found |= {old[0]: new[0] for old, new in rest.values() if len(old) == len(new) == 1}
    left = sorted({*stored} - found.keys()), sorted({*live} - {*found.values()})
    return found | (dict(zip(*left, strict=True)) if len(left[0]) == len(left[1]) == 1 else {})


def _layers(weights: Mapping[str, str]) -> dict[str, str]:
    """Stored path → live path, of layers and of what they are in, if all of it went there."""
    found: dict[str, set[str]] = {}
    for pair in {(holder_of(old), holder_of(new)) for old, new in weights.items()}:
        for old, new in _with_parents(*pair):
            found.setdefault(old, set()).add(new)
    return {old: next(iter(new)) for old, new in found.items() if len(new) == 1}


def _with_parents(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Both paths, and those of their parents as long as the paths end alike."""
    yield old, new
    while old.rpartition("/")[2] == new.rpartition("/")[2] and "/" in old and "/" in new:
        old, new = old.rpartition("/")[0], new.rpartition("/")[0]
        yield old, new
