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
import datetime
import os
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from absl import logging

from tfckpt.errors import InUseError, SaveError
from tfckpt.stored.io.files import join
from tfckpt.stored.io.locks import FileLock, NotAFileError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

LOCK_FILE = ".tfckpt.lock"

_MAX_BYTES = 4096
_MAX_COMMAND = 500
_MAX_PID = 1 << 31

mutex = threading.RLock()
_locks: dict[str, FileLock] = {}  # path → lock; a directory may have two paths
of_process: list[MutableMapping[str, Any]] = [_locks]
"""What this process holds, and a forked child does not."""


class WriterLock:
    """The lock of the directory that a path leads to now, shared by a whole process.

    >>> import tempfile
    >>> directory = tempfile.mkdtemp()
    >>> WriterLock(directory).acquire(), WriterLock(directory + "/.").acquire()
    (True, False)
    >>> WriterLock(directory).release()
    """

    def __init__(self, directory: str) -> None:
        self._directory = os.path.realpath(directory)
        self._path = join(self._directory, LOCK_FILE)

    def acquire(self) -> bool:
        """Take the lock, or check that it is still held; called before every save.

        It is taken again where the directory was moved or the lock file deleted. Returns whether
        this call took it.
        """
        with mutex:
            own = _locks.get(self._path)
            if own is not None and (own.unlockable or own.is_at(self._path)):
                return False
            for path, lock in [*_locks.items()]:
                if path == self._path or (lock.locked and lock.is_deleted):
                    del _locks[path]
                    if lock not in _locks.values():
                        lock.close()
            of_other_path = (lock for lock in _locks.values() if lock.is_at(self._path))
            _locks[self._path] = next(of_other_path, None) or self._take()
            return True

    def release(self) -> None:
        """Let other processes save; affects every user of this lock in this process."""
        with mutex:
            own = _locks.get(self._path)
            if own is None:
                return
            for path in [path for path, lock in _locks.items() if lock is own]:
                del _locks[path]
            with contextlib.suppress(OSError, ValueError):  # a stale name in it does no harm
                own.write(b"")
            own.close()

    def _take(self) -> FileLock:
        try:
            lock = FileLock(self._path, os.O_CREAT, durable=False)
        except NotAFileError as error:
            message = f"{self._path}: is not a regular file and cannot be used as a lock"
            hint = "Nothing was written to it. Remove it, or save into another directory."
            raise SaveError(message, hint=hint) from error
        except BlockingIOError:
            holder = _Holder.read(_beginning(self._path))
            if holder and holder.has_ended:  # the next one has not signed yet
                holder = None
            message = f"{self._directory}: another process saves into this directory: "
            message += str(holder or "an unknown process")
            hint = "Save into another directory, or end that process first; its lock ends with it."
            raise InUseError(message, hint=hint) from None
        except OSError as error:
            hint = ""
            if isinstance(error, PermissionError):
                hint = "Saving needs write permission for the directory and this file."
            message = f"{self._path}: cannot be locked for saving: {error.strerror}"
            raise SaveError(message, hint=hint) from error
        if lock.unlockable:
            logging.warning(
                "%s: the file system does not support locks (%s); make sure that only one process "
                "saves into this directory",
                self._directory,
                lock.unlockable,
            )
            lock.close()
            return lock
        with contextlib.suppress(OSError):  # on a full disk the save itself will fail
            if before := _Holder.read(lock.read(_MAX_BYTES)):
                logging.debug("%s: the lock was last held by %s", self._directory, before)
            signed = msgspec.json.encode(_Holder.this_process())
            lock.write(signed + b"\n")
        return lock


def holder_of(directory: str) -> str:
    """Which process saves into a directory; "" if none does."""
    path = join(os.path.realpath(directory), LOCK_FILE)
    try:
        FileLock(path).close()
    except BlockingIOError:
        return str(_Holder.read(_beginning(path)) or "an unknown process")
    except OSError:  # there is no such file, or it is no lock
        pass
    return ""


class _Holder(msgspec.Struct, forbid_unknown_fields=True):
    """The holder of a lock."""

    pid: Annotated[int, msgspec.Meta(gt=0, lt=_MAX_PID)]
    host: str
    since: Annotated[datetime.datetime, msgspec.Meta(tz=True)]
    command: str

    @classmethod
    def this_process(cls) -> _Holder:
        now = datetime.datetime.now().astimezone().replace(microsecond=0)
        script = next(iter(sys.argv), "")[-_MAX_COMMAND:]
        return cls(os.getpid(), socket.gethostname(), now, script)

    @classmethod
    def read(cls, data: bytes) -> _Holder | None:
        """The holder that a file names; None where the content is invalid or incomplete."""
        try:
            holder = msgspec.json.decode(data if data.endswith(b"\n") else b"", type=cls)
            holder.since = holder.since.astimezone()
        except (ValueError, OverflowError, RecursionError):
            return None
        return holder

    @property
    def has_ended(self) -> bool:
        """Whether its process is over, as far as this machine knows."""
        if self.host == socket.gethostname():
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                pass
        return False

    def __str__(self) -> str:
        since = self.since.isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host!r}, since {since}, {self.command!r}"


def _beginning(path: str) -> bytes:
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        return file.read(_MAX_BYTES)
    return b""


def _forget() -> None:
    for each in of_process:
        each.clear()
    mutex.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=mutex.acquire, after_in_parent=mutex.release, after_in_child=_forget)
