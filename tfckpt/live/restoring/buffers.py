"""Memory that a variable takes over without a copy.

A value that is read into a tensor's buffer is never copied: assigning the tensor makes its buffer
the variable's. While somebody else still holds the buffer, TensorFlow copies it before an in-place
update (tensorflow/core/kernels/training_op_helpers.h), so training is never visible through it.
TensorFlow has no call that writes to a tensor, so a NumPy array over a new, empty tensor is filled
instead; this is tested once for each dtype before it is used. Small values, and dtypes without
empty tensors (quantized types, float8), go through NumPy's memory and are copied.

Everything except TensorFlow's own ``ResourceVariable`` is read and assigned by its own methods.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfckpt.core.dtypes import numpy_dtype
from tfckpt.live.private.tensorflow import ResourceVariable

if TYPE_CHECKING:
    from tfckpt.core.inventory import Shape
    from tfckpt.stored.bundles.index import BundleEntry

_ASSIGN = ResourceVariable.assign
_ALL, _ONE, _WHOLE = [0], [1], {"begin_mask": 1, "end_mask": 1}
COPIED = 256 << 10  # up to here a copy is cheaper than an empty tensor


class Buffer(NamedTuple):
    """Memory for a value that will be read."""

    value: Any
    content: np.ndarray


def is_plain(variable: Any, dtype: str) -> bool:
    """Whether one TensorFlow operation assigns a value of that dtype to a tf.Variable."""
    return (
        type(variable) is ResourceVariable
        and ResourceVariable.assign is _ASSIGN  # not patched
        and tf.executing_eagerly()
        and variable.dtype is _dtype(dtype)
        and variable.shape.is_fully_defined()
        and _shares_memory(dtype)
    )


def read_plain(variable: Any) -> Any:
    """The value of a plain variable, whose memory it shares on a CPU."""
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def assign_plain(variable: Any, value: Any) -> Any:
    """Assign a value that nobody writes to any more; returns it as a tensor."""
    if isinstance(value, np.ndarray):
        value = tf.constant(value, variable.dtype)
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
    return value


def copy_plain(variable: Any, value: Any) -> Any:
    """Copy a value into the memory that a plain variable has; returns the variable's value.

    Nothing is allocated unless somebody else holds the old value, which TensorFlow leaves alone
    (EnsureSparseVariableAccess in tensorflow/core/kernels/training_op_helpers.h). From such an
    update on, TensorFlow copies a variable whenever it is read, which is turned off again.
    """
    tf.raw_ops.ResourceStridedSliceAssign(
        ref=variable.handle, value=value, begin=_ALL, end=_ALL, strides=_ONE, **_WHOLE
    )
    tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
    return read_plain(variable)


def empty(entry: BundleEntry, *, plain: bool) -> Buffer:
    """Memory for a stored value; ``plain`` if a plain variable may take it over."""
    # A scalar has no array over it; the operation takes dimensions as int32.
    if plain and entry.shape and entry.nbytes > COPIED and max(entry.shape) < 1 << 31:
        return _empty_tensor(entry.shape, entry.dtype)
    content = np.empty(entry.nbytes, np.uint8)
    return Buffer(np.ndarray(entry.shape, _numpy_dtype(entry.dtype), content), content)


_dtype = lru_cache(64)(tf.as_dtype)
_numpy_dtype = lru_cache(64)(numpy_dtype)


def _empty_tensor(shape: Shape, dtype: str) -> Buffer:
    with tf.device("CPU:0"):
        tensor = tf.raw_ops.Empty(shape=_as_tensor(shape), dtype=_dtype(dtype))
    return Buffer(tensor, tensor.__array__().reshape(-1).view(np.uint8))


@lru_cache(256)
def _as_tensor(shape: Shape) -> tf.Tensor:
    """Cached: TensorFlow would convert the Python numbers each time, four times as slowly."""
    return tf.constant(shape, tf.int32)


def is_copied(entry: BundleEntry, *, plain: bool) -> bool:
    """Whether :func:`copy_plain` can copy a stored value; it takes no scalars."""
    return plain and bool(entry.shape) and _copies(entry.dtype)


@lru_cache(64)
def _copies(dtype: str) -> bool:
    """Whether :func:`copy_plain` copies values of that dtype, bit by bit."""
    try:
        variable = tf.Variable(_empty_tensor((3, 2), dtype).value)
        value, content = _empty_tensor((3, 2), dtype)
        content[:] = np.arange(content.size) % 2
        return bool(copy_plain(variable, value).numpy().tobytes() == content.tobytes())
    except (tf.errors.OpError, AttributeError, TypeError, ValueError):
        return False


@lru_cache(64)
def _shares_memory(dtype: str) -> bool:
    """Whether bytes written through the array appear in an empty tensor of that dtype."""
    try:
        tensor, content = _empty_tensor((3, 2), dtype)
        content[:] = np.arange(content.size) % 2  # valid bytes for bool, too
        return bool(tensor.numpy().tobytes() == content.tobytes())
    except (tf.errors.OpError, AttributeError, TypeError, ValueError):
        return False
