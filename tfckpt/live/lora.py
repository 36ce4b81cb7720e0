"""Files of LoRA factors alone: ``.lora.h5``, as KerasHub's ``Backbone.save_lora_weights`` writes.

A file has ``lora/vars/rank`` and, for each layer, ``lora/3/vars/lora_kernel_a`` and ``…_b``. The
number is the layer's index among the layers with weights that Keras lists below the backbone, so
the file is read beside a model: the backbone is what has factors at just the file's indices.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.live.variables import is_variable, raw

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.live.inventory import Live
    from tfckpt.stored.formats.open import StoredCheckpoint

_FACTOR = re.compile(r"lora/(\d{1,9})/vars/(lora_kernel_[ab])")
_RANK = "lora/vars/rank"


def is_lora(stored: Inventory) -> bool:
    """Whether it holds the factors of layers by their index, and nothing else."""
    entries = {entry.key: entry for entry in stored.entries.values()}
    rank = entries.pop(_RANK, None)
    known = rank is not None and not rank.shape and rank.dtype.startswith("int")
    return known and bool(entries) and all(map(_FACTOR.fullmatch, entries))


def factors(stored: StoredCheckpoint, live: Live) -> tuple[Inventory, Inventory]:
    """The factors of a file by their names in the model, and those of the model.

    Raises:
        UnsupportedCheckpointError: no model has just these factors, or several have.
    """
    found: dict[str, Entry] = {entry.key: entry for entry in stored.inventory.entries.values()}
    rank = int(stored.values.read(found.pop(_RANK).key))
    names = {id(raw(value)): name for name, value in live.variables.items() if is_variable(value)}
    fitting, others = list[dict[str, str]](), list[str]()
    for path, layer in live.layers.items():
        own = _named(layer, names)
        if own.keys() == found.keys():
            fitting += [own] if own not in fitting else []
        elif own and path in live.models:
            others.append(f"{path} has them in {_layers(own)}")
    entries = live.inventory.entries
    ranks = {entries[name].shape for own in fitting for key, name in own.items() if key[-1] == "b"}
    if len(fitting) != 1 or {(shape or (0,))[0] for shape in ranks} != {rank}:
        has = "; ".join(others) or "no model here has any"
        if fitting:
            has = "those of the model have another rank" if len(fitting) == 1 else "several fit"
        raise UnsupportedCheckpointError(
            f"holds LoRA factors of rank {rank} for {_layers(found)}, but {has}",
            path=stored.prefix,
            hint=f"restore it into the backbone that it was saved from, after enable_lora({rank})",
        )
    (own,) = fitting
    theirs = {name: found[key]._replace(name=name) for key, name in own.items()}
    sides = ({name: side[name] for name in own.values()} for side in (theirs, entries))
    old, new = (dataclasses.replace(live.inventory, entries=side) for side in sides)
    return dataclasses.replace(old, complete=False), new


def _layers(factors: Collection[str]) -> str:
    count = len(factors) // 2
    return f"{count} layer{'s' * (count != 1)}"


def _named(backbone: Any, names: Mapping[int, str]) -> dict[str, str]:
    """The key that each factor below a layer has in a file of it → the factor's name."""
    below = backbone._flatten_layers(include_self=False)
    return {
        f"lora/{index}/vars/{factor}": names[id(raw(value))]
        for index, layer in enumerate(layer for layer in below if layer.weights)
        for factor in ("lora_kernel_a", "lora_kernel_b")
        if is_variable(value := getattr(layer, factor, None))
    }
