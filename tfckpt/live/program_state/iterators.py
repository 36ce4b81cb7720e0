"""The data of a training: iterators that can be saved, and those that can only be asked again.

TensorFlow saves an iterator with its shuffle buffer, but nothing that an operation of the pipeline
keeps outside of it: the state of ``tf.random`` operations, of Python functions and generators, and
of variables, which are saved beside it (:mod:`tfckpt.live.program_state.captured`). By default it
refuses such a pipeline; Keras's own for NumPy arrays has that check turned off, so it is asked for
here. It looks only at what has run, so that an answer counts once a batch was taken.

A shuffle takes new seeds for every pass from a counter that all iterators of the dataset share.
Keras's loop makes as many iterators again, which counts as many passes, but not those of a shuffle
that another one or a repetition calls. And to restore an iterator whose shuffle was at its end
counts one pass too many (tensorflow/core/kernels/data/shuffle_dataset_op.cc), which is put right.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.live.io.tf_restore import restore_objects
from tfckpt.live.objects.datasets import all_below
from tfckpt.live.program_state.captured import SavedIterator, serialized

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.live.program_state.captured import Captured

RAN_OUT = (StopIteration, tf.errors.OutOfRangeError)
SAVED, COUNTED, REPLAYED = "saved", "counted", "replayed"
_LOOKED_AT = 4096  # numbers of a tensor, from its first to its last
_FAIL = tf.data.experimental.ExternalStatePolicy.FAIL.value
_IGNORE = tf.data.experimental.ExternalStatePolicy.IGNORE


def kind_of(iterator: Any, found: Captured, *, seeded: bool, iterators: int = 1) -> str:
    """How to come to the same batch again.

    Args:
        iterator: what a train function takes its batches from.
        found: what the functions of its dataset hold and do.
        seeded: whether a global seed is set, without which random operations draw anew.
        iterators: how many of the dataset were made for training.

    Returns:
        ``saved`` where the iterator can be; ``counted`` where a new one gives the same batches
        again; ``replayed`` where they depend on all that were given before.
    """
    if not isinstance(iterator, tf.data.Iterator):  # of a strategy: nothing is known of it
        return REPLAYED
    dataset = iterator._dataset
    alone = iterators == 1 and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
    if seeded and not alone and not _one_pass(dataset):
        return REPLAYED
    try:
        tf.raw_ops.SerializeIterator(
            resource_handle=iterator._iterator_resource, external_state_policy=_FAIL
        )
    except tf.errors.OpError as error:
        if not _draws_only(error.message, found):
            return REPLAYED
        if found.handles:
            return REPLAYED if found.stateful else SAVED
        options = dataset.options().experimental_external_state_policy
        return COUNTED if seeded or options != _IGNORE else SAVED
    return SAVED


def _draws_only(refusal: str, found: Captured) -> bool:
    """Whether what TensorFlow refuses to save draws random numbers, or is in variables."""
    operation = re.search(r"(\w+) is stateful", refusal)
    known = operation is None or operation[1] in found.operations
    others = ("PyFunc", "Generator", "Table")
    return known and not any(each in text for each in others for text in (refusal, *found.stateful))


def draws(iterator: Any, found: Captured, *, seeded: bool) -> bool:
    """Whether the dataset draws by no seed, so that another process has another order.

    A shuffle in a function that is mapped over a dataset is not seen.
    """
    if not seeded and kind_of(iterator, found, seeded=True) == COUNTED:
        return True
    dataset = getattr(iterator, "_dataset", None)
    return dataset is not None and any(unseeded for _, unseeded in _shuffles(dataset))


def _one_pass(dataset: Any) -> bool:
    """Whether each iterator counts one pass of each shuffle, as soon as it is made."""
    return not any(called for called, _ in _shuffles(dataset))


def _shuffles(dataset: Any) -> Iterator[tuple[bool, bool]]:
    """Of each shuffle: whether another or a repetition calls it, and whether it has no seed."""
    pipeline = list(all_below(dataset))
    calling = [each for each in pipeline if _seeds(each) or type(each).__name__ == "_RepeatDataset"]
    inputs = (below for each in calling for below in each._inputs())
    called = set(map(id, all_below(*inputs)))
    for each in pipeline:
        if (seeds := _seeds(each)) and getattr(each, "_reshuffle_each_iteration", True):
            yield id(each) in called, not any(map(int, seeds))


def _seeds(dataset: Any) -> list[Any]:
    """Both of a shuffle; none of another data set."""
    seeds = [getattr(dataset, name, None) for name in ("_seed", "_seed2")]
    return [] if None in seeds else seeds


def element_of(iterator: Any) -> str:
    """Types and shapes of a batch, as text to compare."""
    return str(tf.nest.map_structure(str, iterator.element_spec))


def content_of(iterator: Any) -> str:
    """A checksum of some numbers of the tensors that its dataset is made of; "" where it has none.

    Text is left out: names of files may differ where the files do not.
    """
    checksum, found = 0, False
    dataset = getattr(iterator, "_dataset", None)
    for each in () if dataset is None else all_below(dataset):
        for tensor in getattr(each, "_tensors", ()):
            if isinstance(tensor, tf.__internal__.EagerTensor) and tensor.dtype.is_numpy_compatible:
                array = np.asarray(tensor)  # which copies nothing
                if array.dtype.kind == "O" or not array.size:
                    continue
                places = np.linspace(0, array.size - 1, _LOOKED_AT).astype(np.int64)
                some = f"{array.dtype}{array.shape}".encode() + array.flat[places].tobytes()
                checksum, found = zlib.crc32(some, checksum), True
    return f"{checksum:08x}" if found else ""


def size_of(iterator: Any) -> int | None:
    """How many batches its dataset has, None where that is not known, or without an end."""
    dataset = getattr(iterator, "_dataset", None)
    size = -1 if dataset is None else int(dataset.cardinality())
    return size if size >= 0 else None


def pull(iterator: Any, count: int) -> int:
    """Take batches and drop them; how many there were."""
    taken = 0
    with contextlib.suppress(*RAN_OUT):
        while taken < count:
            iterator.get_next()
            taken += 1
    return taken


class StoredState(tf.Module):  # type: ignore[misc]
    """What the checkpoint holds of a training besides the objects given to it."""

    def __init__(self, iterator: Any, arrays: Sequence[Any]) -> None:
        super().__init__()
        if iterator is not None:
            self.iterator = iterator
        for place, value in enumerate(arrays):
            setattr(self, f"array_{place}", tf.Variable(value, trainable=False))


def mark(iterator: Any) -> Any:
    """What counts the passes of its dataset, before a batch was taken; None where none needs it."""
    if not _one_pass(iterator._dataset):
        return None
    return serialized(iterator._iterator_resource)


def place(prefix: str, key: str, iterator: Any, marked: Any) -> None:
    """Give an iterator the state that is stored under a key, and leave the count of passes."""
    restore_objects(prefix, {key: SavedIterator(iterator)})
    _leave_passes(iterator, marked)


def stop(iterator: Any, marked: Any) -> None:
    """Nothing runs ahead of it any more, until it is asked for the next batch."""
    resource = iterator._iterator_resource
    tf.raw_ops.DeserializeIterator(resource_handle=resource, serialized=serialized(resource))
    _leave_passes(iterator, marked)


def _leave_passes(iterator: Any, marked: Any) -> None:
    if marked is not None:
        another = iter(iterator._dataset)
        tf.raw_ops.DeserializeIterator(
            resource_handle=another._iterator_resource, serialized=marked
        )


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
