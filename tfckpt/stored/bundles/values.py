"""Reads strings from a data file and checks their checksums.

Other values are read by :mod:`tfckpt.stored.bundles.parallel_read`. A string value stores its
lengths, a checksum of the lengths, and the bytes; the lengths are trusted only when their sum
matches the size in the index.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import google_crc32c

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.crc import extend
from tfckpt.stored.bundles.table import WireError, unmask, varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from tfckpt.stored.bundles.index import BundleEntry
    from tfckpt.stored.io.files import Handle

CHUNK = 1 << 20
MAX_VARINT = 10


def read_strings(handle: Handle, entry: BundleEntry, path: str, name: str) -> np.ndarray:
    """The elements of a string value as an object array of bytes."""
    import numpy as np

    elements = list_strings(handle, entry, path, name)
    result = np.empty(len(elements), object)
    result[:] = elements
    return result.reshape(entry.shape)


def list_strings(handle: Handle, entry: BundleEntry, path: str, name: str) -> list[bytes]:
    """The elements as a list, without importing NumPy, which takes longer than most indices."""
    head = _Lengths(handle, entry, path, name)
    lengths = [length for part in head for length in part]
    result = []
    crc, position, start = head.crc, head.position, 0
    while start < len(lengths):
        stop, size = start + 1, lengths[start]
        while stop < len(lengths) and size + lengths[stop] <= CHUNK:
            size += lengths[stop]
            stop += 1
        block = handle.pread(position, size)
        if len(block) != size:
            raise truncated(path, name)
        crc = google_crc32c.extend(crc, block)
        position += size
        at = 0
        for number in range(start, stop):
            result.append(block[at : at + lengths[number]])
            at += lengths[number]
        start = stop
    if entry.nbytes:
        check(crc, entry, path, name)
    return result


def verify_strings(handle: Handle, entry: BundleEntry, path: str, name: str) -> None:
    """Check the checksum of a string value, chunk by chunk."""
    import numpy as np

    if not entry.nbytes:
        return
    head = _Lengths(handle, entry, path, name)
    for _ in head:
        pass
    crc, position = head.crc, head.position
    end = entry.offset + entry.nbytes
    buffer = np.empty(min(CHUNK, end - position), np.uint8)  # reused: fresh memory is slow
    while position < end:
        part = buffer[: end - position]
        if handle.readinto(position, part.data) != len(part):
            raise truncated(path, name)
        crc = extend(crc, part)
        position += len(part)
    check(crc, entry, path, name)


class _Lengths:
    """The lengths stored before the bytes of a string value, iterated in chunks.

    After the last chunk they are checked against their checksum and the size of the value; ``crc``
    then covers everything up to ``position``, where the bytes begin.
    """

    def __init__(self, handle: Handle, entry: BundleEntry, path: str, name: str) -> None:
        self.crc = 0
        self.position = entry.offset
        self._handle = handle
        self._entry = entry
        self._where = {"path": path, "name": name}

    def __iter__(self) -> Iterator[list[int]]:
        entry = self._entry
        if not entry.nbytes:
            return
        end = entry.offset + entry.nbytes
        left, total = _element_count(entry), 0
        while left:
            chunk = self._handle.pread(self.position, min(CHUNK, end - self.position))
            at_end = self.position + len(chunk) == end
            lengths, used = self._decode(chunk, left, len(chunk) - (0 if at_end else MAX_VARINT))
            self.crc = google_crc32c.extend(self.crc, self._packed(lengths))
            self.position += used
            left -= len(lengths)
            total += sum(lengths)
            yield lengths
        self._check(end - self.position - 4 - total)

    def _decode(self, chunk: bytes, count: int, last: int) -> tuple[list[int], int]:
        lengths: list[int] = []
        used = 0
        try:
            while len(lengths) < count and used < last:
                length, used = varint(chunk, used)
                lengths.append(length)
        except WireError as error:
            raise DamagedCheckpointError(f"invalid string length: {error}", **self._where) from None
        if not lengths:
            raise truncated(**self._where)
        return lengths, used

    def _packed(self, lengths: list[int]) -> bytes:
        # The checksum covers the lengths as 4 or 8 bytes each, not as stored.
        codes = "".join("I" if length < 1 << 32 else "Q" for length in lengths)
        return struct.pack("<" + codes, *lengths)

    def _check(self, excess: int) -> None:
        stored = self._handle.pread(self.position, 4)
        if excess or len(stored) != 4:
            message = f"the string lengths do not add up to {self._entry.nbytes} bytes"
            raise DamagedCheckpointError(message, **self._where)
        if self.crc != unmask(struct.unpack("<I", stored)[0]):
            message = "the string lengths do not match their checksum"
            raise DamagedCheckpointError(message, **self._where)
        self.crc = google_crc32c.extend(self.crc, stored)
        self.position += 4


def _element_count(entry: BundleEntry) -> int:
    count = 1
    for size in entry.shape:
        count *= size
    return count


def check(crc: int, entry: BundleEntry, path: str, name: str) -> None:
    """Raise DamagedCheckpointError where a checksum differs from that in the index."""
    if crc != unmask(entry.crc32c):
        message = f"the {entry.nbytes} bytes at {entry.offset} do not match their checksum"
        raise DamagedCheckpointError(message, path=path, name=name)


def truncated(path: str, name: str) -> DamagedCheckpointError:
    """The error for a value beyond the end of its file."""
    return DamagedCheckpointError("the file ends before the value does", path=path, name=name)
