"""The files of a save: most values without TensorFlow, the rest by it, under one index.

What TensorFlow alone can write (slices of a variable, iterators, what registered savers have) it
writes first, as a checkpoint of its own under the same prefix. Its data files then go by the number
of all of them, ours follow, and an index of both takes the place of its own. Where the options ask
for what only TensorFlow does, it writes everything.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.stored.bundles.bundle import data_path
from tfckpt.stored.bundles.writer import BundleWriter, read_coded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.live.snapshot import Snapshot
    from tfckpt.stored.commits.staging import Staging
    from tfckpt.stored.files import Files


def by_tensorflow(options: Any) -> bool:
    """Whether ``tf.train.CheckpointOptions`` ask for what TensorFlow alone does."""
    return bool(options.experimental_io_device or options.experimental_sharding_callback)


def write_files(staging: Staging, snapshot: Snapshot, options: Any, files: Files) -> None:
    """Write data files and index.

    Args:
        staging: where to, and in which numbers of data files not.
        snapshot: what to write.
        options: ``tf.train.CheckpointOptions``, for TensorFlow's part.
        files: of the staging.

    Raises:
        OSError: it could not be written.
        tf.errors.OpError: TensorFlow could not write its part.
    """
    prefix, taken = staging.inner, staging.shard_counts
    if not snapshot.tensors:
        snapshot.write_others(prefix, _in_other_shards(options, taken))
        return
    theirs: int = 0
    coded: list[tuple[bytes, bytes]] = []
    if snapshot.others:
        snapshot.write_others(prefix, options)
        theirs, coded = read_coded(prefix, files)
    num_shards = theirs + 1
    while num_shards in taken:
        num_shards += 1
    for shard in range(theirs):
        files.rename(data_path(prefix, shard, theirs), data_path(prefix, shard, num_shards))
    with BundleWriter(
        prefix, num_shards, files, there=theirs, more=coded, data=staging.data
    ) as writer:
        for key in sorted(snapshot.tensors, key=str.encode):
            tensor = snapshot.tensors[key]
            writer.add(key, as_array(tensor), dtype=tensor.dtype.name)
        writer.finish()


def as_array(tensor: Any) -> Any:
    """The values of an eager tensor; those on a CPU are not copied, strings are objects."""
    array = tensor._numpy_internal()
    if tensor.dtype == tf.string:
        return np.array(array, object)
    return np.asarray(array)


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
