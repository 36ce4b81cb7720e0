"""Which of several threads may name, read and assign the values of live objects.

Two checkpoints may be of the same objects, or of some that they share, which nobody knows before
they are named. So there is one lock for all objects of the process: a restore holds it from the
first look at them to the last assignment, a save until it has read them. Files are written without
it. What belongs to one checkpoint, its counters and its number, is :class:`Background`'s.

A lock is re-entrant, for a restore that a callback asks for. In the middle of an assignment only a
signal handler or a hook of a layer can ask in the same thread, and that is refused.
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
    """A re-entrant lock; in a forked child, where nobody may be left to release it, a new one.

    Attributes:
        assigning: whether its holder is in the middle of an assignment.
    """

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
    """No other thread names, reads or assigns values meanwhile.

    Raises:
        TfckptError: this thread is in the middle of assigning some.
    """
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
    """What is inside assigns values, all or none."""
    with _objects.held():
        _objects.assigning, before = True, _objects.assigning
        try:
            yield
        finally:
            _objects.assigning = before
