"""What only TensorFlow can restore: iterators, lookup tables and other trackables but variables.

Each is restored by its own methods, alone, through a chain of empty checkpoints that spells its
path in the stored graph.
"""

from __future__ import annotations

import contextlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import RestoreError
from tfckpt.live.io.tf_paths import readable
from tfckpt.stored.graphs.keys import edges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


def restore_objects(prefix: str, objects: Mapping[str, Any]) -> None:
    """Restore each object from the place that its key names.

    Args:
        prefix: of the checkpoint.
        objects: checkpoint key → live object.
    """
    for key, obj in objects.items():
        chain = obj
        for edge in reversed(edges(key)):
            holder = tf.train.Checkpoint()
            setattr(holder, edge, chain)
            chain = holder
        chain.read(readable(prefix)).assert_existing_objects_matched().expect_partial()


@contextlib.contextmanager
def put_back_on_failure(objects: Iterable[Any]) -> Iterator[None]:
    """Where something inside fails, each object has the state again that it has now.

    An iterator that refuses a state is at its end afterwards. One whose state cannot be saved has
    that asked first, by TensorFlow, too, and is not touched.
    """
    before = [_what_puts_back(obj) for obj in objects]
    try:
        yield
    except BaseException:
        for put_back in before:
            put_back()
        raise


def _what_puts_back(obj: Any) -> Callable[[], object]:
    """Does nothing for an object whose state cannot be saved."""
    try:
        state = obj._serialize_to_tensors()
    except Exception:  # whatever a class of the user's raises
        return lambda: None
    return partial(obj._restore_from_tensors, state)


def not_taken(prefix: str, error: Exception) -> RestoreError:
    """An object that is no variable has refused what is stored for it."""
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
