"""Several programs on one disk or in one store, whose calls come in an order that a seed decides.

Each has a thread; one runs at a time, and gives its turn away before any call of the file system.
Programs are in processes of their own unless they share one.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

from faults.protocol import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FIRST = 40
"""At most so many turns has the first program before the others begin."""


class Turns:
    """Runs programs, and gives turns.

    Args:
        seed: of the order.
        count: how many programs there are.
        together: whether they are threads of one process.
    """

    def __init__(self, seed: int, count: int, *, together: bool) -> None:
        self._draw = random.Random(seed)
        self._wake = [threading.Semaphore(0) for _ in range(count)]
        self._alive = list(range(count))
        self._now = 0
        self._alone = self._draw.randrange(FIRST)
        first = Process(1, self._lock)
        self._processes = [
            first if together else Process(1 + number, self._lock) for number in range(count)
        ]

    def run(self, programs: Sequence[Callable[[], Any]]) -> list[Any]:
        """What each returned, or the exception that it raised."""
        results: list[Any] = [None] * len(programs)

        def live(number: int) -> None:
            self._wake[number].acquire()
            try:
                results[number] = programs[number]()
            except Exception as error:
                results[number] = error
            self._alive.remove(number)
            self._next(self._alive)

        threads = [threading.Thread(target=live, args=(n,)) for n in range(len(programs))]
        with self._processes[0].running():
            for thread in threads:
                thread.start()
            self._wake[0].release()
            for thread in threads:
                thread.join()
        return results

    def turn(self) -> None:
        """Let another program go on, or go on."""
        if self._alone > 0:
            self._alone -= 1
        else:
            self._change(self._alive)

    def _wait(self, _seconds: float) -> None:
        """Let another program go on, if there is one."""
        self._alone = 0
        self._change([each for each in self._alive if each != self._now] or self._alive)

    def _change(self, among: Sequence[int]) -> None:
        me = self._now
        if self._next(among) != me:
            self._wake[me].acquire()

    def _next(self, among: Sequence[int]) -> int | None:
        if not among:
            return None
        me, chosen = self._now, self._draw.choice(among)
        if chosen != me:
            self._now = chosen
            self._processes[chosen].goes_on()
            self._wake[chosen].release()
        return chosen

    def _lock(self) -> Any:
        return _Lock(self)


class _Lock:
    """A lock of one process: who waits for it gives turns away."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._held = turns, False

    def __enter__(self) -> None:
        while self._held:
            self._turns._wait(0)
        self._held = True

    def __exit__(self, *error: object) -> None:
        self._held = False
