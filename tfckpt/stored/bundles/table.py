"""Reads and builds LevelDB tables: ``.index`` files.

A table consists of data blocks of prefix-compressed keys, an index block, and a footer
(https://github.com/google/leveldb/blob/main/doc/table_format.md). Blocks are raw or
Snappy-compressed, each with a masked CRC-32C.

An index is read and checked completely, more strictly than by TensorFlow: a scan must find what
TensorFlow's binary search would find. Refused are a wrong checksum, a block handle outside of the
file or before the previous block, keys out of order, restart points that are not entries, and
blocks that would expand to far more bytes than they have.

Tables are built byte for byte like TensorFlow's: blocks of 256 KiB, a restart point every 16
entries, no compression, as ``BundleWriter`` sets it for tensorflow/core/lib/io/table_builder.cc.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.io.explain import TABLE_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOOTER_BYTES = 48
TRAILER_BYTES = 5
RAW, SNAPPY = 0, 1
BLOCK_BYTES = 1 << 18
RESTART_INTERVAL = 16

# A Snappy copy of 3 bytes yields 64: valid data does not expand further.
MAX_SNAPPY_RATIO = 22
# With a restart every 16 entries a key is stored in full at least once in 16.
MAX_PREFIX_RATIO = 64


class WireError(ValueError):
    """Invalid bytes in a message or table."""


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The varint at ``position``, and the position after it.

    >>> varint(bytes([0xAC, 0x02]), 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        try:
            byte = data[position]
        except IndexError:
            raise WireError("truncated varint") from None
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                raise WireError("a varint has more than 64 bits")
            return value, position
        shift += 7
        if shift > 63:
            raise WireError("a varint has more than 64 bits")


_SHORT = tuple(bytes((value,)) for value in range(128))


def put_varint(value: int) -> bytes:
    """A number encoded as a varint.

    >>> put_varint(300).hex()
    'ac02'
    """
    if value < 128:
        return _SHORT[value]
    coded = bytearray()
    while value > 127:
        coded.append(value & 127 | 128)
        value >>= 7
    coded.append(value)
    return bytes(coded)


class _BlockHandle(NamedTuple):
    """The position of a block."""

    offset: int
    size: int


def unmask(crc: int) -> int:
    """The CRC-32C that LevelDB stores rotated and shifted."""
    rotated = (crc - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17) | (rotated << 15) & 0xFFFFFFFF


def mask(crc: int) -> int:
    """A CRC-32C as LevelDB stores it: rotated and shifted.

    >>> unmask(mask(0xDEADBEEF)) == 0xDEADBEEF
    True
    """
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def looks_like_table(tail: bytes) -> bool:
    """Whether the last bytes of a file are those of a table."""
    return tail.endswith(TABLE_END)


def read_table(data: bytes, path: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a table file, keys strictly ascending; ``path`` is for messages."""
    try:
        yield from _entries(data)
    except (WireError, struct.error) as error:
        raise DamagedCheckpointError(str(error), path=path) from None


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    metaindex, index = _footer(data)
    _block(data, metaindex)
    previous: bytes | None = None
    separator: bytes | None = None
    end = 0
    for upper, value in zip(*_block_entries(_block(data, index)), strict=True):
        block_handle, used = _read_handle(value, 0)
        if used != len(value) or block_handle.offset < end:
            raise WireError(f"the index points to an invalid block at byte {block_handle.offset}")
        end = block_handle.offset + block_handle.size + TRAILER_BYTES
        keys, contents = _block_entries(_block(data, block_handle))
        for before, key in itertools.pairwise(keys if previous is None else [previous, *keys]):
            if key <= before:
                raise WireError(f"key {key!r} is out of order, after {before!r}")
        if keys and separator is not None and keys[0] <= separator:
            raise WireError(f"key {keys[0]!r} is in the wrong block")
        yield from zip(keys, contents, strict=True)
        previous = keys[-1] if keys else previous
        if previous is None or previous > upper:
            raise WireError(f"a block goes beyond its upper bound {upper!r} in the index")
        separator = upper


def _footer(data: bytes) -> tuple[_BlockHandle, _BlockHandle]:
    if len(data) < FOOTER_BYTES:
        raise WireError(f"is {len(data)} bytes long, too short for an index: truncated")
    footer = data[-FOOTER_BYTES:]
    if not looks_like_table(footer):
        raise WireError("has no index footer: truncated, or not an index")
    metaindex, position = _read_handle(footer, 0)
    index, _ = _read_handle(footer, position)
    return metaindex, index


def _read_handle(data: bytes, position: int) -> tuple[_BlockHandle, int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return _BlockHandle(offset, size), position


def _block(data: bytes, block_handle: _BlockHandle) -> bytes:
    """The content of a block, checked and decompressed."""
    start, end = block_handle.offset, block_handle.offset + block_handle.size + TRAILER_BYTES
    if end > len(data) - FOOTER_BYTES:
        raise WireError(
            f"a block of {block_handle.size} bytes at {start} ends after the file: truncated"
        )
    block = data[start:end]
    content, kind = block[:-TRAILER_BYTES], block[-TRAILER_BYTES]
    (stored,) = struct.unpack_from("<I", block, len(block) - 4)
    if google_crc32c.value(block[:-4]) != unmask(stored):
        raise WireError(f"the block at byte {start} does not match its checksum")
    if kind == RAW:
        return content
    if kind == SNAPPY:
        return _unsnap(content, start)
    raise WireError(f"the block at byte {start} has an unknown compression type {kind}")


def _unsnap(content: bytes, start: int) -> bytes:
    import cramjam

    length, _ = varint(content, 0)
    if length > MAX_SNAPPY_RATIO * len(content):
        raise WireError(f"the block at byte {start} claims to decompress to {length} bytes")
    try:
        return bytes(cramjam.snappy.decompress_raw(content))
    except cramjam.DecompressionError as error:
        raise WireError(f"the block at byte {start} is not valid Snappy data: {error}") from None


def _block_entries(block: bytes) -> tuple[list[bytes], list[bytes]]:
    """The keys of a block and their values."""
    if len(block) < 8:
        raise WireError("a block is too short to hold its restart points")
    (count,) = struct.unpack_from("<I", block, len(block) - 4)
    limit = len(block) - 4 - 4 * count
    if not count or limit < 0:
        raise WireError(f"a block claims {count} restart points, more than fit into it")
    restarts = struct.unpack_from(f"<{count}I", block, limit)
    heads = []
    keys, contents = [], []
    most = MAX_PREFIX_RATIO * len(block)
    position = unfolded = 0
    key = b""
    while position < limit:
        shared, unshared, length = block[position], block[position + 1], block[position + 2]
        start = position + 3
        if shared > 127 or unshared > 127 or length > 127:
            shared, start = varint(block, position)
            unshared, start = varint(block, start)
            length, start = varint(block, start)
        middle = start + unshared
        end = middle + length
        if end > limit or shared > len(key):
            raise WireError("an entry ends after its block")
        if not shared:
            heads.append(position)
        key = key[:shared] + block[start:middle]
        unfolded += len(key)
        if unfolded > most:
            raise WireError("the keys of a block expand to far more bytes than it has")
        keys.append(key)
        contents.append(block[middle:end])
        position = end
    if not set(restarts).issubset(heads or [0]) or restarts[0]:
        raise WireError("a restart point of a block does not point to an entry")
    if any(one >= other for one, other in itertools.pairwise(restarts)):
        raise WireError("the restart points of a block are out of order")
    return keys, contents


def build_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The content of a table file; keys must be strictly ascending.

    >>> list(read_table(build_table([(b"a", b"1"), (b"ab", b"2")]), "here"))
    [(b'a', b'1'), (b'ab', b'2')]
    """
    table = bytearray()
    index = _Block(1)
    block, last, handle = _Block(RESTART_INTERVAL), b"", b""
    for key, value in entries:
        if handle:
            index.add(_between(last, key), handle)
            handle = b""
        block.add(key, value)
        last = key
        if block.size >= BLOCK_BYTES:
            handle = _append_block(table, block)
            block = _Block(RESTART_INTERVAL)
    if block.size > _Block.EMPTY:
        handle = _append_block(table, block)
    metaindex = _append_block(table, _Block(RESTART_INTERVAL))
    if handle:
        index.add(_after(last), handle)
    footer = metaindex + _append_block(table, index)
    table += footer.ljust(FOOTER_BYTES - len(TABLE_END), b"\0") + TABLE_END
    return bytes(table)


class _Block:
    """Prefix-compressed entries, with full keys at restart points."""

    EMPTY = 8

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._buffer = bytearray()
        self._restarts = [0]
        self._count = 0
        self._last = b""

    @property
    def size(self) -> int:
        return len(self._buffer) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._count < self._interval:
            shared = _common(self._last, key)
        else:
            self._restarts.append(len(self._buffer))
            self._count = 0
        rest = key[shared:]
        lengths = map(put_varint, (shared, len(rest), len(value)))
        self._buffer += b"".join((*lengths, rest, value))
        self._last = key
        self._count += 1

    def content(self) -> bytes:
        restarts = struct.pack(f"<{len(self._restarts)}I", *self._restarts)
        return bytes(self._buffer) + restarts + struct.pack("<I", len(self._restarts))


def _append_block(table: bytearray, block: _Block) -> bytes:
    """Append a block with its type and checksum; returns its handle."""
    content = block.content()
    handle = put_varint(len(table)) + put_varint(len(content))
    typed = content + bytes((RAW,))
    table += typed + struct.pack("<I", mask(google_crc32c.value(typed)))
    return handle


def _common(one: bytes, other: bytes) -> int:
    """The length of the common prefix of two keys."""
    size = min(len(one), len(other))
    different = int.from_bytes(one[:size], "big") ^ int.from_bytes(other[:size], "big")
    return size - (different.bit_length() + 7 >> 3)


def _between(start: bytes, limit: bytes) -> bytes:
    """A short key at or after ``start`` and before ``limit`` (``FindShortestSeparator``)."""
    at = _common(start, limit)
    if at < min(len(start), len(limit)) and start[at] + 1 < limit[at]:
        return start[:at] + bytes((start[at] + 1,))
    return start


def _after(key: bytes) -> bytes:
    """A short key at or after ``key`` (``FindShortSuccessor``)."""
    for at, byte in enumerate(key):
        if byte != 255:
            return key[:at] + bytes((byte + 1,))
    return key
