"""What the machine can do: the same bytes by system calls alone, copies, checksums.

A save is ``write`` of the values into a new file, one per thread; a restore is ``pread`` of it into
memory that has been used before.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import google_crc32c
import numpy as np

from benchmarks.contestants import Contestant
from benchmarks.measure import MIB, Result, Settings, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 4 * MIB
WRITE_1, WRITE_2 = "write, pread in 1 thread", "write, pread in 2 threads"
FSYNC = "write + fsync in 2 threads"


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Calls(Contestant):
    """``write`` and ``pread`` in some threads."""

    name = WRITE_1
    threads: ClassVar[int] = 1
    fsync: ClassVar[bool] = False
    warm: ClassVar[Any] = np.zeros(0, np.uint8)

    def ready(self) -> None:
        arrays = sorted(self.subject.arrays().values(), key=lambda array: -array.nbytes)
        self.shares: list[list[Any]] = [[] for _ in range(self.threads)]
        for array in arrays:
            least = min(self.shares, key=lambda share: sum(one.nbytes for one in share))
            least.append(array.reshape(-1).view(np.uint8))
        if len(Calls.warm) < self.subject.nbytes:
            Calls.warm = np.ones(self.subject.nbytes, np.uint8)

    def save(self) -> None:
        in_threads(self.threads, self._write)

    def restore(self) -> None:
        in_threads(self.threads, self._read)

    def clear(self) -> None:
        self.shares = []
        super().clear()

    def _write(self, number: int) -> None:
        file = os.open(f"{self.prefix}-{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        for array in self.shares[number]:
            for start in range(0, array.nbytes, CHUNK):
                os.write(file, array[start : start + CHUNK])
        if self.fsync:
            os.fsync(file)
        os.close(file)

    def _read(self, number: int) -> None:
        sizes = [sum(array.nbytes for array in share) for share in self.shares]
        begin = sum(sizes[:number])
        into = memoryview(Calls.warm[begin : begin + sizes[number]])
        file = os.open(f"{self.prefix}-{number}", os.O_RDONLY)
        for start in range(0, len(into), CHUNK):
            os.preadv(file, [into[start : start + CHUNK]], start)
        os.close(file)


class TwoThreads(Calls):
    name = WRITE_2
    threads = 2


class Synced(Calls):
    name = FSYNC
    threads = 2
    fsync = True


LIMITS: tuple[type[Contestant], ...] = (Calls, TwoThreads, Synced)


def run(settings: Settings) -> list[Result]:
    """Copies and checksums in memory, GB/s."""
    size = (8 if settings.quick else 256) * MIB
    source = np.random.default_rng(0).integers(0, 255, size, np.uint8)
    target = source.copy()

    def copying(threads: int) -> dict[str, float]:
        return {"GB/s": _rate(size, threads, lambda part: np.copyto(target[part], source[part]))}

    def checking(threads: int) -> dict[str, float]:
        def check(part: slice) -> None:
            for start in range(part.start, part.stop, MIB):
                google_crc32c.value(source[start : min(start + MIB, part.stop)])

        return {"GB/s": _rate(size, threads, check)}

    turns = {
        "memcpy in 1 thread": lambda: copying(1),
        "memcpy in 2 threads": lambda: copying(2),
        "crc32c in 1 thread": lambda: checking(1),
        "crc32c in 2 threads": lambda: checking(2),
    }
    return in_turns(
        "limits", "in memory", turns, dict.fromkeys(turns, settings.rounds(9)), settings
    )


def _rate(size: int, threads: int, work: Callable[[slice], object]) -> float:
    share = size // threads
    start = time.perf_counter()
    in_threads(threads, lambda n: work(slice(n * share, (n + 1) * share)))
    return size / (time.perf_counter() - start) / 1e9
