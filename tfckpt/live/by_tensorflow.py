"""Restores what only TensorFlow can: iterators, lookup tables and other non-variable trackables.

Each is restored alone by its own methods, through a chain of empty checkpoints along its path in
the stored object graph.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from tfckpt.errors import RestoreError
from tfckpt.live.private.tensorflow import restore_serialized, serialize
from tfckpt.live.remote import readable_part
from tfckpt.stored.bundles.keys import edges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


def restore_objects(prefix: str, objects: Mapping[str, Any]) -> None:
    """Restore each object (checkpoint key → live object) from the state under its key."""
    with readable_part(prefix, objects) as path:
        for key, obj in objects.items():
            chain = obj
            for edge in reversed(edges(key)):
                holder = tf.train.Checkpoint()
                setattr(holder, edge, chain)
                chain = holder
            chain.read(path).assert_existing_objects_matched().expect_partial()


@contextlib.contextmanager
def put_back_on_failure(objects: Iterable[Any]) -> Iterator[None]:
    """Put the state of objects back if the body raises.

    An iterator that rejects a state is exhausted afterwards. One whose state cannot be saved is
    left alone; TensorFlow also checks that first.
    """
    before = [_what_puts_back(obj) for obj in objects]
    try:
        yield
    except BaseException:
        for put_back in before:
            put_back()
        raise


def _what_puts_back(obj: Any) -> Callable[[], object]:
    """A function that puts the state back, if it can be saved; else one that does nothing."""
    try:
        state = serialize(obj)
    except Exception:  # a user's class may raise anything
        return lambda: None

    def put_back() -> None:
        try:
            restore_serialized(obj, state)
        except Exception as error:
            logging.warning("an object other than a variable was not put back: %s", error)

    return put_back


def not_taken(prefix: str, error: Exception) -> RestoreError:
    """The error for an iterator, table or the like that rejected its stored state."""
    found = re.search(r"Failed to restore dataset iterator[^:]*: (\S+?)\.? ", str(error))
    if found is None:
        text = re.sub(r"\{\{.*?\}\} ", "", str(error))
        return RestoreError(
            f"{prefix}: an object other than a variable (an iterator or a table) rejected its "
            f"stored state, and no variable was changed: {text}",
            hint="exclude it by its name in the policy to restore the rest",
        )
    return RestoreError(
        f"{prefix}: the stored position of an iterator does not fit its dataset, whose pipeline "
        f"differs from the saved one at {found[1]}. Nothing was restored; the iterator continues "
        "from where it was",
        hint="build the dataset as it was when saved; or exclude the iterator by its name in a "
        "policy, or do not pass it to the checkpoint: the data then start from the beginning",
    )
