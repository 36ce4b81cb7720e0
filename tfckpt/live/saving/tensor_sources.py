"""Reads the tensors of a save.

``ReadVariableOp`` returns the buffer of a plain variable, which the next update copies instead of
changing it (tensorflow/core/kernels/training_op_helpers.h), or a copy where sparse updates write in
place. Everything else (distributed and sharded variables, tables, iterators, Python state) is asked
for its tensors by TensorFlow's own methods.
"""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.live.private.either_keras import value_of
from tfckpt.live.private.tensorflow import (
    SERIALIZE,
    ObjectIdentityDictionary,
    ResourceVariable,
    SaveSpec,
    Sharded,
)
from tfckpt.live.variables.variables import raw


def read(gathered: Any) -> tuple[dict[str, Any], Any]:
    """Current tensors by key, and the specs that only TensorFlow can write.

    ``gathered`` is what TensorFlow's saver has gathered: trackable → key → tensor or spec.
    """
    own: dict[str, Any] = {}
    others = ObjectIdentityDictionary()
    devices = _devices()
    for trackable, specs in gathered.items():
        if trackable is None:  # the object graph
            own.update(specs)
        elif len(specs) == 1 and _is_plain_variable(trackable, devices):
            (key,), inner = specs, raw(trackable)
            try:
                own[key] = tf.raw_ops.ReadVariableOp(resource=inner.handle, dtype=inner.dtype)
            except tf.errors.OpError:  # a variable without a value
                others[trackable] = specs
        else:
            others[trackable] = specs
    for specs in others.values():
        read_specs(specs)
    own.update(_taken_out(others, devices))
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
            else:
                specs[key] = SaveSpec(tensor, spec.slice_spec, spec.name, spec.dtype, spec.device)


def _taken_out(tensors: Any, devices: frozenset[str]) -> dict[str, Any]:
    """Remove and return, by key, the tensors that can be written without TensorFlow."""
    own: dict[str, Any] = {}
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
