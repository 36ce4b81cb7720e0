"""Checks the heaps in which HDF5 stores strings of any length before the library reads them.

The library walks a heap object by object, by the size in each object's header; a size of zero, one
flipped bit, makes it loop forever. Keras's attributes are in such heaps. They are found by their
signature, in the parts of the file that no dataset uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import io
    from collections.abc import Iterable, Iterator

_SIGNATURE = b"GCOL\x01\0\0\0"
_HEAD = 16  # bytes in the header of a heap, and of an object in it
_OBJECT = ((0, 2), (8, 16))  # where an object's header has its index and its size
_CHUNK = 1 << 20


def broken_heap(stream: io.RawIOBase, extents: Iterable[tuple[int, int, str]]) -> int | None:
    """The offset of the first damaged heap, None if there is none.

    ``extents`` are the sorted byte ranges of datasets, in which no heap is looked for.
    """
    size = stream.seek(0, 2)
    for start, end in _gaps(extents, size):
        for heap in _find(stream, start, end):
            if not _whole(stream, heap, size):
                return heap
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
        if index == 0:  # free space, its own header included
            return length_of == length - at
        at += _HEAD + (length_of + 7) // 8 * 8
    return at <= length


def _read(stream: io.RawIOBase, start: int, length: int) -> bytes:
    stream.seek(start)
    content = bytearray()
    while len(content) < length and (part := stream.read(length - len(content))):
        content += part
    return bytes(content)
