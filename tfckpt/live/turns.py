"""Background saves, one at a time for each checkpoint, whose failures are always reported.

The next call that starts or waits for a save raises the failure; at the latest it is logged when
the process exits, which waits for a running save: the interpreter joins its threads first.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from absl import logging

from tfckpt.errors import SaveError, TfckptError
from tfckpt.live.private.tensorflow import naming_what_is_gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Method = TypeVar("_Method", bound="Callable[..., Any]")
_unreported: set[Background] = set()


class Background:
    """Runs at most one save at a time in a thread."""

    def __init__(self) -> None:
        self._work: Future[None] | None = None
        self._thread: threading.Thread | None = None
        self._lock = Lock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the checkpoint's lock, so that other threads' saves and restores wait.

        The writing thread does not take the lock: its owner waits for that thread.
        """
        with contextlib.nullcontext() if self._is_current_thread else self._lock.held():
            yield

    @property
    def _is_current_thread(self) -> bool:
        return self._thread is threading.current_thread()

    @property
    def busy(self) -> bool:
        work = self._work
        return work is not None and not work.done()

    def run(self, save: Iterator[tuple[str, bool]]) -> Any:
        """Go through a save: what follows its ``yield`` in a thread, if the save allows that.

        Returns what it yields, the path; None if it yields nothing.
        """
        path, in_background = next(save, (None, False))
        if not in_background:
            next(save, None)
            return path
        work: Future[None] = Future()
        try:
            threading.Thread(target=self._finish, args=(save, work), name="tfckpt-save").start()
        except RuntimeError:  # no more threads
            self._finish(save, work)
        self._work = work
        _unreported.add(self)
        return path

    def _finish(self, save: Iterator[tuple[str, bool]], work: Future[None]) -> None:
        self._thread = threading.current_thread()
        try:
            next(save, None)
        except BaseException as error:
            self._thread = None
            work.set_exception(error)
        else:
            self._thread = None
            work.set_result(None)

    def failure(self) -> BaseException | None:
        """Wait for the running work; returns its error, which :meth:`finish` will raise."""
        work = self._work  # which another thread may have finished by the next line
        return None if work is None or self._is_current_thread else work.exception()

    def finish(self) -> None:
        """Wait for the running work, and raise its error."""
        if self._is_current_thread:
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


def in_turn(method: _Method) -> _Method:
    """Decorate a method of a checkpoint, or of what has one, to run in its ``_turn()``."""
    method = naming_what_is_gone(method)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._turn():
            return method(self, *args, **kwargs)

    return call  # type: ignore[return-value]


def _forget() -> None:
    """In a forked child: the thread and its work belong to the parent."""
    for each in _unreported:
        each._work = None
    _unreported.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@atexit.register
def _log_at_exit() -> None:
    for each in tuple(_unreported):
        if (error := each.failure()) is not None:
            logging.error("the last background save failed: %s", error)


class Lock:
    """A re-entrant lock; replaced in a forked child, where its owner may not exist."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()
        self.assigning = False

    def __deepcopy__(self, memo: Any) -> Lock:
        return Lock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        if self._process != os.getpid():
            self._lock, self._process, self.assigning = threading.RLock(), os.getpid(), False
        with self._lock:
            yield


_objects = Lock()


@contextlib.contextmanager
def live_objects() -> Iterator[None]:
    """Keep other threads from naming, reading and assigning values."""
    with _objects.held():
        if _objects.assigning:
            raise TfckptError(
                "this thread started a save or restore while one of its restores was assigning "
                "values",
                hint="in a signal handler, only set a flag, and save after the restore; "
                "`on_signal` in a config does that",
            )
        yield


@contextlib.contextmanager
def assigning() -> Iterator[None]:
    """Refuse :func:`live_objects` in this thread while the body assigns values."""
    with _objects.held():
        _objects.assigning, before = True, _objects.assigning
        try:
            yield
        finally:
            _objects.assigning = before
