"""DTensor variables, whose parts are on the devices of a mesh, as whole values.

TensorFlow's saver writes the parts, each from a thread of the mesh. tfckpt's own writer takes whole
values, so a checkpoint does not depend on the layout of its variables. The parts are assembled on
the host, one value at a time; a restore gives each device only its part.

Saves and restores refuse a mesh that spans several processes, since no process can read all parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.live.private.tensorflow import SaveSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.errors import TfckptError


def is_for_dtensor(spec: Any) -> bool:
    """Whether a spec for TensorFlow's saver is for a DTensor variable."""
    return type(spec).__module__.startswith("tensorflow.dtensor.")


def refuse_spread(variables: Mapping[str, Any], error: type[TfckptError]) -> None:
    """Raise ``error`` if other processes hold parts of a variable (given by name)."""
    kind = _variable_type()
    for name, variable in variables.items():
        if isinstance(variable, kind) and _is_spread(variable.layout.mesh):
            raise error(
                f"{name}: its mesh spans several processes, and each holds only a part of it",
                hint="nothing was done; relayout it to a mesh of this process, or use "
                "tf.train.Checkpoint in all processes",
            )


def _variable_type() -> Any:
    """The class of DTensor variables; no class where TensorFlow has none."""
    dtensor = getattr(tf.experimental, "dtensor", None)  # experimental: it may go
    return getattr(dtensor, "DVariable", ())


def _is_spread(mesh: Any) -> bool:
    return bool(mesh.is_remote() or mesh.num_local_devices() < mesh.size)


def as_one_tensor(key: str, tensor: Any) -> SaveSpec:
    """A spec for TensorFlow's saver that holds a DTensor as one tensor on the host.

    All parts of the DTensor are in this process.
    """
    with tf.device("CPU:0"):
        value = tf.constant(array_of_parts(tensor), tensor.dtype)
    return SaveSpec(value, "", key, tensor.dtype, value.device)


def array_of_parts(tensor: Any) -> np.ndarray:
    """A whole DTensor, assembled on the host."""
    layout = tf.experimental.dtensor.fetch_layout(tensor)
    array = np.empty(tensor.shape, tensor.dtype.as_numpy_dtype)
    parts = tf.experimental.dtensor.unpack(tensor)
    for part, box in zip(parts, _boxes(layout, array.shape), strict=True):
        array[box] = part.numpy()
    return array


def assignable(variable: Any, value: Any) -> Any:
    """A value in the form that a variable takes: for a DTensor variable, parts on its devices."""
    if not isinstance(variable, _variable_type()) or not isinstance(value, np.ndarray):
        return value
    boxes = _boxes(variable.layout, value.shape)
    parts = [tf.constant(value[box], variable.dtype) for box in boxes]
    return tf.experimental.dtensor.pack(parts, variable.layout)


def _boxes(layout: Any, shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The slices of a value of that shape on each device of this process."""
    for location in layout.mesh.local_device_locations():
        box = []
        for dimension, size in zip(layout.sharding_specs, shape, strict=True):
            if dimension == tf.experimental.dtensor.UNSHARDED:
                box.append(slice(0, size))
            else:
                length = size // layout.mesh.dim_size(dimension)
                box.append(slice(length * location[dimension], length * (location[dimension] + 1)))
        yield tuple(box)
