"""Writes data files and their index without TensorFlow, reading and checksumming each value once.

A large value passes through in chunks: each is checked, checksummed and written while it is in the
processor's cache, without a copy. Small values are gathered and written together, since a call for
each would cost more than its bytes. The bytes are those that TensorFlow's ``BundleWriter`` writes
for the same values in the same order.

:func:`write_in_parallel` writes the files of a save, one thread per file: two threads fill the disk
cache faster than one, and one file is checksummed while another is copied. A value is released once
its bytes are written, which frees values that training has replaced meanwhile. A failure or
interrupt in one thread stops the others at their next write, and is raised when all have ended.

Nothing here is atomic: a checkpoint is committed by :mod:`tfckpt.stored.commits.commit`.
"""

from __future__ import annotations

import collections
import contextlib
import struct
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import google_crc32c

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.bundle import data_path, index_path
from tfckpt.stored.bundles.crc import extend
from tfckpt.stored.bundles.index import BundleEntry, Index, encode_entry, encode_header, read_index
from tfckpt.stored.bundles.parallel import Parallel, cores
from tfckpt.stored.bundles.read import packed
from tfckpt.stored.bundles.table import build_table, mask, put_varint, read_table
from tfckpt.stored.io.files import LOCAL, Files, content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np

    from tfckpt.core.inventory import Shape

ONE_FILE = 1 << 25  # splitting a smaller checkpoint costs more than it saves
MOST_FILES = 4

# Bytes that are checked, checksummed and written at once; values up to an eighth count as small.
FOREGROUND = 1 << 20  # fits into the cache of one core
BACKGROUND = 1 << 22  # beside other Python threads, each call waits to get the interpreter back

# dtype → bytes of a float, and the lowest bit pattern of an infinity or a NaN.
_LEAST = {
    "float16": (2, 0x7C00),
    "bfloat16": (2, 0x7F80),
    "float32": (4, 0x7F80_0000),
    "complex64": (4, 0x7F80_0000),
    "float64": (8, 0x7FF0_0000_0000_0000),
    "complex128": (8, 0x7FF0_0000_0000_0000),
    "float8_e5m2": (1, 0x7C),
    "float8_e4m3fn": (1, 0x7F),
}
_MINUS_ZERO = ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz")
_LOOKED = frozenset((*_LEAST, *_MINUS_ZERO))


def all_finite(block: np.ndarray, dtype: str) -> bool:
    """Whether values of a dtype, as little-endian bytes, contain no infinity and no NaN.

    Read as integers, the bits of infinities and NaNs are above those of all finite numbers of the
    same sign: as signed integers for positive, as unsigned for negative numbers. Dtypes with a
    single NaN and no infinity have the NaN at minus zero.

    >>> import numpy as np
    >>> values = np.array([-1.5, 3e38, -0.0], np.float32)
    >>> all_finite(values.view("u1"), "float32")
    True
    >>> all_finite(np.append(values, -np.inf).astype(np.float32).view("u1"), "float32")
    False
    """
    if dtype in _MINUS_ZERO:
        return not bool((block == 0x80).any())
    if not block.size or dtype not in _LEAST:
        return True
    size, least = _LEAST[dtype]
    negative = least | 1 << 8 * size - 1
    return bool(block.view(f"<i{size}").max() < least and block.view(f"<u{size}").max() < negative)


class Shard:
    """One data file.

    Attributes:
        entries: key → index entry of each value written so far.
        nonfinite: keys of checked values that are not finite.
    """

    def __init__(
        self,
        path: str,
        number: int,
        files: Files = LOCAL,
        chunk: int = FOREGROUND,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        self.entries: dict[str, BundleEntry] = {}
        self.nonfinite: list[str] = []
        self._number = number
        self._chunk = chunk
        self._small = chunk >> 3
        self._unseen: dict[str, list[tuple[str, bytes]]] = {}
        self._go_on = go_on
        self._size = 0
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._output = files.create(path)

    def reserve(self, nbytes: int) -> None:
        """Announce that at least ``nbytes`` will follow."""
        self._output.reserve(nbytes)

    def add(
        self,
        key: str,
        dtype: str,
        shape: Shape,
        pieces: Iterable[np.ndarray],
        *,
        look: bool = False,
    ) -> None:
        """Write a value that is available in pieces; an object array holds a string value."""
        start, crc, finite, look = self._size, 0, True, look and dtype in _LOOKED
        for piece in pieces:
            if dtype == "string":
                crc = self._strings(piece)
                continue
            if piece.nbytes <= self._small:
                data = _little_endian(piece).tobytes()
                crc = google_crc32c.extend(crc, data)
                self._gather(data)
                if look:
                    self._unseen.setdefault(dtype, []).append((key, data))
                continue
            # copies only an array that is not contiguous
            flat = _little_endian(piece).reshape(-1).view("u1")
            self._flush()
            for first in range(0, flat.nbytes, self._chunk):
                part = flat[first : first + self._chunk]
                finite = finite and not (look and not all_finite(part, dtype))
                crc = extend(crc, part)
                self._write(part.data)
        if not finite:
            self.nonfinite.append(key)
        nbytes = self._size - start
        self.entries[key] = BundleEntry(dtype, shape, self._number, start, nbytes, mask(crc))

    def add_raw(self, key: str, entry: BundleEntry, data: bytes) -> None:
        """Write the stored bytes of a value, with the checksum from another index."""
        self.entries[key] = entry._replace(shard=self._number, offset=self._size)
        self._gather(data)

    def finish(self) -> None:
        """Sync and close the file."""
        self._flush()
        self._output.sync()
        self._output.close()

    def close(self) -> None:
        self._output.close()

    def _strings(self, array: np.ndarray) -> int:
        """Write lengths, their checksum, then the bytes (``WriteStringTensor`` of TensorFlow)."""
        elements: list[bytes] = array.ravel().tolist()
        lengths = [len(element) for element in elements]
        self._gather(b"".join(map(put_varint, lengths)))
        checksum, crc = _of_lengths(lengths)
        self._gather(checksum)
        for element in elements:
            crc = google_crc32c.extend(crc, element)
            self._gather(element)
        return crc

    def _gather(self, data: bytes) -> None:
        """Queue bytes to be written together with others."""
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        self._size += len(data)
        if self._gathered_bytes >= self._chunk:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            self._look()
            joined = memoryview(b"".join(self._gathered))
            self._size -= len(joined)
            self._gathered, self._gathered_bytes = [], 0
            self._write(joined)

    def _look(self) -> None:
        """Look whether the gathered values are finite, all of a dtype at once."""
        for dtype, values in self._unseen.items():
            if not all_finite(_flat(b"".join(data for _, data in values)), dtype):
                found = [key for key, data in values if not all_finite(_flat(data), dtype)]
                self.nonfinite += found
        self._unseen.clear()

    def _write(self, data: memoryview) -> None:
        self._go_on()
        self._output.write(data)
        self._size += data.nbytes


def _flat(data: bytes) -> np.ndarray:
    import numpy as np

    return np.frombuffer(data, "u1")


def checksum(
    value: BundleValue,
    read: Callable[[BundleValue], Iterable[np.ndarray]],
    chunk: int,
    go_on: Callable[[], None],
) -> tuple[int, bool]:
    """The checksum that an index has for a value of numbers, and whether they are finite."""
    crc, finite = 0, True
    for piece in read(value):
        flat = _little_endian(piece).reshape(-1).view("u1")
        for first in range(0, flat.nbytes, chunk):
            go_on()
            part = flat[first : first + chunk]
            finite = finite and not (value.look and not all_finite(part, value.dtype))
            crc = extend(crc, part)
    return mask(crc), finite


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
    crc: int = google_crc32c.value(packed(lengths))
    checksum = struct.pack("<I", mask(crc))
    return checksum, google_crc32c.extend(crc, checksum)


def _little_endian(array: np.ndarray) -> np.ndarray:
    order = array.dtype.byteorder
    if order == ">" or (order == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    return array


def encode_index(
    prefix: str,
    entries: Mapping[str, BundleEntry],
    num_shards: int,
    others: Iterable[tuple[bytes, bytes]] = (),
) -> bytes:
    """The content of an index file, read back; ``others`` are keys and entries of another one."""
    coded = [(key.encode(), encode_entry(entry)) for key, entry in entries.items()]
    table = [(b"", encode_header(num_shards)), *sorted([*coded, *others])]
    data, path = build_table(table), index_path(prefix)
    if [*read_table(data, path)] != table:
        raise DamagedCheckpointError("the index does not say what was written", path=path)
    return data


def read_coded(prefix: str, files: Files = LOCAL) -> tuple[Index, list[tuple[bytes, bytes]]]:
    """The index of a checkpoint, and its entries as they are encoded."""
    path = index_path(prefix)
    data = content(path, files)
    _, *coded = read_table(data, path)
    return read_index(data, path), coded


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
        entries: key → index entry of each value.
        nonfinite: keys of checked values that are not finite.
    """

    entries: dict[str, BundleEntry]
    nonfinite: list[str]


def files_for(nbytes: int) -> int:
    """The number of data files for a checkpoint of ``nbytes``.

    >>> files_for(1 << 20)
    1
    """
    return 1 if nbytes < ONE_FILE else min(MOST_FILES, cores())


def write_in_parallel(
    values: list[BundleValue],
    read: Callable[[BundleValue], Iterable[np.ndarray]],
    target: Target,
    chunk: int = FOREGROUND,
) -> Written:
    """Write data files, of about the same size; on return they are on disk."""
    count = len(target.shards)
    sizes, chosen = [0] * count, [0] * len(values)
    for at in sorted(range(len(values)), key=lambda at: -values[at].nbytes) if count > 1 else ():
        chosen[at] = least = sizes.index(min(sizes))
        sizes[least] += values[at].nbytes
    parts: list[collections.deque[BundleValue]] = [collections.deque() for _ in target.shards]
    for value, number in zip(values, chosen, strict=True):
        parts[number].append(value)
    values.clear()
    parallel = Parallel()
    opened: list[Shard] = []
    with contextlib.ExitStack() as stack:
        for number in target.shards:
            path = data_path(target.prefix, number, target.num_shards)
            opened.append(Shard(path, number, target.files, chunk, parallel.go_on))
            stack.callback(opened[-1].close)
        for part in parts:  # what is not written must not stay alive
            stack.callback(part.clear)
        fills = [partial(_fill, *each, read) for each in zip(opened, parts, strict=True)]
        parallel.run(fills, count)
    return Written(
        {key: entry for shard in opened for key, entry in shard.entries.items()},
        [key for shard in opened for key in shard.nonfinite],
    )


def _fill(
    shard: Shard,
    values: collections.deque[BundleValue],
    read: Callable[[BundleValue], Iterable[np.ndarray]],
) -> None:
    shard.reserve(sum(value.nbytes for value in values))
    while values:
        _add(shard, values.popleft(), read)
    shard.finish()


def _add(
    shard: Shard, value: BundleValue, read: Callable[[BundleValue], Iterable[np.ndarray]]
) -> None:
    shard.add(value.key, value.dtype, value.shape, read(value), look=value.look)
