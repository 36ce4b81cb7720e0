"""Reader of LevelDB tables, the format of a checkpoint's ``.index`` file.

A table is data blocks of prefix-compressed keys, a block that indexes them, and a footer
(https://github.com/google/leveldb/blob/main/doc/table_format.md). Blocks are raw or Snappy, each
with a masked CRC-32C.

It is read whole and checked whole, more strictly than TensorFlow does: what a scan sees must be
what TensorFlow's binary search would find. Refused are a wrong checksum, a handle outside the file
or into an earlier block, keys out of order, restart points that are no entries, and blocks that
would unfold to far more than they hold.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.wire import WireError, varint

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = 0xDB4775248B80FB57
FOOTER_BYTES = 48
TRAILER_BYTES = 5
RAW, SNAPPY = 0, 1

# A Snappy copy of 3 bytes yields 64: nothing honest unfolds further.
MAX_SNAPPY_RATIO = 22
# With a restart every 16 entries a key is stored in full at least once in 16.
MAX_PREFIX_RATIO = 64


class _Handle(NamedTuple):
    offset: int
    size: int


def unmask(crc: int) -> int:
    """The CRC-32C that LevelDB stores rotated and shifted, as it was."""
    rotated = (crc - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17) | (rotated << 15) & 0xFFFFFFFF


def looks_like_table(tail: bytes) -> bool:
    """Whether the last bytes of a file are the end of a table."""
    return tail[-8:] == MAGIC.to_bytes(8, "little")


def read_table(data: bytes, path: str) -> Iterator[tuple[bytes, bytes]]:
    """Each key and value of the table, keys strictly ascending.

    Args:
        data: the whole file.
        path: its name, for messages.

    Raises:
        DamagedCheckpointError: at the first thing that is not as it must be.
    """
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
    for upper, value in _block_entries(_block(data, index)):
        handle, used = _handle(value, 0)
        if used != len(value) or handle.offset < end:
            raise WireError(f"the index points to a block at {handle.offset}, which is none")
        end = handle.offset + handle.size + TRAILER_BYTES
        for key, content in _block_entries(_block(data, handle)):
            if previous is not None and key <= previous:
                raise WireError(f"key {key!r} is out of order, after {previous!r}")
            if separator is not None and key <= separator:
                raise WireError(f"key {key!r} is in a block where it cannot be found")
            previous = key
            yield key, content
        if previous is None or previous > upper:
            raise WireError(f"the index names {upper!r} as the bound of a block that passes it")
        separator = upper


def _footer(data: bytes) -> tuple[_Handle, _Handle]:
    if len(data) < FOOTER_BYTES:
        raise WireError(f"is {len(data)} bytes long, too short for an index: truncated")
    footer = data[-FOOTER_BYTES:]
    if not looks_like_table(footer):
        raise WireError("does not end as an index does: truncated, or not an index at all")
    metaindex, position = _handle(footer, 0)
    index, _ = _handle(footer, position)
    return metaindex, index


def _handle(data: bytes, position: int) -> tuple[_Handle, int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return _Handle(offset, size), position


def _block(data: bytes, handle: _Handle) -> bytes:
    """The content of a block, checked and unfolded."""
    start, end = handle.offset, handle.offset + handle.size
    if end + TRAILER_BYTES > len(data) - FOOTER_BYTES:
        raise WireError(f"a block of {handle.size} bytes at {start} runs past the end: truncated")
    (stored,) = struct.unpack_from("<I", data, end + 1)
    if google_crc32c.value(data[start : end + 1]) != unmask(stored):
        raise WireError(f"the block at byte {start} does not match its checksum")
    content = data[start:end]
    if data[end] == RAW:
        return content
    if data[end] == SNAPPY:
        return _unsnap(content, start)
    raise WireError(f"the block at byte {start} is compressed in a way {data[end]} unknown here")


def _unsnap(content: bytes, start: int) -> bytes:
    import cramjam

    length, _ = varint(content, 0)
    if length > MAX_SNAPPY_RATIO * len(content):
        raise WireError(f"the block at byte {start} claims to unfold to {length} bytes")
    try:
        return bytes(cramjam.snappy.decompress_raw(content))
    except cramjam.DecompressionError as error:
        raise WireError(f"the block at byte {start} is not Snappy: {error}") from None


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 8:
        raise WireError("a block is too short to hold its restart points")
    (count,) = struct.unpack_from("<I", block, len(block) - 4)
    limit = len(block) - 4 - 4 * count
    if not count or limit < 0:
        raise WireError(f"a block names {count} restart points, more than it can hold")
    restarts = struct.unpack_from(f"<{count}I", block, limit)
    heads = []
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
            raise WireError("an entry runs past the end of its block")
        if not shared:
            heads.append(position)
        key = key[:shared] + block[start:middle]
        unfolded += len(key)
        if unfolded > MAX_PREFIX_RATIO * len(block):
            raise WireError("the keys of a block unfold to far more than it holds")
        yield key, block[middle:end]
        position = end
    if not set(restarts).issubset(heads or [0]) or restarts[0]:
        raise WireError("a restart point of a block is not an entry of it")
    if any(one >= other for one, other in itertools.pairwise(restarts)):
        raise WireError("the restart points of a block are out of order")
