"""One save at a time of a checkpoint, or beside the training, whose failure nobody can miss.

A failure is raised by the next call that starts or waits for a save, and said at the end of the
process at the latest, which waits for a save under way: the interpreter joins its threads first.

Python runs one thread at a time. Beside a training loop that is busy in Python, each call that lets
go of the interpreter, as a write does, would wait 5 ms to get it back. So while something runs
here, threads take turns ten times as often.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
from concurrent.futures import Future
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from absl import logging

from tfckpt.errors import SaveError
from tfckpt.live.objects.thread_lock import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Method = TypeVar("_Method", bound="Callable[..., Any]")
TURN = 0.0005  # seconds
_unreported: set[Background] = set()


class Background:
    """At most one piece of work at a time, in a thread."""

    def __init__(self) -> None:
        self._work: Future[None] | None = None
        self._thread: threading.Thread | None = None
        self._lock = Lock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Other threads' saves and restores by the checkpoint wait; those that came first go first.

        The thread that writes has its turn by that: whoever has another waits for it.
        """
        with contextlib.nullcontext() if self._is_here else self._lock.held():
            yield

    @property
    def _is_here(self) -> bool:
        return self._thread is threading.current_thread()

    @property
    def busy(self) -> bool:
        work = self._work
        return work is not None and not work.done()

    def start(self, work: Callable[[], None]) -> None:
        """Begin; what was under way is finished."""
        future: Future[None] = Future()

        def run() -> None:
            self._thread = threading.current_thread()
            try:
                with _turns.short():
                    work()
            except BaseException as error:
                self._thread = None
                future.set_exception(error)
            else:
                self._thread = None
                future.set_result(None)

        try:
            threading.Thread(target=run, name="tfckpt-save").start()
        except RuntimeError:  # no more threads can be had
            run()
        self._work = future
        _unreported.add(self)

    def failure(self) -> BaseException | None:
        """Wait for what is under way; its failure, which :meth:`finish` is still to raise."""
        work = self._work  # which another thread may have finished by the next line
        return None if work is None or self._is_here else work.exception()

    def finish(self) -> None:
        """Wait for what is under way, and raise its failure.

        Raises:
            SaveError: this is what is under way.
        """
        if self._is_here:
            raise SaveError(
                "a callback of a background save started another save of the same checkpoint, "
                "which would wait for this one forever",
                hint="save in the training thread, or with a separate tfckpt.Checkpoint",
            )
        error = self.failure()
        self._work = None
        _unreported.discard(self)
        if error is not None:
            raise error


def in_turn(background: str) -> Callable[[_Method], _Method]:
    """A method in a :meth:`Background.turn` of its own, by the attribute that holds that."""
    of = attrgetter(background)

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with of(self).turn():
                return method(self, *args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


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
            logging.error("the last background save failed: %s", error)
