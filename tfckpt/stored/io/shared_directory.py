"""Shows other processes that files with temporary names are being written in a directory.

Not every writer holds the lock of the directory (:mod:`tfckpt.stored.commits.writer_lock`): a
rewrite writes beside a training. So a writer holds a shared ``flock`` of the directory itself while
it has temporary names there, and whoever removes what others left takes an exclusive one. The
kernel releases both when their process dies. Where a directory cannot be locked (Windows, some
network file systems, object stores), nobody knows whether a writer is alive, and nothing of others
is removed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATTEMPTS = 50
_PAUSE = 0.02  # seconds


@contextlib.contextmanager
def writing(directory: str) -> Iterator[None]:
    """Have temporary names in a directory; waits a moment for a process that cleans up."""
    with _lock(directory, shared=True):
        yield


@contextlib.contextmanager
def alone(directory: str) -> Iterator[bool]:
    """Whether nobody has temporary names in a directory, nor gets one in this block."""
    with _lock(directory, shared=False) as locked:
        yield locked


@contextlib.contextmanager
def _lock(directory: str, *, shared: bool) -> Iterator[bool]:
    if sys.platform == "win32":
        yield False
        return
    descriptor, locked = -1, False
    try:
        with contextlib.suppress(OSError):
            descriptor = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY)
            locked = _locked(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield locked
    finally:
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # a forked child may have the descriptor, too
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _locked(descriptor: int, kind: int) -> bool:
    for attempt in range(_ATTEMPTS if kind == fcntl.LOCK_SH else 1):
        time.sleep(_PAUSE if attempt else 0)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
    return False
