"""Builds LevelDB tables, byte for byte like TensorFlow.

Blocks of 256 KiB, a restart point every 16 entries, no compression: the settings of
``BundleWriter``, applied as in tensorflow/core/lib/io/table_builder.cc. An index is small compared
to its data, so the table is built in memory. :mod:`tfckpt.stored.bundles.encoding.table` reads it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import google_crc32c

from tfckpt.stored.bundles.encoding.index_proto import put_varint
from tfckpt.stored.bundles.encoding.table import FOOTER_BYTES, MAGIC, RAW

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK_BYTES = 1 << 18
RESTART_INTERVAL = 16
_MAGIC = MAGIC.to_bytes(8, "little")


def mask(crc: int) -> int:
    """A CRC-32C as LevelDB stores it: rotated and shifted.

    >>> from tfckpt.stored.bundles.encoding.table import unmask
    >>> unmask(mask(0xDEADBEEF)) == 0xDEADBEEF
    True
    """
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def build_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The content of a table file; keys must be strictly ascending.

    >>> from tfckpt.stored.bundles.encoding.table import read_table
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
            handle = _append(table, block)
            block = _Block(RESTART_INTERVAL)
    if block.size > _Block.EMPTY:
        handle = _append(table, block)
    metaindex = _append(table, _Block(RESTART_INTERVAL))
    if handle:
        index.add(_after(last), handle)
    footer = metaindex + _append(table, index)
    table += footer.ljust(FOOTER_BYTES - len(_MAGIC), b"\0") + _MAGIC
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


def _append(table: bytearray, block: _Block) -> bytes:
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
