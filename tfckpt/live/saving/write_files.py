"""Writes the files of a save: most values without TensorFlow, the rest by it, under one index.

TensorFlow first writes what only it can write (slices of variables, iterators, registered savers),
as a checkpoint under the same prefix. Its data files are then renamed for the total number of
files, ours follow, and one index of both replaces its own. If the options ask for features that
only TensorFlow has, it writes everything.

Values on an accelerator are copied to the host when they are written, large ones in pieces.
"""

from __future__ import annotations

import copy
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.core.dtypes import DTYPES, ITEM_BYTES
from tfckpt.live.io.local_copies import writable
from tfckpt.live.variables.variables import array_of
from tfckpt.stored.bundles.bundle import data_path, index_path
from tfckpt.stored.bundles.write import (
    BundleValue,
    Target,
    encode_index,
    files_for,
    read_coded,
    write_in_parallel,
)
from tfckpt.stored.io.files import Files, join

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfckpt.live.saving.save import SaveOptions
    from tfckpt.live.saving.snapshot import Snapshot
    from tfckpt.stored.commits.staging import Staging

PIECE = 1 << 26  # bytes that are copied off an accelerator at a time


def by_tensorflow(options: Any) -> bool:
    """Whether ``tf.train.CheckpointOptions`` ask for features that only TensorFlow has."""
    return bool(options.experimental_io_device or options.experimental_sharding_callback)


def write_files(
    staging: Staging, snapshot: Snapshot, options: Any, save_options: SaveOptions
) -> frozenset[str]:
    """Write data files and index to disk; frees the tensors of the snapshot one by one.

    ``options`` are for TensorFlow's part. Returns the keys of weights, slots and arrays that hold
    NaN or infinity.
    """
    files, tensors = save_options.files, snapshot.tensors
    prefix, taken = staging.inner, staging.shard_counts
    if snapshot.others:
        with writable(prefix, files) as path:
            snapshot.write_others(path, options if tensors else _in_other_shards(options, taken))
        _sync_all(prefix, files)
    nonfinite_keys = snapshot.nonfinite_others()
    if not tensors:
        return frozenset(nonfinite_keys)
    their_shards, coded = read_coded(prefix, files) if snapshot.others else (0, [])
    computed = snapshot.computed()
    values = [_value(key, tensors.pop(key), key in computed) for key in sorted(tensors)]
    our_shards = files_for(sum(value.nbytes for value in values))
    while their_shards + our_shards in taken:
        our_shards += 1
    target = Target(
        staging.data,
        range(their_shards, their_shards + our_shards),
        their_shards + our_shards,
        files,
    )
    for shard in range(their_shards):
        old, new = (
            data_path(prefix, shard, number) for number in (their_shards, target.num_shards)
        )
        files.rename(old, new)
    written = write_in_parallel(values, _pieces, target, save_options.chunk)
    index = encode_index([*coded, *written.coded], target.num_shards)
    files.write_atomic(index_path(prefix), index)
    return frozenset([*nonfinite_keys, *written.nonfinite])


def _sync_all(prefix: str, files: Files) -> None:
    """Sync the files that TensorFlow and registered savers wrote."""
    directory, name = os.path.split(prefix)
    for file in files.listdir(directory):
        if file.startswith(name) and file != f"{name}_temp":
            files.fsync(join(directory, file))


def _value(key: str, tensor: Any, check_finite: bool) -> BundleValue:
    dtype, shape = DTYPES[tensor.dtype.as_datatype_enum], tuple(tensor.shape)
    nbytes = math.prod(shape) * ITEM_BYTES.get(dtype, 0)
    return BundleValue(key, dtype, shape, nbytes, check_finite, tensor)


def _pieces(value: BundleValue) -> Iterable[np.ndarray]:
    """The bytes of an eager tensor: without a copy on the CPU, else in pieces."""
    tensor = value.held
    if value.dtype == "string":
        return (np.array(tensor.numpy(), object),)
    if value.nbytes <= PIECE or tensor.device.endswith("CPU:0"):
        return (array_of(tensor),)
    return _taken_off(tensor, PIECE // ITEM_BYTES[value.dtype])


def _taken_off(tensor: Any, count: int) -> Iterator[np.ndarray]:
    with tf.device(tensor.device):
        flat = tf.reshape(tensor, [-1])
    for start in range(0, flat.shape[0], count):
        with tf.device(tensor.device):
            piece = flat[start : start + count]
        yield np.asarray(piece)


class _OtherShards(tf.train.experimental.ShardByTaskPolicy):  # type: ignore[misc]
    """Writes another number of shards than the existing files have, so that both can coexist.

    TensorFlow writes one data file for each shard, and cannot write an empty one.
    """

    description = "Another number of shards than the checkpoint that is replaced."

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
