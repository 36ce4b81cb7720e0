"""What a variable is, in TensorFlow and in both Keras flavours."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

Trackable = tf.__internal__.tracking.Trackable


def is_variable(obj: Any) -> bool:
    """Whether it is a variable of TensorFlow's or of Keras 3's TensorFlow backend."""
    if isinstance(obj, tf.Variable):
        return True
    return isinstance(obj, Trackable) and hasattr(obj, "_deferred_initialize")


def raw(variable: Any) -> Any:
    """The tf.Variable inside Keras 3's Variable or tf_keras's AutoCastVariable, or itself."""
    if isinstance(variable, tf.Variable):
        return getattr(variable, "_variable", variable)
    return variable._value


def path(variable: Any) -> str:
    """Keras 3's path of a variable, elsewhere its name."""
    return str(getattr(variable, "path", None) or variable.name.removesuffix(":0"))


def as_int(value: Any) -> int:
    """The number in a variable (mirrored ones included), a tensor, or a number."""
    return int(value.numpy() if hasattr(value, "numpy") else value)


def last_name(variable: Any) -> str:
    return str(variable.name).removesuffix(":0").rpartition("/")[2]
