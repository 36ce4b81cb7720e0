"""What only TensorFlow can restore, left to TensorFlow.

Iterators, lookup tables and other trackables that are no variables are restored by their own
methods, each alone, through a chain of empty checkpoints that spells its path in the stored graph.
Plain trackables whose variables come to exist later are given to TensorFlow's delayed restoration
as a whole; a Keras object never is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Mapping


def restore_objects(prefix: str, objects: Mapping[str, Any]) -> None:
    """Restore each object from the place that its key names.

    Args:
        prefix: of the checkpoint.
        objects: checkpoint key → live object.
    """
    for key, obj in objects.items():
        chain = obj
        for edge in reversed(_edges(key)):
            holder = tf.train.Checkpoint()
            setattr(holder, edge, chain)
            chain = holder
        chain.read(prefix).assert_nontrivial_match().expect_partial()


def _edges(key: str) -> list[str]:
    """The path in a key, TensorFlow's escapes undone (python/trackable/trackable_utils.py)."""
    path = key.partition("/.ATTRIBUTES/")[0]
    return [edge.replace(".S", "/").replace("..", ".") for edge in path.split("/")]


def restore_later(prefix: str, objects: Mapping[str, Any], options: Any) -> Any:
    """Bind plain trackables to the checkpoint, for the variables that they do not have yet."""
    return tf.train.Checkpoint(**objects).read(prefix, options)
