"""Writes the files of a save: most values without TensorFlow, the rest by it, under one index.

TensorFlow first writes what only it can write (slices of variables, iterators, registered savers),
as a checkpoint of its own. Its data files are then renamed for the total number of files, ours
follow, and one index of both takes the place of its own. If the options ask for features that only
TensorFlow has, it writes everything.

Values on an accelerator are copied to the host when they are written, large ones in pieces.
"""

from __future__ import annotations

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
from tfckpt.stored.commits.record_file import PART
from tfckpt.stored.io.files import Files, join

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfckpt.live.saving.save import SaveOptions
    from tfckpt.live.saving.snapshot import Snapshot

PIECE = 1 << 26  # bytes that are copied off an accelerator at a time


def by_tensorflow(options: Any) -> bool:
    """Whether ``tf.train.CheckpointOptions`` ask for features that only TensorFlow has."""
    return bool(options.experimental_io_device or options.experimental_sharding_callback)


def write_files(
    prefix: str,
    snapshot: Snapshot,
    options: Any,
    save_options: SaveOptions,
    taken: frozenset[int],
) -> tuple[bytes, frozenset[str]]:
    """Write data files to disk; frees the tensors of the snapshot one by one.

    ``options`` are for TensorFlow's part; ``taken`` are total numbers of files that others have.
    Returns the index, and the keys of weights, slots and arrays that hold NaN or infinity.
    """
    files, tensors = save_options.files, snapshot.tensors
    part, theirs = join(prefix + PART, os.path.split(prefix)[1]), 0
    coded: list[tuple[bytes, bytes]] = []
    if snapshot.others:
        files.makedirs(prefix + PART)
        with writable(part, files) as path:
            snapshot.write_others(path, options)
        _sync_all(part, files)
        theirs, coded = read_coded(part, files)
    nonfinite = snapshot.nonfinite_others()
    computed = snapshot.computed()
    values = [_value(key, tensors.pop(key), key in computed) for key in sorted(tensors)]
    ours = files_for(sum(value.nbytes for value in values)) if values else 0
    while theirs + ours in taken:
        ours += 1
    target = Target(prefix, range(theirs, theirs + ours), theirs + ours, files)
    for shard in range(theirs):
        old, new = data_path(part, shard, theirs), data_path(prefix, shard, target.num_shards)
        files.rename(old, new)
    if theirs:
        files.remove(index_path(part))
    written = write_in_parallel(values, _pieces, target, save_options.chunk)
    index = encode_index([*coded, *written.coded], target.num_shards)
    return index, frozenset([*nonfinite, *written.nonfinite])


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
