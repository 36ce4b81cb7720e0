"""tf_keras: classes, counts of names, slots by variable, and where ``fit`` begins.

Seen in tf_keras 2.16 to 2.21. It is imported only in a program that has imported tf_keras.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.live.private.tensorflow import needed, optional, required

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
    arguments = tf.nest.flatten((required(node, "call_args"), required(node, "call_kwargs")))
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
    built = says_built(optimizer)
    found = required(optimizer, "_index_dict") if built else getattr(optimizer, "_index_dict", {})
    return found or {}


def says_built(optimizer: Any) -> bool:
    """Whether an optimizer has its variables; legacy ones do not say so."""
    return bool(getattr(optimizer, "_built", False))


def key_of(optimizer: Any, variable: Any) -> str:
    """The key of a variable in an optimizer."""
    return str(required(optimizer, "_var_key")(variable))


def slots_of(optimizer: Any) -> Mapping[str, Mapping[str, Any]]:
    """The slots of a legacy optimizer, by key of the variable and by name."""
    found: Mapping[str, Mapping[str, Any]] = required(optimizer, "_slots")
    return found


def loss_scale_of(optimizer: Any) -> Any:
    """The trackable that holds a loss-scale optimizer's own values; a number if it is constant."""
    return getattr(optimizer, "_loss_scale", None)


def build_legacy(optimizer: Any, variables: list[Any]) -> None:
    """Create a legacy optimizer's variables."""
    required(optimizer, "_create_all_weights")(variables)
