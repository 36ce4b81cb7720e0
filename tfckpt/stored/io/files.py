"""The file system as tfckpt uses it: a small interface, so that tests can make each call fail.

Reads are by offset (``pread``), so several threads may read one file. A file that readers look for
is written atomically: temporary file, fsync, rename. Readers see the old content or the new one,
after a loss of power, too; from the next fsync of the directory on it is the new one. Larger files
are written in pieces and synced. Temporary names end with eight hexadecimal digits and ``.tmp``, so
that leftovers of a dead process can be recognized.

Refused: anything but a regular file where a file is expected. Symbolic links are followed for
reading, since model caches consist of links, but never for writing. Opening a FIFO does not block.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tfckpt.errors import (
    DamagedCheckpointError,
    SaveError,
    TfckptError,
    UnsupportedCheckpointError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer


_TEMPORARY = re.compile(r"(?P<of>.+)\.[0-9a-f]{8}\.tmp", re.DOTALL)
_CHUNK = 1 << 20
_LARGE = 1 << 23  # bytes; for less, space is not reserved
_in_use: set[str] = set()


class Handle(Protocol):
    """A file open for reading; it stays readable after its name is deleted."""

    @property
    def size(self) -> int: ...

    def pread(self, offset: int, length: int) -> bytes:
        """The bytes at ``offset``; fewer than ``length`` only at the end of the file."""
        buffer = bytearray(min(length, max(self.size - offset, 0)))
        count = self.readinto(offset, memoryview(buffer))
        return bytes(memoryview(buffer)[:count])

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer`` and return the number of bytes, fewer only at the end of the file."""

    def close(self) -> None: ...


class Output(Protocol):
    """A new file, written sequentially."""

    def reserve(self, nbytes: int) -> None:
        """Announce that at least ``nbytes`` will be written, so that the disk can allocate them."""

    def write(self, data: Buffer) -> None:
        """Append all of ``data``."""

    def sync(self) -> None:
        """Flush what was written to disk, as far as the file system supports it."""

    def close(self) -> None:
        """Close the file; its content is complete."""


class LockedFile(Protocol):
    """A small file that one holder has for itself.

    Attributes:
        locked: whether the file system keeps others out; an object store does not.
    """

    @property
    def locked(self) -> bool: ...

    def write(self, data: bytes) -> None:
        """Make ``data`` its durable content."""

    def close(self) -> None:
        """Let others have it."""


class Files(Protocol):
    """A file system; failures raise OSError, missing files FileNotFoundError."""

    @property
    def renames(self) -> bool:
        """Whether renames are atomic, unlike in an object store.

        Without them, large files are written at their final path, and small files are written again
        there.
        """

    def open_read(self, path: str) -> Handle: ...

    def create(self, path: str) -> Output:
        """Create a file for writing; fails where the name exists."""

    def write_atomic(self, path: str, data: bytes) -> None:
        """Make ``data`` the content of ``path``, or leave the old content.

        A loss of power leaves one of both, the new one after ``fsync_dir``.
        """

    def lock(self, path: str, new: bytes | None = None) -> LockedFile:
        """Lock a file that exists, or with ``new`` one that does not, which gets this content.

        BlockingIOError where another has it, FileExistsError where it is to be new and exists.
        """

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing target."""

    def link(self, source: str, target: str) -> None:
        """Give a file a further name; OSError where the file system has no hard links."""

    def identity(self, path: str) -> str:
        """What is the same for all names of one file."""

    def listdir(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool:
        """Whether the name exists, even as a dangling link."""

    def is_dir(self, path: str) -> bool:
        """Whether it is a directory and not a link to one."""

    def status(self, path: str) -> tuple[int, float]:
        """Size in bytes and Unix time of the last write."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Remove a file or a directory tree; of a link only the link."""

    def makedirs(self, path: str) -> None:
        """Create a directory and its missing parents."""

    def free(self, path: str) -> int | None:
        """Free bytes for a directory; None where unknown."""

    def fsync(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...


class UnlockedFile:
    """A lock where the file system has none."""

    locked = False

    def __init__(self, path: str, files: Files) -> None:
        self._path, self._files = path, files

    def write(self, data: bytes) -> None:
        self._files.write_atomic(self._path, data)

    def close(self) -> None:
        """Nothing is held."""


def content(path: str, files: Files, most: int | None = None) -> bytes:
    """The content of a small file."""
    with contextlib.closing(files.open_read(path)) as handle:
        if most is not None and handle.size > most:
            message = f"is {handle.size} bytes long, which is too long for this kind of file"
            raise DamagedCheckpointError(message, path=path)
        return handle.pread(0, handle.size)


def join(directory: str, name: str) -> str:
    """The path of a name in a directory, in the notation of the directory.

    >>> join("gs://bucket/run", "ckpt-1")
    'gs://bucket/run/ckpt-1'
    """
    return os.path.join(directory, name)  # noqa: PTH118  Path would make it "gs:/bucket/run"


def absolute(path: str) -> str:
    """A local path made absolute; a URL as it is."""
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100  text, as it came


def lies_in(prefix: str, directory: str) -> bool:
    """Whether a checkpoint prefix lies in a directory, whatever notation both use.

    >>> lies_in("file:///runs/a/ckpt-1", "/runs/b/../a/")
    True
    """
    parent, other = (p.removeprefix("file://") for p in (os.path.split(prefix)[0], directory))
    return parent == other or os.path.realpath(parent) == os.path.realpath(other)


@contextlib.contextmanager
def temporary(path: str) -> Iterator[str]:
    """A fresh temporary name beside ``path``."""
    name = f"{path}.{os.urandom(4).hex()}.tmp"
    token = os.path.split(name)[1]
    _in_use.add(token)
    try:
        yield name
    finally:
        _in_use.discard(token)


def abandoned(name: str) -> str | None:
    """The final name of a temporary file that this process is not using; None for any other name.

    >>> abandoned("ckpt-1.0a1b2c3d.tmp")
    'ckpt-1'
    """
    return None if name in _in_use else stands_for(name)


def stands_for(name: str) -> str | None:
    """The final name that a temporary name stands for; None for any other name."""
    match = _TEMPORARY.fullmatch(name) if name.endswith(".tmp") else None
    return match["of"] if match else None


@contextlib.contextmanager
def reading(path: str, name: str = "", kind: str = "") -> Iterator[None]:
    """Convert an OSError while reading into DamagedCheckpointError.

    With ``kind``, what the library of that kind of file raises, whatever its type, is converted.
    """
    try:
        yield
    except TfckptError:
        raise
    except Exception as error:
        if not kind and not isinstance(error, OSError):
            raise
        system = getattr(error, "strerror", None)
        text = str(error).partition(" [source")[0].strip("'\"").rstrip(".")  # of tensorstore
        how = f" as {kind}" if kind and not system else ""
        message = f"cannot be read{how}: {system or text[:300] or type(error).__name__}"
        raise DamagedCheckpointError(message, path=path, name=name) from error


def digest_of(handles: Iterable[Handle]) -> str:
    """SHA-256 in hexadecimal of the concatenated content of files."""
    digest = hashlib.sha256()
    for handle in handles:
        for start in range(0, handle.size, _CHUNK):
            digest.update(handle.pread(start, _CHUNK))
    return digest.hexdigest()


def _open_regular(path: str, flags: int) -> int:
    # O_NONBLOCK: opening a FIFO without a writer would block forever.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


class LocalHandle(Handle):
    """A regular file of the local file system."""

    def __init__(self, path: str) -> None:
        try:
            self._file = io.FileIO(path, "rb", opener=_open_regular)
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.ENXIO):
                raise _not_a_file(path) from error
            raise
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            self._file.close()
            raise _not_a_file(path)
        self._size = status.st_size
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        return self._size

    def readinto(self, offset: int, buffer: memoryview) -> int:
        done = 0
        while done < len(buffer):
            count = self._read_at(offset + done, buffer[done:])
            if not count:
                break
            done += count
        return done

    def _read_at(self, offset: int, buffer: memoryview) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [buffer], offset)
        with self._lock:  # Windows
            self._file.seek(offset)
            return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()


class LocalOutput:
    """A new file of the local file system."""

    def __init__(self, path: str, *, durable: bool = True) -> None:
        self._file = io.FileIO(path, "x")
        self._durable = durable

    def reserve(self, nbytes: int) -> None:
        if nbytes >= _LARGE:
            from tfckpt.stored.io.preallocate import reserve  # imports ctypes

            reserve(self._file.fileno(), nbytes)

    def write(self, data: Buffer) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def sync(self) -> None:
        if self._durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class LocalFiles:
    """The local file system."""

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable

    @property
    def renames(self) -> bool:
        return True

    def open_read(self, path: str) -> LocalHandle:
        return LocalHandle(path)

    def create(self, path: str) -> LocalOutput:
        return LocalOutput(path, durable=self._durable)

    def write_atomic(self, path: str, data: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(Path(path).lstat().st_mode):
                message = f"{path}: is {_kind(path)}, not a regular file; nothing was written"
                raise SaveError(message)
        with temporary(path) as unfinished:
            try:
                output = LocalOutput(unfinished, durable=self._durable)
                with contextlib.closing(output):
                    output.write(data)
                    output.sync()
                self.rename(unfinished, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.remove(unfinished)
                raise

    def lock(self, path: str, new: bytes | None = None) -> LockedFile:
        from tfckpt.stored.io.locks import FileLock  # not needed for reading

        if new is None:
            return FileLock(path, durable=self._durable)
        lock = FileLock(path, os.O_CREAT | os.O_EXCL, durable=self._durable)
        try:
            if new:
                lock.write(new)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(path)
            lock.close()
            raise
        return lock

    def rename(self, source: str, target: str) -> None:
        Path(source).replace(target)

    def link(self, source: str, target: str) -> None:
        if not stat.S_ISREG(Path(source).lstat().st_mode):
            raise OSError(errno.EPERM, f"is {_kind(source)}", source)
        Path(target).hardlink_to(source)

    def identity(self, path: str) -> str:
        status = os.stat(path)  # noqa: PTH116  called for each file of a directory
        return f"{status.st_dev}:{status.st_ino}"

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path or ".")  # noqa: PTH208  names, not paths

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return Path(path).is_dir() and not Path(path).is_symlink()

    def status(self, path: str) -> tuple[int, float]:
        status = os.stat(path)  # noqa: PTH116  called for each file of a directory
        return status.st_size, status.st_mtime

    def remove(self, path: str) -> None:
        Path(path).unlink()

    def remove_tree(self, path: str) -> None:
        if stat.S_ISDIR(Path(path).lstat().st_mode):
            import shutil

            shutil.rmtree(path)
        else:
            self.remove(path)

    def makedirs(self, path: str) -> None:
        if os.path.isdir(path):  # noqa: PTH112 (each save asks)
            return
        new = [each for each in (Path(path), *Path(path).parents) if not each.exists()]
        Path(path).mkdir(parents=True, exist_ok=True)
        for each in new:
            self.fsync_dir(str(each.parent))

    def free(self, path: str) -> int | None:
        if not hasattr(os, "statvfs"):  # Windows
            return None
        status = os.statvfs(path or ".")
        blocks = status.f_bavail if os.geteuid() else status.f_bfree
        return blocks * status.f_frsize

    def fsync(self, path: str) -> None:
        if not self._durable:
            return
        with io.FileIO(path, opener=_open_regular) as file:
            os.fsync(file.fileno())

    def fsync_dir(self, path: str) -> None:
        # Windows cannot open a directory.
        if not self._durable or not hasattr(os, "O_DIRECTORY"):
            return
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


LOCAL = LocalFiles()
SCRATCH = LocalFiles(durable=False)


def _kind(path: str) -> str:
    mode = Path(path).lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"a symbolic link to {Path(path).readlink()}"
    return "a directory" if stat.S_ISDIR(mode) else "a special file"


def _not_a_file(path: str) -> UnsupportedCheckpointError:
    return UnsupportedCheckpointError(f"is {_kind(path)}, not a regular file", path=path)


def files_of(path: str, *, durable: bool = True) -> Files:
    """The file system of a local path or ``scheme://…``.

    ``durable`` is whether local files must survive a power failure.

    >>> type(files_of("runs/flowers")).__name__
    'LocalFiles'
    """
    scheme, separator, _ = path.partition("://")
    if not separator:
        return LOCAL if durable else SCRATCH
    from tfckpt.stored.io.object_store import object_store  # a local path needs nothing of it

    return object_store(scheme)
