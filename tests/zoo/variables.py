"""Variables of either flavour, looked at as TensorFlow does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf


def inner(variable: Any) -> tf.Variable:
    """The tf.Variable inside a variable of either flavour, or itself."""
    while not isinstance(variable, tf.Variable) or hasattr(variable, "_variable"):
        within = variable._value if hasattr(variable, "_value") else variable._variable
        if within is variable:  # the words of a lookup layer, which are no variable
            break
        variable = within
    return variable


def distinguish(variables: Iterable[Any]) -> None:
    """Give every element of all of them a value of its own."""
    start = 0
    for variable in filter(lambda each: isinstance(each, tf.Variable), map(inner, variables)):
        count = int(np.prod(variable.shape))
        kind = variable.dtype.as_numpy_dtype
        variable.assign(np.arange(start, start + count).reshape(variable.shape).astype(kind))
        start += count
