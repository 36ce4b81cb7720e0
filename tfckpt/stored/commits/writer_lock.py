"""Locks a directory for one writing process: ``.tfckpt.lock``, held until the process ends.

Two processes that save into one directory would use the same numbers, and treat each other's
unfinished files as leftovers. The kernel holds the lock (``flock``), so it is free as soon as its
process is dead; the existence of the file means nothing. The file names the holder for error
messages: process, machine, script and start time, but no command-line arguments, which may contain
secrets.

The file is never deleted, since that could delete a file that another process has just locked.
Whether the name still leads to the locked file is checked all the same, as users may delete it.

Refused: a link or another special file under that name. A file system without locks causes a
warning, and so does a system without them (Windows); a remote one is not locked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import json
import os
import socket
import stat
import sys
import threading
from pathlib import Path

from absl import logging

from tfckpt.errors import InUseError, SaveError
from tfckpt.stored.io.files import join
from tfckpt.stored.io.shared_directory import lock, unlock

LOCK_FILE = ".tfckpt.lock"

_MAX_BYTES = 4096
_MAX_COMMAND = 500
_MAX_PID = 1 << 31
_ATTEMPTS = 10
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_TAKEN = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
_HINT = "Save into another directory, or end that process first; its lock ends with it."

# Shared by all locks, so that a fork waits until none is half taken. Reentrant, as a signal handler
# may fork.
_mutex = threading.RLock()
_locks: dict[str, WriterLock] = {}


class WriterLock:
    """The lock of one directory, shared by a whole process; made by :func:`lock_of`.

    A forked child does not hold it, and its inherited descriptor does not keep it locked.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._path = join(directory, LOCK_FILE)
        self._descriptor: int | None = None
        self._unlockable = False

    def acquire(self) -> bool:
        """Take the lock, or check that it is still held; called before every save.

        It is taken again where the directory was moved or the lock file deleted.

        Returns:
            Whether this call took the lock, so that leftovers of others may be recovered;
            False where this process held it already.
        """
        with _mutex:
            if self._unlockable:
                return False
            if self._descriptor is not None:
                if _leads_to(self._path, self._descriptor):
                    return False
                self._forget()
            self._descriptor = self._take()
            return True

    def release(self) -> None:
        """Let other processes save; affects every user of this lock in this process."""
        with _mutex:
            if self._descriptor is not None:
                with contextlib.suppress(OSError):  # a stale name in it does no harm
                    os.ftruncate(self._descriptor, 0)
                unlock(self._descriptor)
                for each, _ in _held(self._descriptor):
                    each._forget()
            self._forget()

    def _is_deleted(self) -> bool:
        """Whether the directory is deleted; a moved one stays locked."""
        return self._descriptor is not None and not os.fstat(self._descriptor).st_nlink

    def _forget(self) -> None:
        """Close the descriptor, which unlocks unless another process shares it."""
        descriptor, self._descriptor, self._unlockable = self._descriptor, None, False
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _take(self) -> int | None:
        for _ in range(_ATTEMPTS):
            descriptor = self._open()
            try:
                if held := _held(descriptor):
                    shared = os.dup(held[0][1])
                    os.close(descriptor)
                    return shared
                locked = self._lock(descriptor)
                if locked and _leads_to(self._path, descriptor):
                    self._sign(descriptor)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            if not locked:
                self._unlockable = True
                return None
        raise SaveError(f"{self._path}: another process keeps replacing this file")

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT
        for name in (
            "O_NOFOLLOW",
            "O_NONBLOCK",
            "O_BINARY",
        ):  # O_NONBLOCK: opening a device may block
            flags |= getattr(os, name, 0)
        try:
            descriptor = os.open(self._path, flags, 0o666)
        except OSError as error:
            if _is_special(self._path):
                raise _no_file(self._path) from error
            raise self._failed(error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _no_file(self._path)
        return descriptor

    def _lock(self, descriptor: int) -> bool:
        """Lock the file; False where the file system has no locks."""
        try:
            lock(descriptor)
        except OSError as error:
            if error.errno in _TAKEN:
                holder = _Holder.read(descriptor).present()
                message = f"{self.directory}: another process saves into this directory: {holder}"
                raise InUseError(message, hint=_HINT) from None
            if error.errno in _NO_LOCKS:
                logging.warning(
                    "%s: the file system does not support locks (%s); make sure that only one "
                    "process saves into this directory",
                    self.directory,
                    error.strerror,
                )
                return False
            raise self._failed(error) from error
        return True

    def _failed(self, error: OSError) -> SaveError:
        hint = ""
        if error.errno in (errno.EACCES, errno.EPERM):
            hint = "Saving needs write permission for the directory and this file."
        return SaveError(f"{self._path}: cannot be locked for saving: {error.strerror}", hint=hint)

    def _sign(self, descriptor: int) -> None:
        before = _Holder.read(descriptor)
        if before.pid:
            logging.info("%s: takes over the lock left by %s", self.directory, before)
        with contextlib.suppress(OSError):  # on a full disk the save itself will fail
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, _Holder.this_process().line())
            os.fsync(descriptor)  # so that other machines on NFS see it


def lock_of(directory: str) -> WriterLock:
    """The lock of the directory that this path leads to now; call it before every save.

    >>> import tempfile
    >>> directory = tempfile.mkdtemp()
    >>> lock_of(directory).acquire(), lock_of(directory + "/.").acquire()
    (True, False)
    >>> lock_of(directory).release()
    """
    path = os.path.realpath(directory)
    with _mutex:
        if path not in _locks:
            for other in [each for each in _locks.values() if each._is_deleted()]:
                other._forget()
                del _locks[other.directory]
            _locks[path] = WriterLock(path)
        return _locks[path]


@dataclasses.dataclass(frozen=True, slots=True)
class _Holder:
    """The holder of a lock; pid 0 where unknown."""

    pid: int = 0
    host: str = ""
    since: str = ""
    command: str = ""

    @classmethod
    def this_process(cls) -> _Holder:
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        script = next(iter(sys.argv), "")[-_MAX_COMMAND:]
        return cls(os.getpid(), socket.gethostname(), now, script)

    @classmethod
    def read(cls, descriptor: int) -> _Holder:
        """The holder named in the file; unknown where the content is invalid or incomplete."""
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            data = os.read(descriptor, _MAX_BYTES)
            holder = cls(**json.loads(data)) if data.endswith(b"\n") else cls()
            since = datetime.datetime.fromisoformat(holder.since).astimezone()
        except (OSError, ValueError, TypeError, OverflowError, RecursionError):
            return cls()
        texts = isinstance(holder.host, str) and isinstance(holder.command, str)
        if not texts or type(holder.pid) is not int or not 0 < holder.pid < _MAX_PID:
            return cls()
        return dataclasses.replace(holder, since=since.isoformat(timespec="seconds"))

    def present(self) -> _Holder:
        """The holder, unknown where its process has ended and the next one has not signed."""
        if self.host == socket.gethostname():
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return _Holder()
            except PermissionError:
                pass
        return self

    def line(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    def __str__(self) -> str:
        if not self.pid:
            return "an unknown process"
        return f"process {self.pid} on {self.host!r}, since {self.since}, {self.command!r}"


def _held(descriptor: int) -> list[tuple[WriterLock, int]]:
    """The locks of this process on the same file, whose directory was moved or has two names."""
    return [
        (each, own)
        for each in _locks.values()
        if (own := each._descriptor) is not None and _is_same(own, descriptor)
    ]


def _is_same(one: int, other: int) -> bool:
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:  # another thread has closed one
        return False


def _leads_to(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(Path(path).lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _is_special(path: str) -> bool:
    try:
        return not stat.S_ISREG(Path(path).lstat().st_mode)
    except OSError:
        return False


def _no_file(path: str) -> SaveError:
    hint = "Nothing was written to it. Remove it, or save into another directory."
    return SaveError(f"{path}: is not a regular file and cannot be used as a lock", hint=hint)


def _leave_to_parent() -> None:
    # Closed, not unlocked: parent and child share the lock. A worker that outlives its parent must
    # not keep it.
    for each in _locks.values():
        each._forget()
    _mutex.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_leave_to_parent
    )
