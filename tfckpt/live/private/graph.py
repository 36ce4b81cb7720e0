"""TensorFlow's saving of single objects, and its operations on many variables at once.

Seen in TensorFlow 2.16 to 2.21.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.live.private.tensorflow import (
    SERIALIZE,
    ObjectIdentityDictionary,
    Trackable,
    initialize,
    needed,
    optional,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import numpy as np

_Key = TypeVar("_Key", bound="Hashable")

with needed("tensorflow"):
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph
    from tensorflow.python.checkpoint import save_util as _save_util
    from tensorflow.python.checkpoint import saveable_compat as _saveable_compat
    from tensorflow.python.checkpoint import util as _util
    from tensorflow.python.eager import context as _context
    from tensorflow.python.trackable.autotrackable import AutoTrackable as _AutoTrackable

    _tensors = _save_util._get_and_write_tensors_to_serialize
    _Data = _save_util._TrackableData
    _slots = _util.serialize_slot_variables

__all__ = ["TrackableObjectGraph"]

# Of an object: the names and objects that it tracks, in order.
TRACKED = "_self_unconditional_checkpoint_dependencies"
CHILDREN = "_trackable_children"
# Of an object of a loaded SavedModel: what saves it.
FACTORIES = "_self_saveable_object_factories"
_KERAS_LAYERS = "keras.src.backend.tensorflow.layer"  # its children differ in SavedModels only
# What generated functions of operations call, and the class of what they return.
_execute = optional("tensorflow.python.eager.execute", "execute")
_EagerTensor = optional("tensorflow.python.framework.ops", "EagerTensor")


@functools.cache
def _in_a_list() -> bool:
    """Whether objects keep what they track in a list of that name."""
    initialize(obj := Trackable())
    return TRACKED in vars(obj)


@functools.lru_cache(1024)
def only_tracks(cls: type) -> bool:
    """Whether the children of a class's objects are what they track: nothing is computed."""
    own = [base for base in cls.__mro__ if {CHILDREN, "_checkpoint_dependencies"} & {*vars(base)}]
    known = (Trackable, _AutoTrackable)
    return _in_a_list() and all(b in known or b.__module__ == _KERAS_LAYERS for b in own)


def may_serialize(cls: type) -> bool:
    """Whether TensorFlow may find tensors in a class's objects."""
    return (
        getattr(cls, SERIALIZE) is not getattr(Trackable, SERIALIZE)
        or cls._gather_saveables_for_checkpoint  # type: ignore[attr-defined]
        is not Trackable._gather_saveables_for_checkpoint
        or _saveable_compat.get_saveable_name(cls) is not None
    )


def has_slots(cls: type) -> bool:
    """Whether TensorFlow asks a class's objects for slot variables."""
    return any("get_slot_names" in vars(base) for base in cls.__mro__)


def tensors_of(obj: Any, number: int, path: str, graph: Any) -> tuple[Any, dict[str, Any]]:
    """The tensors that TensorFlow saves of an object, by key; its node in the graph names them.

    With the trackable that restores them: the object, or what stands for it.
    """
    numbers = ObjectIdentityDictionary()
    numbers[obj] = number
    data = _Data(obj, number, path, [], [], obj)
    ((trackable, tensors),) = _tensors([data], numbers, None, None, graph).items()
    return trackable, tensors


def slots_of(objects: list[Any], paths: Sequence[str]) -> tuple[list[tuple[Any, Any]], list[str]]:
    """Optimizers with the references to their slot variables by name, and the paths of these.

    The slot variables are added to ``objects``.
    """
    numbers, names = ObjectIdentityDictionary(), ObjectIdentityDictionary()
    for number, (obj, path) in enumerate(zip(objects, paths, strict=True)):
        numbers[obj], names[obj] = number, path
    found = _slots(objects, numbers, names)
    return [*found.items()], [names[obj] for obj in objects[len(paths) :]]


def devices() -> frozenset[str]:
    """The names of this process's devices, as tensors have them; no custom devices."""
    task = tf.constant(0).device.partition("/device:")[0]
    return frozenset(task + device.name for device in tf.config.list_logical_devices())


@functools.lru_cache(64)
def is_stored(dtype: Any) -> bool:
    """Whether a bundle can hold tensors of a dtype."""
    return dtype.name in ITEM_BYTES or dtype.name == "string"


def read_all(variables: Mapping[_Key, Any]) -> dict[_Key, Any]:
    """The tensors of plain variables, by reference; those without a value are left out."""
    groups: dict[str, list[_Key]] = {}
    for key, variable in variables.items():
        groups.setdefault(variable._handle.device, []).append(key)
    found: dict[_Key, Any] = {}
    for device, keys in groups.items():
        found.update(zip(keys, _read(device, [variables[key] for key in keys]), strict=True))
    return {key: found[key] for key in variables if found[key] is not None}


def _read(device: str, variables: Sequence[Any]) -> Sequence[Any]:
    """By one operation, which TensorFlow has for calls of compiled functions."""
    handles = [variable._handle for variable in variables]
    dtypes = [variable._dtype.as_datatype_enum for variable in variables]
    attributes = ("N", len(handles), "dtypes", dtypes)
    try:
        with tf.device(device):
            found: Sequence[Any] = _execute(
                b"_ReadVariablesOp", len(handles), handles, attributes, _context.context()
            )
    except (tf.errors.OpError, TypeError):  # one has no value, or there is no such operation
        return [_read_one(variable) for variable in variables]
    return found


def _read_one(variable: Any) -> Any:
    if not variable.is_initialized():
        return None
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def tensor_of(array: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    """A tensor in host memory, perhaps over an array's own, which nobody may change from now on."""
    if _EagerTensor is None:
        return tf.constant(array, dtype)  # which copies the array first
    return _EagerTensor(array, "/device:CPU:0", dtype.as_datatype_enum)
