"""Reads the tensors of a save, now and again at later saves.

TensorFlow reads a variable with three operations inside two device scopes, in about 20 µs. Here one
operation reads many plain variables of one device and dtype. It returns what ``ReadVariableOp``
returns: the variable's own buffer, which the next update copies instead of changing it
(tensorflow/core/kernels/training_op_helpers.h), or a copy where sparse updates write in place.
Everything else (distributed and sharded variables, tables, iterators, Python state) is asked for
its tensors by TensorFlow's own methods at each save.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import tensorflow as tf

from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.live.private.either_keras import value_of
from tfckpt.live.private.runtime import read_alike
from tfckpt.live.private.tensorflow import (
    SERIALIZE,
    ObjectIdentityDictionary,
    ResourceVariable,
    SaveableCompatibilityConverter,
    SaveSpec,
    Sharded,
    escape_local_name,
    serialize,
)
from tfckpt.live.variables.dtensor import as_one_tensor, is_for_dtensor
from tfckpt.live.variables.variables import raw

_AT_ONCE = 256


class _Batch(NamedTuple):
    """Plain variables of one device and dtype, which one operation reads."""

    device: str
    dtype: Any
    keys: tuple[str, ...]
    handles: tuple[Any, ...]
    trackables: tuple[Any, ...]


class ChangedError(Exception):
    """An object has other values to save than when they were gathered."""


class Sources:
    """Reads the values that TensorFlow's saver has gathered (trackable → key → tensor or spec).

    Attributes:
        repeatable: whether they can be read again without gathering.
    """

    def __init__(self, gathered: Any) -> None:
        self._constant: dict[str, Any] = {}
        self._batches: list[_Batch] = []
        self._asked: list[tuple[Any, tuple[str, ...]]] = []
        devices = _devices()
        alike: dict[tuple[str, Any], list[tuple[str, Any, Any]]] = {}
        for trackable, specs in gathered.items():
            if trackable is None:  # the object graph
                self._constant.update(specs)
            elif len(specs) == 1 and _is_plain_variable(trackable, devices):
                handle, dtype = raw(trackable).handle, raw(trackable).dtype
                alike.setdefault((handle.device, dtype), []).append((*specs, handle, trackable))
            elif specs:
                self._asked.append((trackable, tuple(specs)))
        for kind, found in alike.items():
            for start in range(0, len(found), _AT_ONCE):
                part = found[start : start + _AT_ONCE]
                self._batches.append(_Batch(*kind, *zip(*part, strict=True)))
        keys = [key for specs in gathered.values() for key in specs]
        self.repeatable = len(set(keys)) == len(keys) and all(
            not isinstance(trackable, SaveableCompatibilityConverter)
            for trackable, _ in self._asked
        )

    def read(self, gathered: Any = None) -> tuple[dict[str, Any], Any]:
        """Current tensors by key, and the specs that only TensorFlow can write.

        ``gathered`` is what TensorFlow's saver has just gathered, if it has.

        Raises:
            ChangedError: the saver has to gather again.
        """
        own = dict(self._constant)
        others = ObjectIdentityDictionary()
        for trackable, keys in self._asked:
            others[trackable] = gathered[trackable] if gathered else _specs(trackable, keys)
        for device, dtype, keys, handles, trackables in self._batches:
            try:
                tensors = read_alike(handles, device, dtype)
            except tf.errors.OpError:  # noqa: PERF203 (a variable without a value)
                for key, trackable in zip(keys, trackables, strict=True):
                    others[trackable] = _specs(trackable, (key,))
            else:
                own.update(zip(keys, tensors, strict=True))
        for specs in others.values():
            read_specs(specs)
        if others:
            own.update(_taken_out(others))
        return own, others


def _is_plain_variable(trackable: Any, devices: frozenset[str]) -> bool:
    """Whether it is just one buffer on a device of this process."""
    inner = trackable
    if type(trackable) is getattr(sys.modules.get("keras"), "Variable", None):
        inner = value_of(trackable)
    return (
        type(inner) is ResourceVariable
        and not any(SERIALIZE in vars(each) for each in (trackable, inner))
        and hasattr(inner.handle, "numpy")
        and inner.handle.device in devices
        and _is_stored(inner.dtype)
    )


def _specs(trackable: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    """Key → tensor or spec of a trackable, as TensorFlow's saver gathers them."""
    answers = serialize(trackable)
    ends = ["/" + escape_local_name(name) for name in answers]
    if len(keys) != len(ends) or not all(map(str.endswith, keys, ends)):
        raise ChangedError
    specs = dict(zip(keys, answers.values(), strict=True))
    for key, spec in specs.items():
        if isinstance(spec, SaveSpec):
            spec.name, spec.slice_spec = key, ""
    return specs


def read_specs(specs: dict[str, Any]) -> None:
    """Replace specs that read when they are written by the current tensors."""
    for key, spec in list(specs.items()):
        if isinstance(spec, dict):  # the parts of a sliced variable
            read_specs(spec)
        elif isinstance(spec, (tf.Variable, Sharded)):  # Keras 3 under a strategy
            specs[key] = raw(spec).read_value()
        elif isinstance(spec, SaveSpec):
            with tf.device(spec.device):
                tensor = spec.tensor
            if isinstance(tensor, tf.Variable):  # as for a value of the first replica only
                tensor = raw(tensor).read_value()
            if tensor is None:  # in the object graph, but without a value
                del specs[key]
            elif is_for_dtensor(spec):
                specs[key] = as_one_tensor(key, tensor)
            else:
                specs[key] = SaveSpec(tensor, spec.slice_spec, spec.name, spec.dtype, spec.device)


def _taken_out(tensors: Any) -> dict[str, Any]:
    """Remove and return, by key, the tensors that can be written without TensorFlow."""
    own: dict[str, Any] = {}
    devices = _devices()
    for trackable, specs in list(tensors.items()):
        for key, spec in list(specs.items()):
            tensor = spec.tensor if _is_whole(spec) else spec
            if _is_plain(tensor, devices) and key not in own:
                own[key] = tensor
                del specs[key]
        if not specs:
            del tensors[trackable]
    return own


def _is_whole(spec: Any) -> bool:
    """Whether a spec is for a whole tensor under a constant name."""
    return isinstance(spec, SaveSpec) and not spec.slice_spec and isinstance(spec.name, str)


def _is_plain(tensor: Any, devices: frozenset[str]) -> bool:
    """Whether it is an eager tensor on one of these devices, of a dtype that a bundle can hold."""
    if not isinstance(tensor, tf.Tensor) or not hasattr(tensor, "numpy"):
        return False
    return _is_stored(tensor.dtype) and tensor.device in devices


def _is_stored(dtype: Any) -> bool:
    return dtype.name in ITEM_BYTES or dtype.name == "string"


def _devices() -> frozenset[str]:
    """The names of this process's devices, as tensors have them; no custom devices."""
    task = tf.constant(0).device.partition("/device:")[0]
    return frozenset(task + device.name for device in tf.config.list_logical_devices())
