"""Variables of TensorFlow and of both Keras flavors.

Asking a sync-on-read variable for an attribute that it lacks starts a collective, which other
workers would have to join (tensorflow/python/distribute/values.py). So only attributes that exist
are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt.live.private import either_keras, tf_keras
from tfckpt.live.private.tensorflow import (
    CONTAINER,
    Delegating,
    ResourceVariable,
    Sharded,
    Trackable,
    delegate,
)
from tfckpt.live.variables.distributed import Whole, owner, whole


def is_variable(obj: Any) -> bool:
    """Whether it is a variable of TensorFlow's or of Keras 3's TensorFlow backend."""
    if type(obj) is ResourceVariable or isinstance(obj, (tf.Variable, Sharded)):
        return True
    return isinstance(obj, Trackable) and either_keras.is_variable(obj)


def raw(variable: Any) -> Any:
    """The tf.Variable inside Keras 3's Variable or tf_keras's AutoCastVariable, or itself.

    For a partitioned variable, and for each of its parts, the whole variable.
    """
    if type(variable) is ResourceVariable and CONTAINER not in variable.__dict__:
        return variable  # the common case; isinstance(…, tf.Variable) is slow
    if isinstance(variable, tf.Variable):
        inner = owner(tf_keras.inner_variable(variable))
    else:
        inner = (
            variable if isinstance(variable, (Sharded, Whole)) else either_keras.value_of(variable)
        )
    return whole(inner) if isinstance(inner, Sharded) else inner


def meant(obj: Any) -> Any:
    """What an object delegates to (tensorflow/python/trackable/base_delegate.py), or itself."""
    while isinstance(obj, Delegating):
        obj = delegate(obj)
    return obj


def path(variable: Any) -> str:
    """Keras 3's path of a variable; for others its name."""
    if isinstance(variable, (tf.Variable, Sharded)):
        return str(variable.name.removesuffix(":0"))
    return str(variable.path)


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
