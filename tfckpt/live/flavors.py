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

from tfckpt.core.inventory import snake_case
from tfckpt.live.private import either_keras
from tfckpt.live.private import keras as private_keras
from tfckpt.live.private import tf_keras as private_tf_keras
from tfckpt.live.private.tensorflow import Sharded, Trackable, initialize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


_V1 = tf.compat.v1.train.Optimizer


@dataclasses.dataclass(frozen=True, eq=False)
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
    bidirectional: Any
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

    functional = private_keras.functional()
    return Flavor(
        "keras",
        keras.layers.Layer,
        keras.Model,
        (functional, keras.Sequential),
        functional,
        (keras.optimizers.Optimizer,),
        keras.optimizers.LossScaleOptimizer,
        keras.metrics.Metric,
        (keras.random.SeedGenerator,),
        (keras.layers.StringLookup, keras.layers.IntegerLookup),
        keras.layers.Discretization,
        keras.layers.Bidirectional,
        False,
        _attributes("keras", keras.layers.Layer(name="plain"), private_keras.OF_LAYERS),
        private_keras.SEQUENCE_ATTRIBUTES,
        snake_case,
        private_keras.counted,
        private_keras.inputs_of,
    )


@functools.cache
def _tf_keras() -> Flavor:
    import tf_keras

    functional = private_tf_keras.functional()
    return Flavor(
        "tf_keras",
        tf_keras.layers.Layer,
        tf_keras.Model,
        (functional, tf_keras.Sequential),
        functional,
        (tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer),
        tf_keras.mixed_precision.LossScaleOptimizer,
        tf_keras.metrics.Metric,
        (private_tf_keras.random_generator(),),
        (tf_keras.layers.StringLookup, tf_keras.layers.IntegerLookup),
        tf_keras.layers.Discretization,
        tf_keras.layers.Bidirectional,
        True,
        _attributes("tf_keras", tf_keras.layers.Layer(name="plain"), private_tf_keras.OF_LAYERS)
        | private_tf_keras.ADAPTED,
        private_tf_keras.SEQUENCE_ATTRIBUTES,
        private_tf_keras.automatic_name,
        private_tf_keras.counted,
        private_tf_keras.inputs_of,
    )


def _attributes(package: str, layer: Any, names: Iterable[str]) -> frozenset[str]:
    """The attributes of a plain layer, with TensorFlow's bookkeeping for trackables."""
    either_keras.check_layer(package, layer, names)
    initialize(layer)
    return frozenset(vars(layer))


def flavors() -> tuple[Flavor, ...]:
    """The flavors that the program has imported."""
    # The last name that importing Keras 3 binds, in every release.
    keras = hasattr(sys.modules.get("keras"), "version")
    # This one is bound before its last modules are imported.
    return _flavors(keras, hasattr(sys.modules.get("tf_keras"), "__version__"))


@functools.cache
def _flavors(keras: bool, tf_keras: bool) -> tuple[Flavor, ...]:
    return (*((_keras3(),) if keras else ()), *((_tf_keras(),) if tf_keras else ()))


def flavor_of(obj: Any) -> Flavor | None:
    """The flavor whose layer, optimizer, metric or seed generator an object is, or None."""
    return _flavor_of(obj.__class__, flavors())


@functools.lru_cache(1024)
def _flavor_of(cls: type, known: tuple[Flavor, ...]) -> Flavor | None:
    for flavor in known:
        if issubclass(cls, (flavor.layer, flavor.metric, *flavor.optimizers, *flavor.seeds)):
            return flavor
    return None


def name_of(layer: Any) -> str:
    """A layer's name, or its class: tf_keras's FeatureSpace never calls Layer's constructor."""
    return str(getattr(layer, "name", None) or snake_case(type(layer).__name__))


def only_copied(layer: Any, flavor: Flavor) -> list[Any]:
    """The layers below it that it copied and never calls: what a ``Bidirectional`` was made from.

    They never have variables. Keras 3 does not keep them.
    """
    if not isinstance(layer, flavor.bidirectional):
        return []
    template = getattr(layer, "layer", None)
    used = template is None or template in (layer.forward_layer, layer.backward_layer)
    return [] if used else either_keras.with_layers_below(template)


def is_optimizer(obj: Any) -> bool:
    """Whether it is an optimizer of either flavor, or one of ``tf.compat.v1.train``."""
    return _is_optimizer(obj.__class__, flavors())


@functools.lru_cache(1024)
def _is_optimizer(cls: type, known: tuple[Flavor, ...]) -> bool:
    flavor = _flavor_of(cls, known)
    return issubclass(cls, _V1 if flavor is None else flavor.optimizers)


@functools.lru_cache(1024)
def holds_values(cls: type, known: tuple[Flavor, ...]) -> bool:
    """Whether objects of a class may be values, or hold some."""
    of_any = (list, tuple, dict, Trackable, tf.Variable, Sharded)
    return _flavor_of(cls, known) is not None or issubclass(cls, of_any)


def has_named_slots(optimizer: Any) -> bool:
    """Whether its slots are asked for by variable: tf_keras's legacy ones, and TF1's."""
    return hasattr(optimizer, "get_slot_names")


def is_v1(obj: Any) -> bool:
    """Whether it is an optimizer of ``tf.compat.v1.train``, which can train any variables."""
    return isinstance(obj, _V1)


def has_own_step(model: Any) -> bool:
    """Whether a class of the user's defines a training step, which may make variables."""
    flavor = flavor_of(model)
    return flavor is not None and type(model).train_step is not flavor.model.train_step
