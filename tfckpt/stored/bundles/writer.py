"""A TensorFlow checkpoint, written without TensorFlow.

Three steps, each by itself, so that who writes faster can put them together otherwise: which data
file a value goes to (:func:`spread`); the data files, each a :class:`Shard` that is written from
its beginning to its end by one thread and knows nothing of the others; the index, which is made of
what the shards say they hold. :class:`BundleWriter` does it one value after the other.

The files are those that TensorFlow's ``BundleWriter`` writes for the same values in the same order,
byte for byte. A value passes through in chunks that are checksummed while they are in the
processor's cache, and is never copied whole; no more than one is held.

Nothing here is durable or atomic: files are written where nobody looks for them, synced and put in
place by :mod:`tfckpt.stored.commits.staging`.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import google_crc32c

from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.stored.bundles.bundle import data_path, index_path
from tfckpt.stored.bundles.encode import encode_entry, encode_header
from tfckpt.stored.bundles.index import ITEM_BYTES
from tfckpt.stored.bundles.proto import BundleEntry, parse_header
from tfckpt.stored.bundles.table import read_table
from tfckpt.stored.bundles.table_builder import build_table, mask
from tfckpt.stored.bundles.wire import put_varint
from tfckpt.stored.files import LOCAL, Files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from typing_extensions import Buffer, Self

CHUNK = 1 << 22


def spread(sizes: Sequence[int], limit: int | None) -> list[int]:
    """The number of the data file of each value: filled in order, up to ``limit`` bytes each.

    A value is never divided; one that is larger has a data file of its own.

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


def dtype_name(dtype: np.dtype) -> str:
    """TensorFlow's name of NumPy's dtype.

    Raises:
        UnsupportedCheckpointError: it has none.

    >>> import numpy as np
    >>> dtype_name(np.dtype("<f4")), dtype_name(np.dtype(object))
    ('float32', 'string')
    """
    if dtype.hasobject:
        return "string"
    name = dtype.names[0] if dtype.names else dtype.name
    if ITEM_BYTES.get(name) != dtype.itemsize:
        raise UnsupportedCheckpointError(f"TensorFlow has no dtype for NumPy's {dtype}")
    return name


class Shard:
    """One data file, value after value.

    Args:
        path: of a file that is not there yet.
        number: which of the checkpoint's data files it is.
        files: where it is.

    Attributes:
        entries: key → where and what, of the values written so far.
    """

    def __init__(self, path: str, number: int, files: Files = LOCAL) -> None:
        self.entries: dict[str, BundleEntry] = {}
        self._number = number
        self._output = files.create(path)
        self._size = 0

    def add(self, key: str, array: np.ndarray, dtype: str = "") -> None:
        """Writes a value; an array of objects holds bytes, the elements of a string value.

        Args:
            key: its name.
            array: the value.
            dtype: TensorFlow's name of its type, where NumPy's does not tell it.
        """
        dtype, start = dtype or dtype_name(array.dtype), self._size
        crc = self._strings(array) if dtype == "string" else self._fixed(array)
        nbytes = self._size - start
        self.entries[key] = BundleEntry(dtype, array.shape, self._number, start, nbytes, mask(crc))

    def add_raw(self, key: str, entry: BundleEntry, data: bytes) -> None:
        """Writes a value's stored bytes as another index has them, checksum and all."""
        start = self._size
        self._append(data)
        self.entries[key] = entry._replace(shard=self._number, offset=start)

    def close(self) -> None:
        self._output.close()

    def _fixed(self, array: np.ndarray) -> int:
        flat = _little_endian(array).reshape(-1).view("u1")
        crc = 0
        for start in range(0, flat.nbytes, CHUNK):
            chunk = flat[start : start + CHUNK]
            crc = google_crc32c.extend(crc, chunk)
            self._write(chunk.data, chunk.nbytes)
        return crc

    def _strings(self, array: np.ndarray) -> int:
        """Lengths, their checksum, then the bytes (``WriteStringTensor`` of TensorFlow).

        Checksummed are the lengths not as they are stored, but in 4 bytes each, or in 8.
        """
        elements: list[bytes] = array.ravel().tolist()
        lengths = [len(element) for element in elements]
        self._append(b"".join(map(put_varint, lengths)))
        codes = "".join("I" if length < 1 << 32 else "Q" for length in lengths)
        crc: int = google_crc32c.value(struct.pack(f"<{codes}", *lengths))
        checksum = struct.pack("<I", mask(crc))
        self._append(checksum)
        crc = google_crc32c.extend(crc, checksum)
        for block in _blocks(elements):
            crc = google_crc32c.extend(crc, block)
            self._append(block)
        return crc

    def _append(self, data: bytes) -> None:
        self._write(data, len(data))

    def _write(self, data: Buffer, nbytes: int) -> None:
        self._output.write(data)
        self._size += nbytes


def encode_index(
    entries: Mapping[str, BundleEntry],
    num_shards: int,
    more: Iterable[tuple[bytes, bytes]] = (),
) -> bytes:
    """The content of the index file, of values in any order.

    Args:
        entries: key → where and what.
        num_shards: how many data files there are.
        more: what another index says of its values, as it says it: :func:`read_coded`.
    """
    coded = [(key.encode(), encode_entry(entry)) for key, entry in entries.items()]
    return build_table([(b"", encode_header(num_shards)), *sorted([*coded, *more])])


def read_coded(prefix: str, files: Files = LOCAL) -> tuple[int, list[tuple[bytes, bytes]]]:
    """How many data files a checkpoint has, and what its index says of each value, coded."""
    path = index_path(prefix)
    handle = files.open_read(path)
    try:
        (_, header), *coded = read_table(handle.pread(0, handle.size), path)
    finally:
        handle.close()
    return parse_header(header).num_shards, coded


class BundleWriter:
    """The files of a checkpoint, one value after the other; a context manager.

    Args:
        prefix: its name without ``.index``; there are no files of it yet.
        num_shards: how many data files it has.
        files: where to.
        there: how many of them, the first ones, somebody else has written.
        more: what an index says of the values in those, coded.
        data: what the names of the data files begin with, where it is not the prefix.

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
        self,
        prefix: str,
        num_shards: int = 1,
        files: Files = LOCAL,
        *,
        there: int = 0,
        more: Iterable[tuple[bytes, bytes]] = (),
        data: str = "",
    ) -> None:
        self._prefix = prefix
        self._num_shards = num_shards
        self._files = files
        self._more = more
        self._shards: list[Shard] = []
        try:
            for number in range(there, num_shards):
                path = data_path(data or prefix, number, num_shards)
                self._shards.append(Shard(path, number, files))
        except BaseException:
            self.close()
            raise

    def add(self, key: str, array: np.ndarray, shard: int = 0, dtype: str = "") -> None:
        """Write a value under a key that has none yet; ``shard`` counts the files made here."""
        self._shards[shard].add(key, array, dtype)

    def add_raw(self, key: str, entry: BundleEntry, data: bytes, shard: int = 0) -> None:
        """Write a value's stored bytes as another index has them."""
        self._shards[shard].add_raw(key, entry, data)

    def finish(self) -> None:
        """Write the index."""
        self.close()
        entries = {key: entry for shard in self._shards for key, entry in shard.entries.items()}
        content = encode_index(entries, self._num_shards, self._more)
        self._files.write_atomic(index_path(self._prefix), content)

    def close(self) -> None:
        for shard in self._shards:
            shard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _little_endian(array: np.ndarray) -> np.ndarray:
    import numpy as np

    order = array.dtype.byteorder
    if order == ">" or (order == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array)


def _blocks(elements: Sequence[bytes]) -> Iterable[bytes]:
    """The elements one behind the other, many small ones at a time."""
    start = size = 0
    for end, element in enumerate(elements):
        if size and size + len(element) > CHUNK:
            yield b"".join(elements[start:end])
            start, size = end, 0
        size += len(element)
    yield b"".join(elements[start:])
