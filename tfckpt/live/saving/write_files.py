"""The files of a save: most values without TensorFlow, the rest by it, under one index.

What TensorFlow alone can write (slices of a variable, iterators, what registered savers have) it
writes first, as a checkpoint of its own under the same prefix. Its data files then go by the number
of all of them, ours follow, and an index of both takes the place of its own. Where the options ask
for what only TensorFlow does, it writes everything.

What is on an accelerator is copied off when its turn comes, a large value piece by piece.
"""

from __future__ import annotations

import copy
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.stored.bundles.bundle import data_path, index_path
from tfckpt.stored.bundles.encoding.index_proto import DTYPES
from tfckpt.stored.bundles.index import ITEM_BYTES
from tfckpt.stored.bundles.writing.parallel_write import (
    BundleValue,
    Target,
    files_for,
    write_side_by_side,
)
from tfckpt.stored.bundles.writing.write import encode_index, read_coded
from tfckpt.stored.io.files import Files, join

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfckpt.live.saving.save import SaveOptions
    from tfckpt.live.saving.snapshot import Snapshot
    from tfckpt.stored.commits.staging import Staging

PIECE = 1 << 26  # bytes that are copied off an accelerator at a time


def by_tensorflow(options: Any) -> bool:
    """Whether ``tf.train.CheckpointOptions`` ask for what TensorFlow alone does."""
    return bool(options.experimental_io_device or options.experimental_sharding_callback)


def write_files(
    staging: Staging, snapshot: Snapshot, options: Any, terms: SaveOptions
) -> frozenset[str]:
    """Write data files and index; when this returns, they are on disk.

    Args:
        staging: where to, and in which numbers of data files not.
        snapshot: what to write; its tensors are let go one by one.
        options: ``tf.train.CheckpointOptions``, for TensorFlow's part.
        terms: how much at a time, and by which file system.

    Returns:
        The keys of the weights, slots and arrays of numbers that are not finite.

    Raises:
        OSError: it could not be written.
        tf.errors.OpError: TensorFlow could not write its part.
    """
    files, tensors = terms.files, snapshot.tensors
    prefix, taken = staging.inner, staging.shard_counts
    if snapshot.others:
        snapshot.write_others(prefix, options if tensors else _in_other_shards(options, taken))
        _sync_all(prefix, files)
    nonfinite_keys = snapshot.nonfinite_others()
    if not tensors:
        return frozenset(nonfinite_keys)
    theirs, coded = read_coded(prefix, files) if snapshot.others else (0, [])
    looked = snapshot.computed()
    values = [_value(key, tensors.pop(key), key in looked) for key in sorted(tensors)]
    ours = files_for(sum(value.nbytes for value in values))
    while theirs + ours in taken:
        ours += 1
    place = Target(staging.data, range(theirs, theirs + ours), theirs + ours, files)
    for shard in range(theirs):
        old, new = (data_path(prefix, shard, number) for number in (theirs, place.num_shards))
        files.rename(old, new)
    written = write_side_by_side(values, _pieces, place, terms.pace)
    index = encode_index([*coded, *written.coded], place.num_shards)
    files.write_atomic(index_path(prefix), index)
    return frozenset([*nonfinite_keys, *written.nonfinite])


def _sync_all(prefix: str, files: Files) -> None:
    """What TensorFlow and registered savers wrote is on disk."""
    directory, name = os.path.split(prefix)
    for file in files.listdir(directory):
        if file.startswith(name) and file != f"{name}_temp":
            files.fsync(join(directory, file))


def _value(key: str, tensor: Any, look: bool) -> BundleValue:
    dtype, shape = DTYPES[tensor._datatype_enum()], tensor._shape_tuple()
    nbytes = math.prod(shape) * ITEM_BYTES.get(dtype, 0)
    return BundleValue(key, dtype, shape, nbytes, look, tensor)


def _pieces(value: BundleValue) -> Iterable[np.ndarray]:
    """The bytes of an eager tensor: in place where it is on the CPU, else some at a time."""
    tensor = value.held
    if value.dtype == "string":
        return (np.array(tensor._numpy_internal(), object),)
    if value.nbytes <= PIECE or tensor.device.endswith("CPU:0"):
        return (np.asarray(tensor._numpy_internal()),)
    return _taken_off(tensor, PIECE // ITEM_BYTES[value.dtype])


def _taken_off(tensor: Any, count: int) -> Iterator[np.ndarray]:
    with tf.device(tensor.device):
        flat = tf.reshape(tensor, [-1])
    for start in range(0, flat.shape[0], count):
        with tf.device(tensor.device):
            piece = flat[start : start + count]
        yield np.asarray(piece._numpy_internal())


class _OtherShards(tf.train.experimental.ShardByTaskPolicy):  # type: ignore[misc]
    """Shards in another number than those that are in place, so that both can stand side by side.

    TensorFlow writes one data file for each shard; an empty one it cannot write.
    """

    description = "In another number than the checkpoint that is replaced has."

    def __init__(self, base: Any, taken: frozenset[int]) -> None:
        self._base = base or tf.train.experimental.ShardByTaskPolicy()
        self._taken = taken

    def __call__(self, tensors: Sequence[Any]) -> Sequence[Any]:
        shards = [dict(shard) for shard in self._base(tensors)]
        while len(shards) in self._taken:
            largest = max(shards, key=len)
            if len(largest) < 2:
                break
            key = next(iter(largest))
            shards.append({key: largest.pop(key)})
        return shards


def _in_other_shards(options: Any, taken: frozenset[int]) -> Any:
    if not taken:
        return options
    options = copy.copy(options)
    base = options.experimental_sharding_callback
    options.experimental_sharding_callback = _OtherShards(base, taken)
    return options
