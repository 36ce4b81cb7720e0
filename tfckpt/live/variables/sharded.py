"""A variable of DTensor, whose parts are on the devices of a mesh, as one whole value.

TensorFlow's saver writes the parts, each by a thread of the mesh; tfckpt's own writer takes whole
values, and a checkpoint is the same whatever layout its variables had. So the parts are put
together on the host, one value at a time, and a restore gives each device its own; no device gets
the whole of it.

Refused, by saves and by restores: a mesh of which other processes have a part, since nobody here
can read that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.dtensor.python.d_variable import DSaveSpec, DVariable
from tensorflow.python.training.saving.saveable_object import SaveSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.errors import TfckptError


def is_sharded(spec: Any) -> bool:
    """Whether what TensorFlow's saver is given is a variable of DTensor."""
    return isinstance(spec, DSaveSpec)


def refuse_spread(variables: Mapping[str, Any], error: type[TfckptError]) -> None:
    """Refuse variables that other processes have parts of, before anything is written or changed.

    Args:
        variables: the live ones by name.
        error: what to raise.
    """
    for name, variable in variables.items():
        if isinstance(variable, DVariable) and _is_spread(variable.layout.mesh):
            raise error(
                f"{name}: its mesh spans several processes, and each holds only a part of it",
                hint="nothing was done; relayout it to a mesh of this process, or use "
                "tf.train.Checkpoint in all processes",
            )


def _is_spread(mesh: Any) -> bool:
    return bool(mesh.is_remote() or mesh.num_local_devices() < mesh.size)


def whole(key: str, tensor: Any) -> SaveSpec:
    """What TensorFlow's saver is given of a value in its place: one tensor on the host.

    Args:
        key: of the value in the checkpoint.
        tensor: the value, a DTensor, all of whose parts are in this process.
    """
    with tf.device("CPU:0"):
        value = tf.constant(array_of_parts(tensor), tensor.dtype)
    return SaveSpec(value, "", key, tensor.dtype, value.device)


def array_of_parts(tensor: Any) -> np.ndarray:
    """The whole of a DTensor, put together on the host."""
    layout = tf.experimental.dtensor.fetch_layout(tensor)
    array = np.empty(tensor.shape, tensor.dtype.as_numpy_dtype)
    parts = tf.experimental.dtensor.unpack(tensor)
    for part, box in zip(parts, _boxes(layout, array.shape), strict=True):
        array[box] = part.numpy()
    return array


def assignable(variable: Any, value: Any) -> Any:
    """A value as a variable takes it: in parts, each on its device, where it has parts itself."""
    if not isinstance(variable, DVariable) or not isinstance(value, np.ndarray):
        return value
    boxes = _boxes(variable.layout, value.shape)
    parts = [tf.constant(value[box], variable.dtype) for box in boxes]
    return tf.experimental.dtensor.pack(parts, variable.layout)


def _boxes(layout: Any, shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Which part of a value of that shape is on each device of this process."""
    for place in layout.mesh.local_device_locations():
        box = []
        for dimension, size in zip(layout.sharding_specs, shape, strict=True):
            if dimension == tf.experimental.dtensor.UNSHARDED:
                box.append(slice(0, size))
            else:
                length = size // layout.mesh.dim_size(dimension)
                box.append(slice(length * place[dimension], length * (place[dimension] + 1)))
        yield tuple(box)
