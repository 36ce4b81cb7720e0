"""Writes a TensorFlow checkpoint without TensorFlow, one value at a time.

Three steps: assign values to data files (:func:`spread`), write the data files (:class:`Shard`),
and write the index from what the shards contain. A save writes several files in parallel by the
same steps: :mod:`tfckpt.stored.bundles.writing.parallel_write`.

Nothing here is atomic: files are written into a staging directory and moved into place by
:mod:`tfckpt.stored.commits.staging`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.stored.bundles.bundle import data_path, index_path
from tfckpt.stored.bundles.index import BundleEntry, encode_header
from tfckpt.stored.bundles.table import build_table, read_table
from tfckpt.stored.bundles.writing.shard import Shard
from tfckpt.stored.io.files import LOCAL, Files, content
from tfckpt.stored.io.messages import BundleHeader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from typing_extensions import Self


def spread(sizes: Sequence[int], limit: int | None) -> list[int]:
    """The data file number of each value: filled in order, up to ``limit`` bytes each.

    A value is never split; one larger than ``limit`` has a data file of its own.

    >>> spread([4, 4, 9, 1, 0], 8), spread([4, 4, 9], None)
    ([0, 0, 1, 2, 2], [0, 0, 0])
    """
    shards, shard, filled = [], 0, 0
    for size in sizes:
        if limit is not None and filled and filled + size > limit:
            shard, filled = shard + 1, 0
        filled += size
        shards.append(shard)
    return shards


def encode_index(coded: Iterable[tuple[bytes, bytes]], num_shards: int) -> bytes:
    """The content of an index file, from encoded keys and entries in any order."""
    return build_table([(b"", encode_header(num_shards)), *sorted(coded)])


def read_coded(prefix: str, files: Files = LOCAL) -> tuple[int, list[tuple[bytes, bytes]]]:
    """The number of data files of a checkpoint, and its encoded index entries."""
    path = index_path(prefix)
    (_, header), *coded = read_table(content(path, files), path)
    return BundleHeader.FromString(header).num_shards, coded


class BundleWriter:
    """Writes the files of a checkpoint, one value at a time; a context manager.

    >>> import numpy as np, tempfile
    >>> from tfckpt.stored.bundles.bundle import Bundle
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with BundleWriter(f"{directory}/ckpt-1") as writer:
    ...         writer.add("v", np.arange(3, dtype=np.float32))
    ...         writer.finish()
    ...     with Bundle.open(f"{directory}/ckpt-1") as bundle:
    ...         bundle.read("v")
    array([0., 1., 2.], dtype=float32)
    """

    def __init__(
        self, prefix: str, num_shards: int = 1, files: Files = LOCAL, *, data: str = ""
    ) -> None:
        self._prefix = prefix
        self._files = files
        self._shards: list[Shard] = []
        try:
            for number in range(num_shards):
                path = data_path(data or prefix, number, num_shards)
                self._shards.append(Shard(path, number, files))
        except BaseException:
            self.close()
            raise

    def add(self, key: str, array: np.ndarray, shard: int = 0) -> None:
        """Write a value under a new key."""
        self._shards[shard].add(key, array)

    def add_raw(self, key: str, entry: BundleEntry, data: bytes, shard: int = 0) -> None:
        """Write the stored bytes of a value, with its entry in another index."""
        self._shards[shard].add_raw(key, entry, data)

    def finish(self) -> None:
        """Write the index; on return everything is on disk."""
        for shard in self._shards:
            shard.finish()
        coded = [each for shard in self._shards for each in shard.coded]
        content = encode_index(coded, len(self._shards))
        self._files.write_atomic(index_path(self._prefix), content)

    def close(self) -> None:
        for shard in self._shards:
            shard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
