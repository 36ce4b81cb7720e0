"""Recomputes what layers derive from their variables, after a restore.

Normalization computes with constants derived from its mean and variance. Keras recomputes them when
it loads weights: in ``finalize_state`` of its preprocessing layers
(keras/src/layers/preprocessing/normalization.py; of any layer in
tf_keras/src/engine/base_layer.py), and in ``load_own_variables``, which user layers override for
that purpose (keras/src/layers/layer.py). Some also change variables, as DINOv2 of KerasHub its
position embeddings; these get the restored values again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.live.variables.distributed import parts
from tfckpt.live.variables.variables import is_variable, raw

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.live.variables.flavors import Flavor


def derives(layer: Any, flavor: Flavor) -> bool:
    """Whether a layer caches values derived from its variables."""
    return _finalizes(layer, flavor) or _loads_itself(layer)


def derive_again(layers: Iterable[Any], models: Iterable[Any]) -> None:
    """Have layers recompute derived values, and models drop functions traced with old ones."""
    found = False
    for layer in layers:
        found = True
        _derive_again(layer)
    if found:
        for model in models:
            model.predict_function = model.test_function = None


def _derive_again(layer: Any) -> None:
    """Recompute; a layer may fail to load what it saves, as one that reads an older format."""
    held = [part for v in filter(is_variable, layer.variables) for part in parts(raw(v))]
    restored = [part.read_value() for part in held]
    try:
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()
        if not _loads_itself(layer):
            return
        values: dict[str, Any] = {}
        layer.save_own_variables(values)
        layer.load_own_variables(values)
    except Exception as error:
        logging.warning(
            "the variables of the layer %r were restored, but what it computes from them may be "
            "out of date, because its own loading raised %s: %s",
            layer.name,
            type(error).__name__,
            error,
        )
    for part, value in zip(held, restored, strict=True):
        part.assign(value)


def _finalizes(layer: Any, flavor: Flavor) -> bool:
    own = getattr(type(layer), "finalize_state", None)
    return own is not None and own is not getattr(flavor.layer, "finalize_state", None)


def _loads_itself(layer: Any) -> bool:
    """Whether a user class overrides ``load_own_variables``."""
    cls: Any = type(layer)
    owner = next(c for c in cls.__mro__ if "load_own_variables" in vars(c))
    return owner.__module__.partition(".")[0] not in {"keras", "tf_keras"}
