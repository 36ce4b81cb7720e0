"""TensorFlow's eager runtime: fast reads and assignments, tensors' memory, generators, workers.

Seen in TensorFlow 2.16 to 2.21. What is only for speed has a public way beside it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.live.private.parts import needed, optional, required

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

with needed("tensorflow"):
    from tensorflow.python.eager import context as _context
    from tensorflow.python.framework import op_def_registry as _op_defs
    from tensorflow.python.ops import stateful_random_ops as _random_ops

_READ_MANY = "_ReadVariablesOp"
_VARIABLE_OPS = "tensorflow.python.ops.gen_resource_variable_ops"
_read = optional(_VARIABLE_OPS, "read_variable_op")
_assign = optional(_VARIABLE_OPS, "assign_variable_op")
_fast_path = optional("tensorflow.python.pywrap_tfe", "TFE_Py_FastPathExecute")
_execute = optional("tensorflow.python.eager.execute", "execute")
_EagerTensor = optional("tensorflow.python.framework.ops", "EagerTensor")


def current() -> Any:
    return required(_context, "context")()


# Variables


def read(handle: Any, dtype: Any) -> Any:
    """The value of a variable, whose memory it shares on a CPU."""
    if _read is None:
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
    return _read(handle, dtype)  # a quarter faster


def assign(handle: Any, value: Any) -> None:
    """Assign a tensor, whose memory the variable takes over on a CPU."""
    if _assign is None:
        tf.raw_ops.AssignVariableOp(resource=handle, value=value, validate_shape=True)
    else:
        _assign(handle, value, validate_shape=True)


def read_many(handles: Sequence[Any], dtypes: Sequence[Any]) -> Sequence[Any]:
    """The values of variables of one device, of any dtypes.

    TensorFlow has an operation for this but no public function.
    """
    found: Sequence[Any] = _fast_path(
        current(), _READ_MANY, None, list(handles), "dtypes", list(dtypes)
    )
    return found


def read_alike(handles: Sequence[Any], device: str, dtype: Any) -> Sequence[Any]:
    """The values of variables of one device and dtype."""
    if not _reads_alike():
        return [tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype) for handle in handles]
    count = len(handles)
    attributes = ("N", count, "dtypes", (dtype.as_datatype_enum,) * count)
    with tf.device(device):
        found: Sequence[Any] = _execute(_READ_MANY, count, list(handles), attributes, current())
    return found


@functools.cache
def _reads_alike() -> bool:
    """Whether this TensorFlow has the operation, with the attributes used here."""
    known = operation(_READ_MANY)
    attributes = {"N", "dtypes"}
    return bool(_execute and known and {each.name for each in known.attr} == attributes)


def variable_dtype(handle: Any) -> Any:
    """The dtype of the variable behind a handle; None for anything else."""
    if handle.dtype != tf.resource:
        return None
    known = required(handle, "_handle_data")
    if known is None or not known.is_set or not known.shape_and_type:
        return None
    return tf.as_dtype(known.shape_and_type[0].dtype)


# Tensors


def tensor(array: np.ndarray, dtype: Any) -> Any:
    """An eager tensor with a copy of an array."""
    device = getattr(current(), "device_name", "")
    if _EagerTensor is None:
        return tf.constant(array, dtype)
    # Without a device TensorFlow would look for one called "".
    return _EagerTensor(array, device or None, dtype.as_datatype_enum)


def memory_of(value: Any) -> Any:
    """The content of an eager tensor, on a CPU without a copy; bytes or an array of objects too."""
    shared = getattr(value, "_numpy_internal", None)
    return value.numpy() if shared is None else shared()


def array_of(value: Any) -> Any:
    """The same with TensorFlow's errors; a scalar is a number."""
    shared = getattr(value, "_numpy", None)
    return value.numpy() if shared is None else shared()


def dtype_and_shape(value: Any) -> tuple[int, tuple[int, ...]]:
    """The number of an eager tensor's dtype, and its shape."""
    try:
        return value._datatype_enum(), value._shape_tuple()
    except AttributeError:
        return value.dtype.as_datatype_enum, tuple(value.shape.as_list())


# Operations


def operation(name: str) -> Any:
    """The definition of an operation, or None."""
    return required(_op_defs, "get")(name)


def is_deterministic() -> bool:
    """Whether ``enable_op_determinism`` was called; if unknown, it counts as not called."""
    ask = optional("tensorflow.python.framework.config", "is_op_determinism_enabled")
    return ask is not None and bool(ask())


# Files


def renames_at_once(path: str) -> bool:
    """Whether a file system renames atomically; if unknown, its rename counts as a copy."""
    ask = optional("tensorflow.python.lib.io.file_io", "has_atomic_move")
    return ask is not None and bool(ask(path))


# Random generators


def global_seed() -> int | None:
    """The last seed passed to ``tf.random.set_seed``, or None."""
    seed = required(_context, "global_seed")()
    return None if seed is None else int(seed)


def seeds_of_operations() -> Any:
    """Python's generator that seeds each eager random operation, once a global seed is set."""
    return required(current(), "_rng")


def global_generator() -> Any:
    """The generator of ``tf.random``; None if it was not used yet, where that is known."""
    if not hasattr(_random_ops, "global_generator"):
        return tf.random.get_global_generator()
    return _random_ops.global_generator


# Workers of a strategy, and the service that they exchange messages by


def worker_of(extended: Any) -> tuple[int, int, dict[str, Any]]:
    """The index of this process, the number of all, and the addresses by job."""
    cluster = required(extended, "_cluster_resolver").cluster_spec().as_dict()
    return int(required(extended, "_id_in_cluster")), count_of(extended), cluster


def count_of(extended: Any) -> int:
    """The number of workers."""
    return int(required(extended, "_num_workers"))


def has_service() -> bool:
    """Whether there may be several workers, by TensorFlow's configuration, or if unknown."""
    return getattr(current(), "coordination_service", True) is not None


def uses_service() -> bool:
    """Whether workers can exchange messages."""
    return bool(required(current(), "coordination_service").service_type)


def put(key: str, text: str) -> None:
    """Tell all workers a text."""
    required(current(), "set_config_key_value")(key, text)


def get(key: str, milliseconds: int) -> str:
    """Wait for a text."""
    found: str = required(current(), "get_config_key_value")(key, milliseconds)
    return found


def delete(key: str) -> None:
    required(current(), "delete_config_key_value")(key)


def check_health(task: str, timeout: int) -> None:
    """Raise a ``tf.errors.OpError`` if a worker does not answer."""
    required(current(), "check_collective_ops_peer_health")(task, timeout_in_ms=timeout)
