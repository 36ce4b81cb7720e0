"""Reads and checks many values, in file order and with several threads.

Small neighbors are read together, in runs, each by one thread; a larger value is read chunk by
chunk, directly into its destination, and checksummed while it is in the processor's cache.
Unrequested bytes are read only where they are few between requested ones, so reading a part of a
checkpoint costs what that part holds.

Whichever fault a thread meets first, the error is that of the first value in the requested order,
raised once no thread is reading any more.

A string value stores its lengths, a checksum of the lengths, and the bytes.
"""

from __future__ import annotations

import math
import struct
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.bundles.crc import extend
from tfckpt.stored.bundles.parallel import Parallel, cores
from tfckpt.stored.bundles.table import WireError, mask, unmask, varint
from tfckpt.stored.io.files import reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from tfckpt.stored.bundles.index import BundleEntry
    from tfckpt.stored.io.files import Handle

CHUNK = 1 << 20  # bytes read at once
SMALL = 256 << 10  # values up to this size are read together with their neighbors
BETWEEN = 64  # at most one unrequested byte per this many requested ones
ALONE = 4 << 20  # fewer bytes are read faster than a thread starts
MAX_THREADS = 4


class Request(NamedTuple):
    """A value to read that is stored whole.

    Attributes:
        handle: the open data file.
        path: of the data file.
        name: of the value.
        entry: its position and size.
        into: flat destination of its stored bytes; None for strings, and to check only.
    """

    handle: Handle
    path: str
    name: str
    entry: BundleEntry
    into: np.ndarray | None = None


def transfer(requests: Sequence[Request]) -> None:
    """Read and check values."""
    _Transfer(requests).run()


class _Transfer:
    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        self._parallel = Parallel()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._failed = sys.maxsize, CheckpointError("")

    def run(self) -> None:
        total = sum(request.entry.nbytes for request in self._requests)
        tasks = [partial(self._read, numbers) for numbers in _runs(self._requests)]
        self._parallel.run(tasks, min(MAX_THREADS, cores(), 1 + total // ALONE))
        number, error = self._failed
        if number < sys.maxsize:
            raise error

    def _fail(self, number: int, error: CheckpointError) -> None:
        with self._lock:
            if number < self._failed[0]:
                self._failed = number, error

    def _read(self, numbers: Sequence[int]) -> None:
        """Read neighbors; where that fails, each by itself, to know which one."""
        self._parallel.go_on()
        numbers = [number for number in numbers if number < self._failed[0]]
        error = None
        if len(numbers) > 1:
            try:
                with reading(self._requests[numbers[0]].path, self._requests[numbers[0]].name):
                    if self._read_together(numbers):
                        return
            except CheckpointError as met:
                error = met
        sound = True
        for number in numbers:
            sound = self._read_alone(number) and sound
        if error is not None and sound:
            self._fail(min(numbers), error)

    def _read_together(self, numbers: Sequence[int]) -> bool:
        """Whether all bytes of these neighbors were there."""
        requests = [self._requests[number] for number in numbers]
        start, last = requests[0].entry.offset, max(requests, key=_end)
        view = self._scratch(_end(last) - start)
        if requests[0].handle.readinto(start, view.data) < len(view):
            return False
        for number, (_, path, name, entry, into) in zip(numbers, requests, strict=True):
            _, _, _, offset, nbytes, crc32c, *_ = entry
            content = view[offset - start : offset - start + nbytes]
            if mask(extend(0, content)) != crc32c:
                self._fail(number, _wrong_checksum(entry, path, name))
            elif into is not None:
                into[:] = content
        return True

    def _read_alone(self, number: int) -> bool:
        """Whether a value is sound."""
        handle, path, name, entry, into = self._requests[number]
        try:
            with reading(path, name):
                if entry.dtype == "string":
                    read_strings(handle, entry, path, name)
                elif entry.dtype == "variant":
                    _check_variants(handle, entry, path, name)
                else:
                    check(self._crc(handle, path, name, entry, into), entry, path, name)
        except CheckpointError as error:
            self._fail(number, error)
            return False
        return True

    def _crc(
        self, handle: Handle, path: str, name: str, entry: BundleEntry, into: np.ndarray | None
    ) -> int:
        """Read a value into its destination, and compute its checksum."""
        crc, size = 0, entry.nbytes
        scratch = self._scratch(min(CHUNK, size)) if into is None else into
        for start in range(0, size, CHUNK):
            stop = min(start + CHUNK, size)
            part = scratch[: stop - start] if into is None else into[start:stop]
            self._parallel.go_on()
            if handle.readinto(entry.offset + start, part.data) != len(part):
                raise truncated(path, name)
            crc = extend(crc, part)
        return crc

    def _scratch(self, size: int) -> np.ndarray:
        """Memory of this thread, used again: fresh memory is slow."""
        import numpy as np

        held: np.ndarray | None = getattr(self._local, "scratch", None)
        if held is None or len(held) < size:
            held = self._local.scratch = np.empty(max(size, CHUNK), np.uint8)
        return held[:size]


def _end(request: Request) -> int:
    return request.entry.offset + request.entry.nbytes


def _runs(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Numbers of requests that are read together, in the order of files and positions."""
    files: dict[str, int] = {}
    for request in requests:
        files.setdefault(request.path, len(files))
    places = [(files[request.path], request.entry.offset) for request in requests]
    order = sorted(range(len(requests)), key=places.__getitem__)
    run: list[int] = []
    path, start, wanted = "", 0, 0
    for number in order:
        request = requests[number]
        entry, end = request.entry, _end(request)
        apart = entry.dtype in ("string", "variant") or entry.nbytes > SMALL
        extent, wanted = end - start, wanted + entry.nbytes
        if run and (
            apart or request.path != path or extent > CHUNK or (extent - wanted) * BETWEEN > wanted
        ):
            yield run
            run = []
        if apart:
            yield [number]
            continue
        if not run:
            path, start, wanted = request.path, entry.offset, entry.nbytes
        run.append(number)
    if run:
        yield run


def read_strings(handle: Handle, entry: BundleEntry, path: str, name: str) -> list[bytes]:
    """The elements of a string value, checked."""
    data = handle.pread(entry.offset, entry.nbytes)
    if len(data) != entry.nbytes:
        raise truncated(path, name)
    if not data:
        return []
    lengths, start = [], 0
    try:
        for _ in range(math.prod(entry.shape)):
            length, start = varint(data, start)
            lengths.append(length)
    except WireError as error:
        message = f"invalid string length: {error}"
        raise DamagedCheckpointError(message, path=path, name=name) from None
    head, start = data[start : start + 4], start + 4
    crc = google_crc32c.value(packed(lengths))
    if len(head) == 4 and crc != unmask(struct.unpack("<I", head)[0]):
        message = "the string lengths do not match their checksum"
        raise DamagedCheckpointError(message, path=path, name=name)
    if len(head) < 4 or start + sum(lengths) != len(data):
        message = f"the string lengths do not add up to {entry.nbytes} bytes"
        raise DamagedCheckpointError(message, path=path, name=name)
    check(google_crc32c.extend(crc, data[start - 4 :]), entry, path, name)
    elements = []
    for length in lengths:
        elements.append(data[start : start + length])
        start += length
    return elements


def _check_variants(handle: Handle, entry: BundleEntry, path: str, name: str) -> None:
    """Check elements that only TensorFlow reads: each is a length, bytes, and a checksum so far.

    The checksum covers 8 bytes of each length, not as it is stored.
    """
    data = handle.pread(entry.offset, entry.nbytes)
    crc = start = 0
    try:
        for _ in range(math.prod(entry.shape)):
            length, start = varint(data, start)
            crc = google_crc32c.extend(crc, length.to_bytes(8, "little"))
            crc = google_crc32c.extend(crc, data[start : start + length])
            start += length + 4
            crc = google_crc32c.extend(crc, data[start - 4 : start])
    except (WireError, OverflowError) as error:
        message = f"invalid length of an element: {error}"
        raise DamagedCheckpointError(message, path=path, name=name) from None
    if start != len(data):
        raise truncated(path, name)
    check(crc, entry, path, name)


def packed(lengths: Sequence[int]) -> bytes:
    """What a checksum of string lengths covers: 4 or 8 bytes each, not as they are stored."""
    codes = "".join("I" if length < 1 << 32 else "Q" for length in lengths)
    return struct.pack("<" + codes, *lengths)


def check(crc: int, entry: BundleEntry, path: str, name: str) -> None:
    """Raise DamagedCheckpointError where a checksum differs from that in the index."""
    if mask(crc) != entry.crc32c:
        raise _wrong_checksum(entry, path, name)


def _wrong_checksum(entry: BundleEntry, path: str, name: str) -> DamagedCheckpointError:
    message = f"the {entry.nbytes} bytes at {entry.offset} do not match their checksum"
    return DamagedCheckpointError(message, path=path, name=name)


def truncated(path: str, name: str) -> DamagedCheckpointError:
    """The error for a value beyond the end of its file."""
    return DamagedCheckpointError("the file ends before the value does", path=path, name=name)
