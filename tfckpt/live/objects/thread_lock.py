"""Keeps threads from naming, reading and assigning live values at the same time.

Two checkpoints may share objects, which is only known once they are named.
So there is one lock for all objects of the process: a restore holds it from the first look to the
last assignment, a save until it has read the values. Files are written without it. The counters and
the number of one checkpoint are protected by :class:`Background`.

The lock is re-entrant, for a callback that restores. While values are assigned, only a signal
handler or a hook of a layer can start another restore in the same thread, which is refused.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

from tfckpt.errors import TfckptError

if TYPE_CHECKING:
    from collections.abc import Iterator


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
