"""The data of a training: iterators that can be saved, and those that can only be asked again.

TensorFlow saves an iterator with its shuffle buffer, but nothing that an operation of the pipeline
keeps outside of it: the state of ``tf.random`` operations, of Python functions and generators. By
default it refuses such a pipeline; Keras's own for NumPy arrays has that check turned off, so it is
asked for here. It looks only at what has run, so that an answer counts once a batch was taken.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.live.delayed import restore_objects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RAN_OUT = (StopIteration, tf.errors.OutOfRangeError)
SAVED, COUNTED, REPLAYED = "saved", "counted", "replayed"
_FAIL = tf.data.experimental.ExternalStatePolicy.FAIL.value
_IGNORE = tf.data.experimental.ExternalStatePolicy.IGNORE


def kind_of(iterator: Any, *, seeded: bool) -> str:
    """How to come to the same batch again.

    Args:
        iterator: what a train function takes its batches from.
        seeded: whether a global seed is set, without which random operations draw anew.

    Returns:
        ``saved`` where the iterator can be; ``counted`` where a new one gives the same batches
        again; ``replayed`` where Python gives the batches, which depend on all it gave before.
    """
    if not isinstance(iterator, tf.data.Iterator):
        return COUNTED
    try:
        tf.raw_ops.SerializeIterator(
            resource_handle=iterator._iterator_resource, external_state_policy=_FAIL
        )
    except tf.errors.OpError as error:
        if "PyFunc" in error.message or "Generator" in error.message:
            return REPLAYED
        options = iterator._dataset.options().experimental_external_state_policy
        return COUNTED if seeded or options != _IGNORE else SAVED
    return SAVED


def draws(iterator: Any, *, seeded: bool) -> bool:
    """Whether the dataset draws by no seed, so that another process has another order.

    A shuffle in a function that is mapped over a dataset is not seen.
    """
    if not seeded and kind_of(iterator, seeded=True) == COUNTED:
        return True
    waiting = [getattr(iterator, "_dataset", None)]
    while waiting:
        dataset = waiting.pop()
        if dataset is None:
            continue
        seeds = [getattr(dataset, name, None) for name in ("_seed", "_seed2")]
        if all(seed is not None and not int(seed) for seed in seeds):
            return True
        waiting += dataset._inputs()
    return False


def element_of(iterator: Any) -> str:
    """Types and shapes of a batch, as text to compare."""
    return str(tf.nest.map_structure(str, iterator.element_spec))


def pull(iterator: Any, count: int) -> int:
    """Take batches and drop them; how many there were."""
    taken = 0
    with contextlib.suppress(*RAN_OUT):
        while taken < count:
            iterator.get_next()
            taken += 1
    return taken


class Held(tf.Module):  # type: ignore[misc]
    """What the checkpoint holds of a training besides the objects given to it."""

    def __init__(self, iterator: Any, arrays: Sequence[Any]) -> None:
        super().__init__()
        if iterator is not None:
            self.iterator = iterator
        for place, value in enumerate(arrays):
            setattr(self, f"array_{place}", tf.Variable(value, trainable=False))


def place(prefix: str, key: str, iterator: Any) -> None:
    """Give an iterator the state that is stored under a key."""
    restore_objects(prefix, {key: iterator})


def with_numbers(logs: Any, numbers: Mapping[str, float]) -> Any:
    """Logs of the same types with other numbers, where they are known."""
    if not isinstance(logs, dict):
        return logs
    return {
        name: tf.constant(numbers[name], tf.as_dtype(value.dtype))
        if name in numbers and hasattr(value, "dtype")
        else value
        for name, value in logs.items()
    }


def numbers_in(logs: Any) -> dict[str, float]:
    """Those of the logs that are numbers."""
    found = {}
    for name, value in (logs or {}).items() if isinstance(logs, dict) else ():
        array = np.asarray(value)
        if array.ndim == 0 and array.dtype.kind in "fiu":
            found[str(name)] = float(array)
    return found
