"""Writes one data file, reading and checksumming each value once.

A large value passes through in chunks: each is checked, checksummed and written while it is in the
processor's cache, without a copy. Small values are gathered and written together, since a call for
each would cost more than its bytes. The bytes are those that TensorFlow's ``BundleWriter`` writes
for the same values in the same order.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from tfckpt.core.dtypes import dtype_name
from tfckpt.stored.bundles.crc import extend
from tfckpt.stored.bundles.index import BundleEntry, encode_entry
from tfckpt.stored.bundles.table import mask, put_varint
from tfckpt.stored.bundles.writing.finite import all_finite
from tfckpt.stored.io.files import LOCAL, Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from typing_extensions import Buffer

    from tfckpt.core.inventory import Shape


class ChunkSizes(NamedTuple):
    """Chunk sizes of a writer.

    Attributes:
        chunk: bytes checksummed and written at once; values up to an eighth of it count as small.
        look: bytes checked for non-finite numbers at once, a multiple of ``chunk``.
    """

    chunk: int
    look: int


# Fits into the cache of one core.
FOREGROUND = ChunkSizes(1 << 20, 1 << 20)
# Larger beside other Python threads: each call that releases the GIL waits to get it back.
BACKGROUND = ChunkSizes(1 << 22, 1 << 25)


class Shard:
    """One data file.

    Attributes:
        coded: encoded key and index entry of each value written so far.
        nonfinite: keys of checked values that are not finite.
    """

    def __init__(
        self,
        path: str,
        number: int,
        files: Files = LOCAL,
        chunk_sizes: ChunkSizes = FOREGROUND,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        self.coded: list[tuple[bytes, bytes]] = []
        self.nonfinite: list[str] = []
        self._number = number
        self._chunk_sizes = chunk_sizes
        self._small = chunk_sizes.chunk >> 3
        self._go_on = go_on
        self._size = 0
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._looks: list[_Look] = []
        self._output = files.create(path)

    def reserve(self, nbytes: int) -> None:
        """Announce that at least ``nbytes`` will follow."""
        self._output.reserve(nbytes)

    def add(self, key: str, array: np.ndarray) -> None:
        """Write a value; an object array holds the bytes elements of a string value."""
        self.add_pieces(key, dtype_name(array.dtype), array.shape, array.nbytes, (array,))

    def add_pieces(
        self,
        key: str,
        dtype: str,
        shape: Shape,
        nbytes: int,
        pieces: Iterable[np.ndarray],
        *,
        look: bool = False,
    ) -> None:
        """Write a value that is available in pieces."""
        start = self._size
        if dtype == "string":
            (array,) = pieces
            crc = self._strings(array)
        elif nbytes <= self._small:
            data = b"".join([_little_endian(piece).tobytes() for piece in pieces])
            if look:
                at = self._gathered_bytes
                self._looks.append(_Look(key, dtype, at, at + nbytes))
            crc = google_crc32c.value(data)
            self._append(data)
        else:
            self._flush()
            crc = self._large(key, dtype, pieces, look=look)
        nbytes = self._size - start
        entry = BundleEntry(dtype, shape, self._number, start, nbytes, mask(crc))
        self.coded.append((key.encode(), encode_entry(entry)))

    def add_raw(self, key: str, entry: BundleEntry, data: bytes) -> None:
        """Write the stored bytes of a value, with the checksum from another index."""
        moved = entry._replace(shard=self._number, offset=self._size)
        self.coded.append((key.encode(), encode_entry(moved)))
        self._append(data)

    def finish(self) -> None:
        """Sync and close the file."""
        self._flush()
        self._output.sync()
        self._output.close()

    def close(self) -> None:
        self._output.close()

    def _large(self, key: str, dtype: str, pieces: Iterable[np.ndarray], *, look: bool) -> int:
        crc = 0
        chunk, at_once = self._chunk_sizes
        for piece in pieces:
            flat = (
                _little_endian(piece).reshape(-1).view("u1")
            )  # copies only a non-contiguous array
            for first in range(0, flat.nbytes, at_once):
                block = flat[first : first + at_once]
                if look and not all_finite(block, dtype):
                    self.nonfinite.append(key)
                    look = False
                for second in range(0, block.nbytes, chunk):
                    part = block[second : second + chunk]
                    crc = extend(crc, part)
                    self._write(part.data, part.nbytes)
        return crc

    def _strings(self, array: np.ndarray) -> int:
        """Write lengths, their checksum, then the bytes (``WriteStringTensor`` of TensorFlow).

        The checksum covers the lengths as 4 or 8 bytes each, not as they are stored.
        """
        elements: list[bytes] = array.ravel().tolist()
        lengths = [len(element) for element in elements]
        self._append(b"".join(map(put_varint, lengths)))
        checksum, crc = _of_lengths(lengths)
        self._append(checksum)
        for block in _blocks(elements, self._chunk_sizes.chunk):
            crc = google_crc32c.extend(crc, block)
            self._append(block)
        return crc

    def _append(self, data: bytes) -> None:
        """Queue bytes to be written together with others."""
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        self._size += len(data)
        if self._gathered_bytes >= self._chunk_sizes.chunk:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            joined = b"".join(self._gathered)
            self._gathered, self._gathered_bytes = [], 0
            self._size -= len(joined)
            self._write(joined, len(joined))
            if self._looks:
                self._look(joined)

    def _write(self, data: Buffer, nbytes: int) -> None:
        self._go_on()
        self._output.write(data)
        self._size += nbytes

    def _look(self, joined: bytes) -> None:
        """Check adjacent small values of one dtype together."""
        import numpy as np

        looks, self._looks = self._looks, []
        flat = np.frombuffer(joined, np.uint8)
        first = 0
        for last, look in enumerate(looks, 1):
            if last < len(looks) and looks[last][1:3] == (look.dtype, look.end):
                continue
            if not all_finite(flat[looks[first].start : look.end], look.dtype):
                self.nonfinite += [
                    each.key
                    for each in looks[first:last]
                    if not all_finite(flat[each.start : each.end], each.dtype)
                ]
            first = last


class _Look(NamedTuple):
    """The position of a small value in the queued bytes."""

    key: str
    dtype: str
    start: int
    end: int


def index_checksum(array: np.ndarray) -> int:
    """The checksum that an index has for a value.

    >>> import numpy as np
    >>> index_checksum(np.zeros(1, "float32")) == mask(google_crc32c.value(bytes(4)))
    True
    """
    if not array.dtype.hasobject:
        return mask(google_crc32c.value(_little_endian(array).tobytes()))
    elements: list[bytes] = array.ravel().tolist()
    _, crc = _of_lengths([len(element) for element in elements])
    return mask(google_crc32c.extend(crc, b"".join(elements)) if elements else 0)


def _of_lengths(lengths: Sequence[int]) -> tuple[bytes, int]:
    """The stored checksum of string lengths, and the CRC-32C of lengths and checksum."""
    codes = "".join("I" if length < 1 << 32 else "Q" for length in lengths)
    crc: int = google_crc32c.value(struct.pack(f"<{codes}", *lengths))
    checksum = struct.pack("<I", mask(crc))
    return checksum, google_crc32c.extend(crc, checksum)


def _little_endian(array: np.ndarray) -> np.ndarray:
    order = array.dtype.byteorder
    if order == ">" or (order == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    return array


def _blocks(elements: Sequence[bytes], limit: int) -> Iterable[bytes]:
    """The concatenated elements, many small ones at a time."""
    start = size = 0
    for end, element in enumerate(elements):
        if size and size + len(element) > limit:
            yield b"".join(elements[start:end])
            start, size = end, 0
        size += len(element)
    yield b"".join(elements[start:])
