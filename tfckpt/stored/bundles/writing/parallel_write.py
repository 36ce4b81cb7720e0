"""Writes the data files of a save in parallel, one thread per file.

Two threads fill the disk cache faster than one, and one file is checksummed while another is
copied. A small checkpoint is a single file, written by the calling thread. A value is released once
its bytes are written, which frees values that training has replaced meanwhile.

A failure or interrupt in one thread stops the others at their next write, and is raised when all
have ended. Where no more threads can be started, one writes all files.
"""

from __future__ import annotations

import collections
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.stored.bundles.bundle import data_path
from tfckpt.stored.bundles.parallel_read import Parallel, cores
from tfckpt.stored.bundles.writing.shard import FOREGROUND, ChunkSizes, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np

    from tfckpt.core.inventory import Shape
    from tfckpt.stored.io.files import Files

ONE_FILE = 1 << 25  # splitting a smaller checkpoint costs more than it saves
MOST = 4


class BundleValue(NamedTuple):
    """A value to write.

    Attributes:
        key: in the checkpoint.
        dtype: TensorFlow's name of the dtype.
        shape: of the value.
        nbytes: its size, by which it is assigned to a data file.
        look: whether to check that it is finite.
        held: the source of its bytes.
    """

    key: str
    dtype: str
    shape: Shape
    nbytes: int
    look: bool
    held: Any


class Target(NamedTuple):
    """The data files to write.

    Attributes:
        prefix: of the checkpoint.
        shards: the numbers of the files.
        num_shards: the total number, including files that others write.
        files: the file system.
    """

    prefix: str
    shards: range
    num_shards: int
    files: Files


class Written(NamedTuple):
    """The result of writing.

    Attributes:
        coded: encoded key and index entry of each value.
        nonfinite: keys of checked values that are not finite.
    """

    coded: list[tuple[bytes, bytes]]
    nonfinite: list[str]


def files_for(nbytes: int) -> int:
    """The number of data files for a checkpoint of ``nbytes``.

    >>> files_for(1 << 20)
    1
    """
    return 1 if nbytes < ONE_FILE else min(MOST, cores())


def write_in_parallel(
    values: list[BundleValue],
    read: Callable[[BundleValue], Iterable[np.ndarray]],
    target: Target,
    chunk_sizes: ChunkSizes = FOREGROUND,
) -> Written:
    """Write data files; on return they are on disk."""
    parts = _divided(values, len(target.shards))
    values.clear()
    parallel = Parallel()
    opened: list[Shard] = []
    with contextlib.ExitStack() as stack:
        for number in target.shards:
            path = data_path(target.prefix, number, target.num_shards)
            opened.append(Shard(path, number, target.files, chunk_sizes, parallel.go_on))
            stack.callback(opened[-1].close)
        fills = [partial(_fill, *each, read) for each in zip(opened, parts, strict=True)]
        parallel.run(fills)
    return Written(
        [each for shard in opened for each in shard.coded],
        [key for shard in opened for key in shard.nonfinite],
    )


def _divided(values: Sequence[BundleValue], count: int) -> list[collections.deque[BundleValue]]:
    """The values of each file, in order; the files have about the same size."""
    if count == 1:
        return [collections.deque(values)]
    sizes, chosen = [0] * count, [0] * len(values)
    for at in sorted(range(len(values)), key=lambda at: -values[at].nbytes):
        chosen[at] = least = sizes.index(min(sizes))
        sizes[least] += values[at].nbytes
    parts: list[collections.deque[BundleValue]] = [collections.deque() for _ in sizes]
    for value, number in zip(values, chosen, strict=True):
        parts[number].append(value)
    return parts


def _fill(
    shard: Shard,
    values: collections.deque[BundleValue],
    read: Callable[[BundleValue], Iterable[np.ndarray]],
) -> None:
    try:
        shard.reserve(sum(value.nbytes for value in values))
        while values:
            _add(shard, values.popleft(), read)
        shard.finish()
    finally:
        values.clear()  # otherwise a traceback would keep them alive


def _add(
    shard: Shard, value: BundleValue, read: Callable[[BundleValue], Iterable[np.ndarray]]
) -> None:
    key, dtype, shape, nbytes, look, _ = value
    shard.add_pieces(key, dtype, shape, nbytes, read(value), look=look)
