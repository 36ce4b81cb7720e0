"""TensorFlow's eager runtime: what a handle refers to, operations, generators, workers.

Seen in TensorFlow 2.16 to 2.21.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfckpt.live.private.tensorflow import needed, optional

with needed("tensorflow"):
    from tensorflow.python.eager import context as _context
    from tensorflow.python.framework import op_def_registry as _op_defs
    from tensorflow.python.ops import stateful_random_ops as _random_ops


def current() -> Any:
    return _context.context()


# Variables


def variable_dtype(handle: Any) -> Any:
    """The dtype of the variable behind a handle; None for anything else."""
    if handle.dtype != tf.resource:
        return None
    known = handle._handle_data
    if known is None or not known.is_set or not known.shape_and_type:
        return None
    return tf.as_dtype(known.shape_and_type[0].dtype)


# Operations


def operation(name: str) -> Any:
    """The definition of an operation, or None."""
    return _op_defs.get(name)


def is_deterministic() -> bool:
    """Whether ``enable_op_determinism`` was called; if unknown, it counts as not called."""
    ask = optional("tensorflow.python.framework.config", "is_op_determinism_enabled")
    return ask is not None and bool(ask())


# Random generators


def global_seed() -> int | None:
    """The last seed passed to ``tf.random.set_seed``, or None."""
    seed = _context.global_seed()
    return None if seed is None else int(seed)


def seeds_of_operations() -> Any:
    """Python's generator that seeds each eager random operation, once a global seed is set."""
    return current()._rng


def global_generator() -> Any:
    """The generator of ``tf.random``; None if it was not used yet, where that is known."""
    if not hasattr(_random_ops, "global_generator"):
        return tf.random.get_global_generator()
    return _random_ops.global_generator


# Workers of a strategy, and the service that they exchange messages by


def has_service() -> bool:
    """Whether there may be several workers, by TensorFlow's configuration, or if unknown."""
    return getattr(current(), "coordination_service", True) is not None


def uses_service() -> bool:
    """Whether workers can exchange messages."""
    return bool(current().coordination_service.service_type)


def put(key: str, text: str) -> None:
    """Tell all workers a text."""
    current().set_config_key_value(key, text)


def get(key: str, milliseconds: int) -> str:
    """Wait for a text."""
    found: str = current().get_config_key_value(key, milliseconds)
    return found


def delete(key: str) -> None:
    current().delete_config_key_value(key)
