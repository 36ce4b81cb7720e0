"""Writes the files of a checkpoint of TensorFlow's format, value by value, without TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import numpy as np

from tfckpt.core.dtypes import dtype_name
from tfckpt.stored.bundles.bundle import data_path, index_path
from tfckpt.stored.bundles.write import Shard, encode_index
from tfckpt.stored.io.files import SCRATCH, Files


def write_data(
    prefix: str,
    content: Mapping[str, np.ndarray],
    count: int = 1,
    shard_of: Callable[[str], int] = lambda key: 0,
    files: Files = SCRATCH,
) -> bytes:
    """Write ``count`` data files, the values in their order; the content of the index."""
    with contextlib.ExitStack() as stack:
        shards = [Shard(data_path(prefix, n, count), n, files) for n in range(count)]
        for shard in shards:
            stack.callback(shard.close)
        for key, value in content.items():
            shards[shard_of(key)].add(key, dtype_name(value.dtype), value.shape, (value,))
        for shard in shards:
            shard.finish()
    entries = {key: entry for shard in shards for key, entry in shard.entries.items()}
    return encode_index(prefix, entries, count)


def write_bundle(
    prefix: str,
    content: Mapping[str, np.ndarray],
    count: int = 1,
    shard_of: Callable[[str], int] = lambda key: 0,
    files: Files = SCRATCH,
) -> None:
    """The same, and then the index."""
    files.write_atomic(index_path(prefix), write_data(prefix, content, count, shard_of, files))
