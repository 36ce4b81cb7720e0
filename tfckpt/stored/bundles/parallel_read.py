"""Reads and checks many values in file order, with several threads.

Each chunk is checksummed while it is in the processor's cache. A large value is read directly into
its destination, by several threads if possible; small adjacent values are read together.
Unrequested bytes are read only where they are few between requested ones, so reading a part of a
checkpoint costs what that part holds.

Whichever fault a thread meets first, the error is that of the first value in the requested order,
raised once no thread is reading any more. :class:`Parallel`, which runs the threads, is there for
whoever writes, too: where no more threads can be started, fewer run all tasks.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from tfckpt.errors import CheckpointError
from tfckpt.stored.bundles import values
from tfckpt.stored.bundles.crc import combine, extend
from tfckpt.stored.io.files import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from tfckpt.stored.bundles.index import BundleEntry
    from tfckpt.stored.io.files import Handle

CHUNK = 1 << 20
SMALL = 256 << 10  # values up to this size are read together with their neighbors
PIECE = 4 << 20  # bytes of a large value that a thread reads at a time
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


class _Task(NamedTuple):
    """Bytes of one file that are read at once.

    Attributes:
        numbers: of the requests that they belong to.
        start: first position in the file.
        stop: position after the last.
    """

    numbers: list[int]
    start: int
    stop: int


def transfer(requests: Sequence[Request]) -> None:
    """Read and check values."""
    total = sum(request.entry.nbytes for request in requests)
    _Transfer(requests).run(min(MAX_THREADS, cores(), 1 + total // ALONE))


class _Transfer:
    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        tasks = _tasks(requests)
        self._next = iter(tasks)
        self._longest = min(CHUNK, max((task.stop - task.start for task in tasks), default=0))
        self._parts: dict[int, dict[int, tuple[int, int]]] = {}
        self._error: Exception | None = None
        self._failed = len(requests)  # the first request with an error
        self._lock = threading.Lock()
        self._parallel = Parallel()

    def run(self, many: int) -> None:
        self._parallel.run([self._work] * many)
        self._check_large()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        import numpy as np

        scratch = np.empty(self._longest, np.uint8)  # reused: fresh memory is slow
        while (task := next(self._next, None)) is not None:
            self._parallel.go_on()
            if task.numbers[0] >= self._failed:
                continue
            if len(task.numbers) > 1:
                self._read_parallel(task, scratch)
            else:
                self._read_alone(task, scratch)

    def _fail(self, number: int, error: Exception) -> None:
        with self._lock:
            if number < self._failed:
                self._failed, self._error = number, error

    def _read_parallel(self, task: _Task, scratch: np.ndarray) -> None:
        first = self._requests[task.numbers[0]]
        try:
            with reading(first.path):
                count = first.handle.readinto(task.start, scratch[: task.stop - task.start].data)
        except CheckpointError as error:
            if self._each_is_read(task, scratch):
                self._fail(task.numbers[0], error)
            return
        for number in task.numbers:
            request = self._requests[number]
            entry = request.entry
            start = entry.offset - task.start
            content = scratch[start : start + entry.nbytes]
            try:
                if start + entry.nbytes > count:
                    raise values.truncated(request.path, request.name)
                crc = google_crc32c.extend(0, content)
                values.check(crc, entry, request.path, request.name)
            except CheckpointError as error:
                self._fail(number, error)
                continue
            if request.into is not None:
                request.into[:] = content

    def _each_is_read(self, task: _Task, scratch: np.ndarray) -> bool:
        """Whether values that could not be read together can be read one by one."""
        tasks = [piece for n in task.numbers for piece in _pieces(n, self._requests[n].entry)]
        return all(self._read_alone(one, scratch) for one in tasks)

    def _read_alone(self, task: _Task, scratch: np.ndarray) -> bool:
        (number,) = task.numbers
        request = self._requests[number]
        try:
            with reading(request.path, request.name):
                if request.entry.dtype == "string":
                    where = request.path, request.name
                    values.verify_strings(request.handle, request.entry, *where)
                else:
                    part = task.stop - task.start, self._read_piece(request, task, scratch)
                    self._parts.setdefault(number, {})[task.start] = part
        except CheckpointError as error:
            self._fail(number, error)
            return False
        return True

    def _read_piece(self, request: Request, task: _Task, scratch: np.ndarray) -> int:
        crc = 0
        for start in range(task.start, task.stop, CHUNK):
            stop = min(start + CHUNK, task.stop)
            if request.into is None:
                part = scratch[: stop - start]
            else:
                part = request.into[start - request.entry.offset : stop - request.entry.offset]
            self._parallel.go_on()
            if request.handle.readinto(start, part.data) != len(part):
                raise values.truncated(request.path, request.name)
            crc = extend(crc, part)
        return crc

    def _check_large(self) -> None:
        """Check values that were read in pieces, once all pieces are read."""
        for number in sorted(self._parts):
            if number >= self._failed:
                return
            request = self._requests[number]
            (_, (_, crc)), *rest = sorted(self._parts[number].items())
            for _, (length, piece) in rest:
                crc = combine(crc, piece, length)
            try:
                values.check(crc, request.entry, request.path, request.name)
            except CheckpointError as error:
                self._fail(number, error)


def _tasks(requests: Sequence[Request]) -> list[_Task]:
    """Requests grouped into reads, in the order of files and positions."""
    files: dict[str, int] = {}
    for request in requests:
        files.setdefault(request.path, len(files))
    order = sorted(
        range(len(requests)), key=lambda n: (files[requests[n].path], requests[n].entry.offset)
    )
    tasks: list[_Task] = []
    numbers: list[int] = []
    path, start, stop, wanted = "", 0, 0, 0
    for number in order:
        request = requests[number]
        entry = request.entry
        if entry.nbytes > SMALL or entry.dtype == "string":
            tasks += _pieces(number, entry)
            continue
        end = entry.offset + entry.nbytes
        wanted += entry.nbytes
        extent = end - start
        if request.path != path or extent > CHUNK or (extent - wanted) * BETWEEN > wanted:
            if numbers:
                tasks.append(_Task(sorted(numbers), start, stop))
            path, numbers, start, wanted = request.path, [], entry.offset, entry.nbytes
            stop = start
        numbers.append(number)
        stop = max(stop, end)
    if numbers:
        tasks.append(_Task(sorted(numbers), start, stop))
    return tasks


def _pieces(number: int, entry: BundleEntry) -> Iterator[_Task]:
    end = entry.offset + entry.nbytes
    if entry.dtype == "string":
        yield _Task([number], entry.offset, end)
        return
    for start in range(entry.offset, end, PIECE):
        yield _Task([number], start, min(start + PIECE, end))


def cores() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # may be fewer than exist, e.g. in a container
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _StoppedError(Exception):
    """Ends a thread after another one has failed."""


class Parallel:
    """Parallel tasks, of which the first failure stops all others."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._failures: list[BaseException] = []
        self._others: list[threading.Event] = []

    def go_on(self) -> None:
        """Raise where another task has failed; called before each step."""
        if self._stopped.is_set():
            raise _StoppedError

    def run(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run all tasks, the first in this thread, and return when all have ended."""
        self._attempt(partial(self._begin, tasks))
        for ended in self._others:
            while not ended.is_set():
                # not Thread.join, which an interrupt makes treat the thread as ended
                self._attempt(ended.wait)
        failures = [each for each in self._failures if not isinstance(each, _StoppedError)]
        self._failures.clear()
        for failure in sorted(failures, key=lambda each: isinstance(each, Exception)):
            raise failure

    def _begin(self, tasks: Sequence[Callable[[], None]]) -> None:
        own = [tasks[0]]
        for task in tasks[1:]:
            ended = threading.Event()
            other = partial(self._in_thread, task, ended)
            try:
                threading.Thread(target=other, name="tfckpt-file").start()
                self._others.append(ended)
            except RuntimeError:  # no more threads can be started
                own.append(task)
        for task in own:
            task()

    def _in_thread(self, task: Callable[[], None], ended: threading.Event) -> None:
        self._attempt(task)
        ended.set()

    def _attempt(self, task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:
            self._failures.append(error)
            self._stopped.set()
