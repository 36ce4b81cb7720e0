"""Runs tasks in several threads; the first failure stops all others."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future


def cores() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # may be fewer than exist, e.g. in a container
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _StoppedError(Exception):
    """Ends a task after another one has failed."""


class Parallel:
    """Tasks that share the work, of which the first failure stops all others."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._failures: list[BaseException] = []

    def go_on(self) -> None:
        """Raise where another task has failed; called before each step."""
        if self._stopped.is_set():
            raise _StoppedError

    def run(self, tasks: Iterable[Callable[[], None]], threads: int) -> None:
        """Run all tasks, the first in this thread, and return when all have ended."""
        left = collections.deque(tasks)
        first = collections.deque([left.popleft()] if left else ())
        if threads < 2 or not left:
            self._attempt(partial(self._take, first, left))
        else:
            from concurrent.futures import ThreadPoolExecutor, wait

            with ThreadPoolExecutor(threads - 1, "tfckpt-file") as pool:
                futures: list[Future[None]] = []
                share = partial(self._attempt, partial(self._take, left))
                with contextlib.suppress(RuntimeError):  # no more threads can be started
                    futures.extend(pool.submit(share) for _ in range(threads - 1))
                self._attempt(partial(self._take, first, left))
                for future in futures:
                    while not future.done():  # an interrupt ends no wait
                        self._attempt(partial(wait, [future]))
        failures = [each for each in self._failures if not isinstance(each, _StoppedError)]
        self._failures.clear()
        for failure in sorted(failures, key=lambda each: isinstance(each, Exception)):
            raise failure

    def _take(self, *queues: collections.deque[Callable[[], None]]) -> None:
        for queue in queues:
            while queue:
                self.go_on()
                try:
                    task = queue.popleft()
                except IndexError:  # another thread was faster
                    break
                task()

    def _attempt(self, task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:
            self._failures.append(error)
            self._stopped.set()
