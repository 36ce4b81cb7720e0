"""tf_keras: classes, counts of names, slots by variable, and where ``fit`` begins.

Seen in tf_keras 2.16 to 2.21. It is imported only in a program that has imported tf_keras.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.live.private.tensorflow import needed, optional

if TYPE_CHECKING:
    from collections.abc import Mapping

# Attributes of functional and sequential models that list their layers again.
SEQUENCE_ATTRIBUTES = frozenset(
    {
        "_input_coordinates",
        "_input_layers",
        "_layer_call_argspecs",
        "_nodes_by_depth",
        "_output_coordinates",
        "_output_layers",
        "_tensor_usage_count",
    }
)
ADAPTED = frozenset({"_steps_per_execution"})  # adapt() sets it on a preprocessing layer
# What every layer has, even one without variables.
OF_LAYERS = (
    *("_flatten_layers", "_inbound_nodes", "_metrics"),
    *("_non_trainable_weights", "_trainable_weights"),
)


def functional() -> Any:
    """The class of functional models."""
    with needed("tf_keras"):
        from tf_keras.src.engine.functional import Functional

        return Functional


def random_generator() -> Any:
    """The class of the seed generators of layers."""
    with needed("tf_keras"):
        from tf_keras.src.backend import RandomGenerator

        return RandomGenerator


def automatic_name(cls: str) -> str:
    """A class's name as tf_keras begins automatic names with."""
    with needed("tf_keras"):
        from tf_keras.src.utils.generic_utils import to_snake_case

        return str(to_snake_case(cls))


def counted(base: str) -> int:
    """How many names tf_keras has generated of an automatic one; 0 if unknown."""
    counts = optional("tf_keras.src.backend", "get_default_graph_uid_map")
    return int(counts().get(("", base), 0)) if counts else 0


def inputs_of(node: Any) -> list[Any]:
    """The input tensors of a call of a layer."""
    arguments = tf.nest.flatten((node.call_args, node.call_kwargs))
    return [each for each in arguments if hasattr(each, "_keras_history")]


def inner_variable(variable: Any) -> Any:
    """The tf.Variable inside an AutoCastVariable, or itself."""
    return variable.__dict__.get("_variable", variable)


def seed_state(generator: Any) -> Any:
    """The variable of a layer's ``RandomGenerator``; None if it has none."""
    return getattr(getattr(generator, "_generator", None), "_state_var", None)


# Optimizers


def positions_of(optimizer: Any) -> Mapping[str, int]:
    """The key of each trained variable → its position in the lists of slots; empty if not built."""
    built = getattr(optimizer, "_built", False)
    found = optimizer._index_dict if built else getattr(optimizer, "_index_dict", {})
    return found or {}
