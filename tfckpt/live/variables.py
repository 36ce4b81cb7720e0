"""Variables of TensorFlow and of both Keras flavors.

Asking a sync-on-read variable for an attribute that it lacks starts a collective, which other
workers would have to join (tensorflow/python/distribute/values.py). So only attributes that exist
are read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.live.private import either_keras, tf_keras
from tfckpt.live.private.tensorflow import (
    CONTAINER,
    Delegating,
    ResourceVariable,
    Sharded,
    Trackable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_variable(obj: Any) -> bool:
    """Whether it is a variable of TensorFlow's or of Keras 3's TensorFlow backend."""
    return _is_variable(obj.__class__)


@lru_cache(1024)
def _is_variable(cls: type) -> bool:
    if issubclass(cls, (tf.Variable, Sharded)):
        return True
    return issubclass(cls, Trackable) and either_keras.is_variable(cls)


@lru_cache(1024)
def of_keras(cls: type) -> bool:
    """Whether it is a class of Keras 3's variables."""
    return _is_variable(cls) and not issubclass(cls, (tf.Variable, Sharded))


def raw(variable: Any) -> Any:
    """The tf.Variable inside Keras 3's Variable or tf_keras's AutoCastVariable, or itself.

    For a partitioned variable, and for each of its parts, the whole variable.
    """
    if type(variable) is ResourceVariable and CONTAINER not in variable.__dict__:
        return variable  # the common case; isinstance(…, tf.Variable) is slow
    if of_keras(variable.__class__) and type(inner := variable._value) is ResourceVariable:
        return inner
    if isinstance(variable, tf.Variable):
        inner = owner(tf_keras.inner_variable(variable))
    else:
        inner = variable if isinstance(variable, (Sharded, Whole)) else variable._value
    return whole(inner) if isinstance(inner, Sharded) else inner


def fixed_shape(variable: Any) -> tuple[int, ...] | None:
    """The shape of every value that it can hold; None if these may differ."""
    shape = variable.shape
    if shape.rank is None or None in (sides := shape.as_list()):
        return None
    return tuple(sides)


def meant(obj: Any) -> Any:
    """What an object delegates to (tensorflow/python/trackable/base_delegate.py), or itself."""
    while isinstance(obj, Delegating):
        obj = obj._trackable
    return obj


def path(variable: Any) -> str:
    """Keras 3's path of a variable; for others its name."""
    if of_keras(variable.__class__):
        return str(variable.path)
    return str(variable.name.removesuffix(":0"))


def as_int(value: Any) -> int:
    """The value of a scalar variable (also a mirrored one), tensor or number."""
    return int(value.numpy() if hasattr(value, "numpy") else value)


def last_name(variable: Any) -> str:
    return str(variable.name).removesuffix(":0").rpartition("/")[2]


def array_of(value: Any) -> np.ndarray:
    """A tensor or array as a NumPy array, without a copy if it is on a CPU."""
    if isinstance(value, tf.Tensor) and value.shape.rank == 0:
        value = value.numpy()  # TensorFlow gives NumPy no array of a scalar
    return np.asarray(value)


def on_host(tensor: Any) -> Any:
    """The tensor in host memory, without a copy if it is there."""
    with tf.device("CPU:0"):
        return tf.identity(tensor)


_SUM, _MEAN = tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN
_ON_READ = tf.VariableSynchronization.ON_READ


def is_averaged(variable: Any) -> bool:
    """Whether replicas have one each, as of tf_keras's moving averages, and a file their mean."""
    held = raw(variable)
    of_each = isinstance(held, tf.distribute.DistributedValues)
    return of_each and held.synchronization == _ON_READ and held.aggregation == _MEAN


class Whole:
    """A ``ShardedVariable`` with the interface of other variables."""

    def __init__(self, sharded: Any) -> None:
        self.sharded = sharded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sharded, name)

    @property
    def distribute_strategy(self) -> Any:
        """The strategy of its parts."""
        return self.sharded.variables[0].distribute_strategy

    def read_value(self) -> tf.Tensor:
        """The current value."""
        return tf.concat([part.read_value() for part in self.sharded.variables], 0)


def whole(sharded: Any) -> Whole:
    """The wrapper of a ``ShardedVariable``, always the same one."""
    found: Whole | None = sharded.__dict__.get("_tfckpt_whole")
    if found is None:
        found = sharded.__dict__["_tfckpt_whole"] = Whole(sharded)
    return found


def owner(variable: Any) -> Any:
    """The ``ShardedVariable`` that a variable is a part of; otherwise the variable itself."""
    of = variable.__dict__.get(CONTAINER)
    return variable if of is None else of()


def parts(variable: Any) -> tuple[Any, ...]:
    """The local variables that hold its value; for a plain one, itself."""
    if type(variable) is ResourceVariable:  # the common case
        return (variable,)
    if isinstance(variable, Whole):
        return tuple(variable.variables)
    if isinstance(variable, tf.distribute.DistributedValues):
        return tuple(variable.values)
    return (variable,)


def in_parts(variable: Any) -> tuple[Any, ...]:
    """The variables that Keras lists for it: the parts of a partitioned one, or itself."""
    return tuple(variable.variables) if isinstance(variable, (Sharded, Whole)) else (variable,)


def pieces(variable: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The local variables that hold a value, each with the piece to assign to it.

    ``variable`` is from ``variables.raw``; ``value`` is the whole array or tensor.
    """
    held = parts(variable)
    if isinstance(variable, Whole):
        first = 0
        for part in held:
            rows = int(part.shape[0])
            yield part, value[first : first + rows]
            first += rows
    elif held[0] is variable:
        yield variable, value
    else:
        summed = variable.synchronization == _ON_READ and variable.aggregation == _SUM
        strategy = variable.distribute_strategy
        is_first = strategy.extended.should_checkpoint  # true in the chief
        for number, part in enumerate(held):
            rest = summed and not (is_first and number == 0)
            yield part, tf.zeros_like(value) if rest else value
