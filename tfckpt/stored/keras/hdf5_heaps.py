"""The heaps in which HDF5 keeps texts of any length, checked before the library reads one.

The library walks such a heap object by object, by the sizes that stand before each, and walks for
ever where a size of zero leads it nowhere: one flipped bit is enough. Keras has its attributes in
such heaps. They are found by their signature, in what the arrays leave of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import io
    from collections.abc import Iterable, Iterator

_SIGNATURE = b"GCOL\x01\0\0\0"
_HEAD = 16  # of a heap, and of an object in it
_OBJECT = ((0, 2), (8, 16))  # its number and its size, in its head
_CHUNK = 1 << 20


def broken_heap(stream: io.RawIOBase, extents: Iterable[tuple[int, int, str]]) -> int | None:
    """Where a heap begins that is not as it must be; None where all are.

    Args:
        stream: the file.
        extents: begin and end of what is no metadata, in order.
    """
    size = stream.seek(0, 2)
    for start, end in _gaps(extents, size):
        for found in _find(stream, start, end):
            if not _whole(stream, found, size):
                return found
    return None


def _gaps(extents: Iterable[tuple[int, int, str]], size: int) -> Iterator[tuple[int, int]]:
    at = 0
    for start, end, _ in extents:
        if start > at:
            yield at, start
        at = max(at, end)
    if at < size:
        yield at, size


def _find(stream: io.RawIOBase, start: int, end: int) -> Iterator[int]:
    while start + len(_SIGNATURE) <= end:
        block = _read(stream, start, min(_CHUNK, end - start))
        at = block.find(_SIGNATURE)
        while at != -1:
            yield start + at
            at = block.find(_SIGNATURE, at + 1)
        if start + len(block) >= end or not block:
            return
        start += len(block) - len(_SIGNATURE) + 1


def _whole(stream: io.RawIOBase, start: int, size: int) -> bool:
    head = _read(stream, start, _HEAD)
    length = int.from_bytes(head[8:], "little") if len(head) == _HEAD else 0
    if not _HEAD <= length <= size - start:
        return False
    heap = _read(stream, start, length)
    at = _HEAD
    while at + _HEAD <= length:
        index, length_of = (int.from_bytes(heap[at + a : at + b], "little") for a, b in _OBJECT)
        if index == 0:  # what is free, its own head included
            return length_of == length - at
        at += _HEAD + (length_of + 7) // 8 * 8
    return at <= length


def _read(stream: io.RawIOBase, start: int, length: int) -> bytes:
    stream.seek(start)
    found = bytearray()
    while len(found) < length and (part := stream.read(length - len(found))):
        found += part
    return bytes(found)
