"""Locks a file for one process: until it is closed, or the process ends (``flock``).

The kernel holds the lock, so it is free as soon as its process is dead; the existence of the file
means nothing. A lock belongs to an open file: a second one of the same process is refused, too. A
forked child does not hold it, and its inherited descriptor does not keep it locked.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import threading
import weakref
from pathlib import Path

_ATTEMPTS = 10
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_TAKEN = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
_SPECIAL = {errno.ELOOP, errno.EISDIR, errno.ENXIO}  # a link, a directory, a socket
# Opening a device may block; a link may lead to a file of others.
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

# A fork waits until no lock is half taken. Reentrant, as a signal handler may fork.
_mutex = threading.RLock()
_open: weakref.WeakSet[FileLock] = weakref.WeakSet()


class NotAFileError(OSError):
    """A name leads to a link, a directory, or another special file."""


class FileLock:
    """An open file that is locked; ``flags`` are those of creation.

    Attributes:
        path: of the file.
        unlockable: why the file system has no locks; "" where it is locked.

    Raises:
        BlockingIOError: another open file has the lock.
        NotAFileError: the name is not that of a regular file.
        OSError: it cannot be opened, or created.

    >>> import tempfile
    >>> directory = tempfile.mkdtemp()
    >>> lock = FileLock(f"{directory}/lock", os.O_CREAT)
    >>> lock.locked
    True
    >>> FileLock(f"{directory}/lock")
    Traceback (most recent call last):
    ...
    BlockingIOError: ...
    """

    def __init__(self, path: str, flags: int = 0, *, durable: bool = True) -> None:
        self.path, self._durable = path, durable
        with _mutex:
            self._file, self.unlockable = _opened(path, flags)
            _open.add(self)

    @property
    def locked(self) -> bool:
        return not self.unlockable

    def is_at(self, path: str) -> bool:
        """Whether a path leads to this file, which may have been deleted or moved."""
        return not self._file.closed and _leads_to(path, self._file)

    @property
    def is_deleted(self) -> bool:
        """Whether no name leads to it, or it is closed."""
        return self._file.closed or not os.fstat(self._file.fileno()).st_nlink

    def read(self, most: int) -> bytes:
        """The beginning of the content."""
        self._file.seek(0)
        return self._file.read(most)

    def write(self, data: bytes) -> None:
        """Replace the content, in its place; it is on disk then."""
        self._file.seek(0)
        rest = data
        while rest:
            rest = rest[self._file.write(rest) or 0 :]
        self._file.truncate(len(data))
        if self._durable:
            os.fsync(self._file.fileno())

    def close(self, *, unlock: bool = True) -> None:
        """Close it, and unlock it, whoever else has the file open."""
        with _mutex, contextlib.suppress(OSError):
            if unlock and self.locked and not self._file.closed:
                _flock(self._file, unlock=True)
            self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.close()


def _opened(path: str, flags: int) -> tuple[io.FileIO, str]:
    for _ in range(_ATTEMPTS):
        file = _regular(path, flags)
        try:
            unlockable = _flock(file)
            if _leads_to(path, file):
                return file, unlockable
        except BlockingIOError:
            if not flags & os.O_EXCL:  # else who recovers has locked what was just created
                file.close()
                raise
        except BaseException:
            file.close()
            raise
        file.close()
    raise OSError(errno.EBUSY, "another process keeps replacing this file", path)


def _regular(path: str, flags: int) -> io.FileIO:
    """Not as a number, which an interrupt would leave open."""
    flags |= _FLAGS | getattr(os, "O_BINARY", 0)
    try:
        file = io.FileIO(path, "r+", opener=lambda path, _: os.open(path, flags, 0o666))
    except OSError as error:
        if error.errno in _SPECIAL:
            raise NotAFileError(error.errno, "is not a regular file", path) from error
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotAFileError(errno.EINVAL, "is not a regular file", path)
    return file


def _flock(file: io.FileIO, *, unlock: bool = False) -> str:
    """Lock an open file without waiting, or unlock it; why that is not possible at all."""
    try:
        import fcntl
    except ImportError:  # Windows
        return "the system has no flock"
    try:
        fcntl.flock(file, fcntl.LOCK_UN if unlock else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        if error.errno in _NO_LOCKS:
            return error.strerror or "no locks"
        raise
    return ""


def _leads_to(path: str, file: io.FileIO) -> bool:
    try:
        return os.path.samestat(Path(path).lstat(), os.fstat(file.fileno()))
    except OSError:
        return False


def _leave_to_parent() -> None:
    # Closed, not unlocked: parent and child share the lock. A worker that outlives its parent must
    # not keep it.
    for each in tuple(_open):
        each.close(unlock=False)
    _mutex.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_leave_to_parent
    )
