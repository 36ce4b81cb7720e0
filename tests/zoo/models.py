"""All models by name, and the flavours that have each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo import kinds, shapes

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS: dict[str, Callable[[Any], Any]] = {
    builder.__name__: builder
    for builder in (
        shapes.sequential,
        shapes.sequential_deferred,
        shapes.functional,
        shapes.subclassed,
        shapes.functional_in_functional,
        shapes.unnamed_functional_in_functional,
        shapes.sequential_in_sequential,
        shapes.sequential_in_subclassed,
        shapes.subclassed_in_functional,
        shapes.blocks_in_sequential,
        shapes.containers,
        shapes.shared,
        shapes.shared_in_functional,
        shapes.own_weights,
        shapes.weights_on_model,
        kinds.recurrent,
        kinds.attention,
        kinds.convolutional,
        kinds.spectral,
        kinds.normalized,
        kinds.text,
        kinds.lookups,
        kinds.low_rank,
        kinds.seeded,
        kinds.module_in_layer,
        kinds.mixed_precision,
    )
}

# LoRA is new in Keras 3; tf_keras's SpectralNormalization takes tf.keras's InputSpec, which is the
# other flavour's here, and cannot be built.
KERAS_3 = ("low_rank", "spectral")

# As the ``flavour`` fixture has it, and the name of a model.
IN_FLAVOUR = [
    (flavour, name)
    for flavour in ("keras3", "tf_keras")
    for name in MODELS
    if flavour == "keras3" or name not in KERAS_3
]
