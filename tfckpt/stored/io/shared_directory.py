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
import errno
import os
import time
from typing import TYPE_CHECKING

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
    descriptor, locked = -1, False
    try:
        with contextlib.suppress(OSError):
            descriptor = os.open(directory or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
            locked = _locked(descriptor, shared=shared)
        yield locked
    finally:
        if locked:
            with contextlib.suppress(OSError):  # a forked child may have the descriptor, too
                unlock(descriptor)
        if descriptor >= 0:
            os.close(descriptor)


def _locked(descriptor: int, *, shared: bool) -> bool:
    for attempt in range(_ATTEMPTS if shared else 1):
        time.sleep(_PAUSE if attempt else 0)
        with contextlib.suppress(BlockingIOError):
            lock(descriptor, shared=shared)
            return True
    return False


def lock(descriptor: int, *, shared: bool = False) -> None:
    """Lock an open file or directory without waiting."""
    try:
        import fcntl
    except ImportError:  # Windows
        raise OSError(errno.ENOSYS, "the system has no flock") from None
    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)
