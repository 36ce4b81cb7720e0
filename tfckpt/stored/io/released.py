"""Deletes large files without waiting until their space is free.

Freeing a file of a gibibyte takes the kernel a fifth of a second, which every save of a manager
would wait for. A file that is open has its name removed at once, and its space is freed when it is
closed: by another thread, or by the kernel if this process ends before. Who writes next waits for
it, so that a disk with room for one more checkpoint stays large enough.
"""

from __future__ import annotations

import os
import stat
import threading
from functools import partial
from pathlib import Path

LARGE = 16 << 20  # bytes; a smaller file is freed faster than a thread starts
_open: set[int] = set()  # descriptors to close
_freeing: set[threading.Event] = set()
_closing = threading.Lock()  # no fork while a descriptor may or may not be open


def unlink(path: str) -> None:
    """Remove a file; the space of a large one is freed soon after.

    Raises:
        OSError: it cannot be removed.
    """
    opened = _opened(path)
    try:
        Path(path).unlink()
    except OSError:
        if opened is not None:
            os.close(opened)
        raise
    if opened is None:
        return
    _open.add(opened)
    _freeing.add(freed := threading.Event())
    close = partial(_close, opened, freed)
    try:
        threading.Thread(target=close, name="tfckpt-free", daemon=True).start()
    except RuntimeError:  # no more threads can be started, or the interpreter ends
        close()


def wait_until_freed() -> None:
    """Return when the space of all files that were removed is free."""
    for freed in list(_freeing):
        freed.wait()


def _opened(path: str) -> int | None:
    """A descriptor of a large file that has no other name; None for anything else."""
    if os.name != "posix":
        return None
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size < LARGE:
            return None
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it may still be removed: that needs other permissions
        return None


def _close(descriptor: int, freed: threading.Event) -> None:
    try:
        with _closing:
            _open.discard(descriptor)
            os.close(descriptor)
    finally:
        _freeing.discard(freed)
        freed.set()


def _after_fork() -> None:
    """A forked child has the descriptors too, and no thread that closes them."""
    _closing.release()
    _freeing.clear()
    while _open:
        os.close(_open.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_closing.acquire, after_in_parent=_closing.release, after_in_child=_after_fork
    )
