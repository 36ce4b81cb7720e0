"""The two Keras flavors (Keras 3 and tf_keras) as sets of classes.

A flavor counts only once the program has imported it: before that none of its objects can exist,
and tfckpt does not import a package that takes seconds to load and that nobody uses.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.automatic_names import snake_case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Flavor:
    """The classes that the inventory of live objects distinguishes."""

    name: str
    layer: Any  # classes; typed as classes, isinstance would narrow objects to `object`
    model: Any
    sequences: Any
    functional: Any  # the class of functional models
    optimizers: Any
    loss_scale: Any
    metric: Any
    seeds: Any
    lookups: Any
    bins: Any
    saves_bins: bool  # whether a layer that adapts them keeps them in a variable
    plain_attributes: frozenset[str]  # of every layer
    sequence_attributes: frozenset[
        str
    ]  # bookkeeping lists of functional and sequential models about their layers
    automatic: Callable[[str], str]  # class name → base of automatic layer names
    counted: Callable[[str], int]  # that → how many the process has generated
    inputs: Callable[[Any], Sequence[Any]]  # input tensors of a node in Keras's graph


@functools.cache
def _keras3() -> Flavor:
    import keras
    from keras.src.backend.common import global_state
    from keras.src.models.functional import Functional
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    bookkeeping = frozenset(
        {"_functional", "_nodes", "_nodes_by_depth", "_operations", "_operations_by_depth"}
    )
    return Flavor(
        "keras",
        keras.layers.Layer,
        keras.Model,
        (Functional, keras.Sequential),
        Functional,
        (BaseOptimizer,),
        keras.optimizers.LossScaleOptimizer,
        keras.metrics.Metric,
        (keras.random.SeedGenerator,),
        (keras.layers.StringLookup, keras.layers.IntegerLookup),
        keras.layers.Discretization,
        False,
        _attributes(keras.layers.Layer(name="plain")),
        bookkeeping,
        snake_case,
        lambda base: (global_state.get_global_attribute("object_name_uids") or {}).get(base, 0),
        lambda node: node.input_tensors,
    )


@functools.cache
def _tf_keras() -> Flavor:
    import tf_keras
    from tf_keras.src import backend
    from tf_keras.src.engine.functional import Functional
    from tf_keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2
    from tf_keras.src.utils import generic_utils

    adapted = {"_steps_per_execution"}  # adapt() sets it on a preprocessing layer
    bookkeeping = frozenset(
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
    return Flavor(
        "tf_keras",
        tf_keras.layers.Layer,
        tf_keras.Model,
        (Functional, tf_keras.Sequential),
        Functional,
        (tf_keras.optimizers.Optimizer, OptimizerV2),
        tf_keras.mixed_precision.LossScaleOptimizer,
        tf_keras.metrics.Metric,
        (backend.RandomGenerator,),
        (tf_keras.layers.StringLookup, tf_keras.layers.IntegerLookup),
        tf_keras.layers.Discretization,
        True,
        _attributes(tf_keras.layers.Layer(name="plain")) | adapted,
        bookkeeping,
        generic_utils.to_snake_case,
        lambda base: backend.get_default_graph_uid_map().get(("", base), 0),
        lambda node: [
            each
            for each in tf.nest.flatten((node.call_args, node.call_kwargs))
            if hasattr(each, "_keras_history")
        ],
    )


def _attributes(layer: Any) -> frozenset[str]:
    """The attributes of a plain layer, with TensorFlow's bookkeeping for trackables."""
    layer._maybe_initialize_trackable()
    return frozenset(vars(layer))


def flavors() -> tuple[Flavor, ...]:
    """The flavors that the program has imported."""
    found = []
    # The last name that importing Keras 3 binds, in every release.
    if hasattr(sys.modules.get("keras"), "version"):
        found.append(_keras3())
    if "tf_keras.src.optimizers" in sys.modules:
        found.append(_tf_keras())
    return tuple(found)


def flavor_of(obj: Any) -> Flavor | None:
    """The flavor whose layer, optimizer, metric or seed generator an object is, or None."""
    for flavor in flavors():
        kinds = (flavor.layer, flavor.metric, *flavor.optimizers, *flavor.seeds)
        if isinstance(obj, kinds):
            return flavor
    return None


def name_of(layer: Any) -> str:
    """A layer's name, or its class: tf_keras's FeatureSpace never calls Layer's constructor."""
    return str(getattr(layer, "name", None) or snake_case(type(layer).__name__))


def is_optimizer(obj: Any) -> bool:
    """Whether it is an optimizer of either flavor, or one of ``tf.compat.v1.train``."""
    flavor = flavor_of(obj)
    return is_v1(obj) if flavor is None else isinstance(obj, flavor.optimizers)


def is_v1(obj: Any) -> bool:
    """Whether it is an optimizer of ``tf.compat.v1.train``, which can train any variables."""
    return isinstance(obj, tf.compat.v1.train.Optimizer)
