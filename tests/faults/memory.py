"""A disk and an object store in memory, behind the interface of files that everything goes through.

What `Kept` holds outlives the process, which has a `MemoryFiles` of its own and changes it by
steps. Whoever watches sees what is kept before and after each, and half of a write: what a kill
leaves. A disk has directories, files that grow, and atomic renames; in a store an object is there,
whole, once it is closed, and a rename is a copy and a deletion. After a loss of power, a disk holds
of files and directories what was fsynced, and any part of what came later; a rename is one change,
promised with the directory of the new name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from typing_extensions import Buffer

from tfckpt.errors import SaveError, UnsupportedCheckpointError
from tfckpt.stored.io.files import Handle, LockedFile, UnlockedFile, temporary
from tfckpt.stored.io.locks import NotAFileError

MANY = 8  # changes that no sync has promised, any of which a loss of power may take


def nothing() -> None:
    """Where nobody watches, and nobody else takes a turn."""


class State(NamedTuple):
    """What was kept at one moment; equal for equal contents."""

    files: frozenset[tuple[str, bytes]]
    directories: frozenset[str]


EMPTY = State(frozenset(), frozenset())


@dataclasses.dataclass(eq=False)
class File:
    """What it holds, and what of that was promised."""

    data: bytes
    synced: bytes = b""


class Kept:
    """The files of a disk or the objects of a store."""

    def __init__(self, state: State = EMPTY) -> None:
        self.files = {path: File(data, data) for path, data in state.files}
        self.directories = set(state.directories)
        self.locks: dict[str, MemoryLock] = {}  # which end with their process
        self._durable = dict(self.files)
        self._pending: list[dict[str, File | None]] = []

    def state(self) -> State:
        return _state(self.files, self.directories, lambda file: file.data)

    def change(self, entries: dict[str, File | None]) -> None:
        """What names lead to from now on, that of the new name first."""
        self._pending.append(entries)
        _apply(self.files, entries)

    def sync_directory(self, directory: str) -> None:
        pending, self._pending = self._pending, []
        for entries in pending:
            if os.path.split(next(iter(entries)))[0] == directory:
                _apply(self._durable, entries)
                for earlier in self._pending:  # such as that of a file that was renamed
                    for path in entries:
                        earlier.pop(path, None)
            else:
                self._pending.append(entries)
        self._pending = [entries for entries in self._pending if entries]

    def losses(self) -> Iterator[State]:
        """What a loss of power may leave: any of the changes; of many, the first or all but one."""
        pending = self._pending
        some = [pending[:count] for count in range(len(pending) + 1)]
        some += [pending[:count] + pending[count + 1 :] for count in range(len(pending) - 1)]
        if len(pending) <= MANY:
            chosen = itertools.product((False, True), repeat=len(pending))
            some = [[*itertools.compress(pending, each)] for each in chosen]
        for changes in some:
            files = dict(self._durable)
            for entries in changes:
                _apply(files, entries)
            for survives in _SURVIVES:
                yield _state(files, self.directories, survives)


def _apply(files: dict[str, File], entries: dict[str, File | None]) -> None:
    for path, file in entries.items():
        if file is None:
            files.pop(path, None)
        else:
            files[path] = file


def _state(
    files: dict[str, File], directories: set[str], content: Callable[[File], bytes]
) -> State:
    above = {os.path.split(path)[0] for path in files} if directories else set()
    found = frozenset((path, content(file)) for path, file in files.items())
    return State(found, frozenset(directories | above))


def _unless_synced(damage: Callable[[bytes], bytes]) -> Callable[[File], bytes]:
    return lambda file: file.data if file.data == file.synced else damage(file.data)


_SURVIVES: tuple[Callable[[File], bytes], ...] = (
    lambda file: file.data,
    lambda file: file.synced,
    _unless_synced(lambda data: data[: len(data) // 2]),
    _unless_synced(lambda data: bytes(len(data))),
)


class How(str, Enum):
    """Which steps fail from the n-th on."""

    ONCE = "fails"
    ON = "fails, and all after it"
    FULL = "finds the disk full, and so do all that write after it"

    __str__ = str.__str__


@dataclasses.dataclass(frozen=True)
class Fault:
    """The n-th step fails. With effect it is done, and said to have failed."""

    n: int
    how: How = How.ONCE
    effect: bool = False

    def strikes(self, step: int, call: str) -> bool:
        if self.how is How.ONCE:
            return step == self.n
        return step >= self.n and (self.how is How.ON or call not in ("remove", "rmdir"))

    def __str__(self) -> str:
        return f"{self.n} {self.how}{', but is done' if self.effect else ''}"


class MemoryFiles:
    """What one process sees of it: of a disk, or of a store."""

    syncs = True  # whether fsync does anything

    def __init__(
        self,
        kept: Kept,
        *,
        renames: bool,  # a disk
        fault: Fault | None = None,
        watch: Callable[[], None] = nothing,  # before and after each step, and amid a write
        turn: Callable[[], None] = nothing,  # before each call, of reading too: others may run
        tells: bool = True,  # whether a store says that what is to be removed is not there
    ) -> None:
        self.kept, self.renames = kept, renames
        self._fault, self.watch, self.turn, self._tells = fault, watch, turn, tells
        self._made: set[str] = set()
        self.steps: list[str] = []  # that were begun
        self.struck = False  # whether one has failed

    def step(
        self,
        call: str,
        path: str,
        do: Callable[[], None] = nothing,
        half: Callable[[], None] = nothing,
    ) -> None:
        """Do it, unless it is struck; ``half`` is what a kill amid of it leaves."""
        self.turn()
        now = len(self.steps)
        self.steps.append(f"{call} {path}")
        self.watch()
        struck = self._fault is not None and self._fault.strikes(now, call)
        if not struck or (self._fault and self._fault.effect):
            if half is not nothing:
                half()
                self.watch()
            do()
            self.watch()
        if struck:
            self.struck = True
            full = self._fault is not None and self._fault.how is How.FULL
            raise _error(errno.ENOSPC if full else errno.EIO, path)

    def put(self, path: str, data: bytes, *, synced: bool = True) -> None:
        """A file of that name, or an object, or another content of the file."""
        if path in self.kept.files and self.renames:
            self.kept.files[path].data = data
        else:
            self.kept.change({path: File(data)})
        if synced and self.syncs:
            self.kept.files[path].synced = data

    def open_read(self, path: str) -> MemoryHandle:
        self.turn()
        if self._is_directory(path):
            raise UnsupportedCheckpointError("is a directory, not a regular file", path=path)
        return MemoryHandle(self._content(path))

    def create(self, path: str) -> MemoryOutput:
        if self.exists(path):
            raise _error(errno.EEXIST, path)
        if self.renames:
            self._check_parent(path)
            self.step("create", path, lambda: self.put(path, b"", synced=False))
        return MemoryOutput(self, path)

    def write_atomic(self, path: str, data: bytes) -> None:
        if not self.renames:
            self.step("put", path, lambda: self.put(path, data))
            return
        if self._is_directory(path):
            raise SaveError(f"{path}: is a directory, not a regular file; nothing was written")
        self._check_parent(path)
        with temporary(path) as unfinished:
            try:
                self.step(
                    "write",
                    unfinished,
                    lambda: self.put(unfinished, data),
                    lambda: self.put(unfinished, data[: len(data) // 2], synced=False),
                )
                self.rename(unfinished, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.remove(unfinished)
                raise

    def lock(self, path: str, new: bytes | None = None) -> LockedFile:
        self.turn()
        if self.renames and self._is_directory(path):
            raise _error(errno.EEXIST, path) if new is not None else NotAFileError(path)
        if new is None:
            self._content(path)
        elif path in self.kept.files:
            raise _error(errno.EEXIST, path)
        else:
            if self.renames:
                self._check_parent(path)
            self.step("create", path, lambda: self._create(path, new))
        if not self.renames:
            return UnlockedFile(path, self)
        if path in self.kept.locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        return MemoryLock(self, path)

    def rename(self, source: str, target: str) -> None:
        self.turn()
        data = self._content(source)
        if self.renames:
            self._check_parent(target)
            change = self.kept.change
            self.step(
                "rename", target, lambda: change({target: self.kept.files[source], source: None})
            )
        else:
            self.step("copy", target, lambda: self.put(target, data))
            self.step("remove", source, lambda: self._drop(source))

    def link(self, source: str, target: str) -> None:
        raise _error(errno.ENOTSUP, target)

    def identity(self, path: str) -> str:
        return path

    def listdir(self, path: str) -> list[str]:
        self.turn()
        inside = f"{path}/"
        names = {
            name.removeprefix(inside).partition("/")[0]
            for name in (*self.kept.files, *self.kept.directories)
            if name.startswith(inside)
        }
        if path in self.kept.files:
            raise _error(errno.ENOTDIR, path)
        if not names and path not in (self.kept.directories if self.renames else self._made):
            raise _error(errno.ENOENT, path)
        return sorted(names)

    def exists(self, path: str) -> bool:
        self.turn()
        return path in self.kept.files or self._is_directory(path)

    def is_dir(self, path: str) -> bool:
        self.turn()
        return self._is_directory(path)

    def status(self, path: str) -> tuple[int, float]:
        self.turn()
        return len(self._content(path)), 0.0

    def remove(self, path: str) -> None:
        self.turn()
        if self.renames and self._is_directory(path):
            raise _error(errno.EISDIR, path)
        if self.renames or self._tells:
            self._content(path)
        self.step("remove", path, lambda: self._drop(path))

    def remove_tree(self, path: str) -> None:
        self.turn()
        self._made.discard(path)
        found = [name for name in self.kept.files if name == path or name.startswith(f"{path}/")]
        if not found and path not in self.kept.directories:
            raise _error(errno.ENOENT, path)
        for name in sorted(found):
            self.step("remove", name, lambda name=name: self._drop(name))
        for name in sorted(self.kept.directories, reverse=True):
            if name == path or name.startswith(f"{path}/"):
                self.step("rmdir", name, lambda name=name: self.kept.directories.discard(name))

    def makedirs(self, path: str) -> None:
        if not self.renames:
            self._made.add(path)
            return
        while path not in self.kept.directories and path.strip("/"):
            self.step("makedirs", path, lambda path=path: self.kept.directories.add(path))
            path = os.path.split(path)[0]

    def free(self, path: str) -> int | None:
        return None

    def fsync(self, path: str) -> None:
        if self.renames:
            self.step("fsync", path, lambda: self.put(path, self._content(path)))

    def fsync_dir(self, path: str) -> None:
        if self.renames:
            sync = self.kept.sync_directory if self.syncs else lambda _: None
            self.step("fsync", path, lambda: sync(path))

    def _create(self, path: str, data: bytes) -> None:
        if path in self.kept.files:  # of two at the same time, one succeeds
            raise _error(errno.EEXIST, path)
        self.put(path, data)

    def _drop(self, path: str) -> None:
        self.kept.change({path: None})
        self.kept.locks.pop(path, None)

    def _content(self, path: str) -> bytes:
        if path not in self.kept.files:
            raise _error(errno.ENOENT, path)
        return self.kept.files[path].data

    def _is_directory(self, path: str) -> bool:
        if self.renames:
            return path in self.kept.directories
        return any(name.startswith(f"{path}/") for name in self.kept.files)

    def _check_parent(self, path: str) -> None:
        if os.path.split(path)[0] not in self.kept.directories:
            raise _error(errno.ENOENT, path)


class MemoryLock:
    """A file of a disk that one program has locked."""

    locked = True

    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files, self._path = files, path
        files.kept.locks[path] = self

    def write(self, data: bytes) -> None:
        put, path = self._files.put, self._path
        half = data[: len(data) // 2]
        self._files.step(
            "write", path, lambda: put(path, data), lambda: put(path, half, synced=False)
        )

    def close(self) -> None:
        if self._files.kept.locks.get(self._path) is self:
            del self._files.kept.locks[self._path]


class MemoryHandle(Handle):
    """An open file: what it held when it was opened."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @property
    def size(self) -> int:
        return len(self._content)

    def readinto(self, offset: int, buffer: memoryview) -> int:
        data = self._content[offset : offset + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Nothing is held."""


class MemoryOutput:
    """A new file, which grows; or a new object, which is there once it is closed."""

    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files, self._path, self._data, self._open = files, path, b"", True

    def reserve(self, nbytes: int) -> None:
        """There is always room."""

    def write(self, data: Buffer) -> None:
        before, new = self._data, bytes(memoryview(data).cast("B"))
        put, path, half = self._files.put, self._path, len(new) // 2
        if self._files.renames:
            self._files.step(
                "write",
                path,
                lambda: put(path, before + new, synced=False),
                lambda: put(path, before + new[:half], synced=False),
            )
        self._data = before + new

    def sync(self) -> None:
        self._files.fsync(self._path)

    def close(self) -> None:
        is_open, self._open = self._open, False
        if is_open and not self._files.renames:
            self._files.step("put", self._path, lambda: self._files.put(self._path, self._data))


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
