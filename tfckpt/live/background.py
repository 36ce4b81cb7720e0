"""One save at a time beside the training, whose failure nobody can miss.

A failure is raised by the next call that starts or waits for a save, and said at the end of the
process at the latest, which waits for a save under way: the interpreter joins its threads first.

Python runs one thread at a time. Beside a training loop that is busy in Python, each call that lets
go of the interpreter, as a write does, would wait 5 ms to get it back. So while something runs
here, threads take turns ten times as often.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from absl import logging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TURN = 0.0005  # seconds
_unreported: set[Background] = set()


class Background:
    """At most one piece of work at a time, in a thread."""

    def __init__(self) -> None:
        self._work: Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self._work is not None and not self._work.done()

    def start(self, work: Callable[[], None]) -> None:
        """Begin; what was under way is finished."""
        future: Future[None] = Future()

        def run() -> None:
            try:
                with _turns.short():
                    work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        try:
            threading.Thread(target=run, name="tfckpt-save").start()
        except RuntimeError:  # no more threads can be had
            run()
        self._work = future
        _unreported.add(self)

    def failure(self) -> BaseException | None:
        """Wait for what is under way; its failure, which :meth:`finish` is still to raise."""
        return None if self._work is None else self._work.exception()

    def finish(self) -> None:
        """Wait for what is under way, and raise its failure."""
        error = self.failure()
        self._work = None
        _unreported.discard(self)
        if error is not None:
            raise error


class _Turns:
    """How long a thread runs before another one may: short while anybody needs that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._needed = 0
        self._before = 0.0

    @contextlib.contextmanager
    def short(self) -> Iterator[None]:
        with self._lock:
            self._needed += 1
            if self._needed == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, TURN))
        try:
            yield
        finally:
            with self._lock:
                self._needed -= 1
                if not self._needed:
                    self._restore()

    def forget(self) -> None:
        """Nobody needs it any more."""
        if self._needed:
            self._restore()
        self._lock, self._needed = threading.Lock(), 0

    def _restore(self) -> None:
        if abs(sys.getswitchinterval() - TURN) < TURN / 100:  # else somebody else has set it
            sys.setswitchinterval(self._before)


_turns = _Turns()


def _forget() -> None:
    """In a forked child: the thread is the parent's, and so is what it does."""
    for each in _unreported:
        each._work = None
    _unreported.clear()
    _turns.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@atexit.register
def _say_at_exit() -> None:
    for each in tuple(_unreported):
        if (error := each.failure()) is not None:
            logging.error("the last save, in the background, failed: %s", error)
