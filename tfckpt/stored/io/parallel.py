"""Runs tasks in parallel threads and stops all of them at the first failure.

Reading, writing and checksumming large files release Python's lock, so threads do overlap. The
caller gets the failure once no thread is running any more, so that it may close what they used.
Where no more threads can be started, fewer run all tasks.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
        """Run all tasks, the first in this thread, and return when all have ended.

        Raises:
            BaseException: the first failure; an interrupt takes precedence.
        """
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
