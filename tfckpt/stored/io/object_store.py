"""Object stores through ``fsspec``: ``s3://…``, ``gs://…`` and what else it has a package for.

The interface is that of the local file system, with the same errors: whatever the store's own
library raises becomes :class:`OSError`. An object is there, whole, once it is closed; there are no
directories, no renames, no fsync, and an object that is open may disappear with its name. Listings
are asked for each time, since ``fsspec`` would remember them.

Credentials, endpoints and retries are the business of the store's library (``s3fs``, ``gcsfs``,
``adlfs``), which reads its own environment variables and files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Any

from tfckpt.errors import CheckpointError, NotInstalledError, UnsupportedCheckpointError
from tfckpt.stored.io.files import Files, Handle, UnlockedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from tfckpt.stored.io.files import LockedFile, Output

_FIRST = 64 << 10  # bytes fetched when an object is opened
_BLOCK = 4 << 20  # bytes fetched for a read after these
_BLOCKS = 16  # that are kept
_PART = 32 << 20  # of an upload; a store takes 10,000 at most
_WITH_DIRECTORIES = {"file", "local"}
_WITH_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
_CODES: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    PermissionError: errno.EACCES,
    NotADirectoryError: errno.ENOTDIR,
    IsADirectoryError: errno.EISDIR,
}


@cache
def object_store(scheme: str) -> Files:
    """The store of a scheme, ``s3`` for one; nothing is asked of it yet."""
    path = f"{scheme}://…"
    hint = "pip install 'tfckpt[remote]' installs what s3://, gs://, az:// and abfs:// need"
    try:
        import fsspec

        system = fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        what = f"a package for this kind of path is not installed ({error})"
        if isinstance(error, ValueError):
            what = "fsspec has no file system for this kind of path"
        raise NotInstalledError(f"{path}: {what}", hint=hint) from error
    return ObjectStore(scheme, system)


# Of all open objects together, the latest ones; each is fetched once for all threads that need it.
_blocks: dict[tuple[ObjectHandle, int], Future[bytes]] = {}
_blocks_lock = threading.Lock()


class ObjectHandle(Handle):
    """An open object, of which blocks are fetched when they are read."""

    def __init__(self, system: Any, key: str, path: str) -> None:
        self._system, self._key, self._path = system, key, path
        self._first = b""
        with _system_errors(path):
            self._size = self._opened()

    def _opened(self) -> int:
        """The size; a small object is fetched with the one request that finds it."""
        with contextlib.suppress(Exception):  # such as that it is empty; asked for again below
            self._first = self._system.cat_file(self._key, start=0, end=_FIRST)
            if len(self._first) < _FIRST:
                return len(self._first)
        info = self._system.info(self._key)
        if info["type"] == "directory":
            message = "is a directory, not a regular file"
            raise UnsupportedCheckpointError(message, path=self._path)
        return int(info["size"])

    @property
    def size(self) -> int:
        return self._size

    def readinto(self, offset: int, buffer: memoryview) -> int:
        length, done = min(len(buffer), max(self._size - offset, 0)), 0
        with _system_errors(self._path):
            while done < length and (part := self._from(offset + done)[: length - done]):
                buffer[done : done + len(part)] = part
                done += len(part)
        return done

    def _from(self, offset: int) -> memoryview:
        """The bytes from an offset to the end of its block; none if the object is shorter now."""
        if offset < len(self._first):
            return memoryview(self._first)[offset:]
        number, at = divmod(offset - len(self._first), _BLOCK)
        with _blocks_lock:
            block = _blocks.get((self, number))
            if new := block is None:
                block = _blocks[self, number] = Future()
                for oldest in [*_blocks][:-_BLOCKS]:
                    del _blocks[oldest]
        if new:
            start = offset - at
            stop = min(start + _BLOCK, self._size)
            try:
                block.set_result(self._system.cat_file(self._key, start=start, end=stop))
            except BaseException as error:
                block.set_exception(error)
                with _blocks_lock:  # the next read tries again
                    _blocks.pop((self, number), None)
        return memoryview(block.result())[at:]

    def close(self) -> None:
        with _blocks_lock:
            for own in [each for each in _blocks if each[0] is self]:
                del _blocks[own]


class ObjectOutput:
    """A new object; it is there once it is closed, and not at all if a write failed."""

    def __init__(self, system: Any, key: str, path: str) -> None:
        self._path, self._failed = path, False
        with _system_errors(path):
            self._file = system.open(key, "wb", block_size=_PART)

    def reserve(self, nbytes: int) -> None:
        """Do nothing: there is no call for it."""

    def write(self, data: Buffer) -> None:
        with self._discarded_on_failure():
            self._file.write(memoryview(data).cast("B"))

    def sync(self) -> None:
        """Do nothing: a closed object is as safe as the store makes it."""

    def close(self) -> None:
        if not self._failed:
            with self._discarded_on_failure():
                self._file.close()

    @contextlib.contextmanager
    def _discarded_on_failure(self) -> Iterator[None]:
        try:
            with _system_errors(self._path):
                yield
        except BaseException:
            self._failed = True
            with contextlib.suppress(Exception):
                self._file.discard()
            with contextlib.suppress(AttributeError):
                self._file.closed = True  # or it would be completed when it is collected
            raise


class ObjectStore:
    """The stores of one scheme."""

    def __init__(self, scheme: str, system: Any) -> None:
        self._scheme, self._class = scheme, system
        self._lock = threading.Lock()
        self._systems: dict[tuple[Any, ...], Any] = {}
        self._made: set[str] = set()  # a store without directories does not know an empty one
        self._buckets: set[str] = set()

    @property
    def renames(self) -> bool:
        return False

    def open_read(self, path: str) -> Handle:
        return ObjectHandle(*self._at(path), path)

    def create(self, path: str) -> Output:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return ObjectOutput(*self._at(path), path)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write an object, which the store shows as a whole."""
        system, key = self._at(path)
        with _system_errors(path):
            system.pipe_file(key, data)

    def lock(self, path: str, new: bytes | None = None) -> LockedFile:
        """Create an object that no other has created, as far as the store can tell."""
        if new is not None:
            system, key = self._at(path)
            with _system_errors(path):
                try:
                    system.pipe_file(key, new, mode="create")
                except FileExistsError:
                    raise
                except Exception:  # the store does not know it, or is busy
                    if system.exists(key):
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
                    system.pipe_file(key, new)
        return UnlockedFile(path, self)

    def rename(self, source: str, target: str) -> None:
        """Copy the object in the store, and remove the other one."""
        system, key = self._at(source)
        with _system_errors(source):
            system.cp_file(key, self._at(target)[1])
            system.rm_file(key)

    def link(self, source: str, target: str) -> None:
        raise OSError(errno.ENOTSUP, "an object store has no hard links", target)

    def identity(self, path: str) -> str:
        return path

    def listdir(self, path: str) -> list[str]:
        system, key = self._at(path)
        with _system_errors(path):
            try:
                found = system.ls(key, detail=True)
            except FileNotFoundError:
                self._check_bucket(system, key)
                if path.rstrip("/") not in self._made:
                    raise
                return []
        own = key.rstrip("/")
        if any(each["name"] == own and each["type"] == "file" for each in found):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        names = {each["name"].rstrip("/") for each in found}  # TensorFlow marks a directory: `run/`
        return sorted(name.rpartition("/")[2] for name in names - {own})

    def exists(self, path: str) -> bool:
        return self._type(path) is not None

    def is_dir(self, path: str) -> bool:
        return self._type(path) == "directory"

    def status(self, path: str) -> tuple[int, float]:
        system, key = self._at(path)
        with _system_errors(path):
            return int(system.info(key)["size"]), system.modified(key).timestamp()

    def remove(self, path: str) -> None:
        """Remove an object; not every store says whether it was there."""
        system, key = self._at(path)
        with _system_errors(path):
            system.rm_file(key)

    def remove_tree(self, path: str) -> None:
        self._made.discard(path.rstrip("/"))
        system, key = self._at(path)
        with _system_errors(path):
            found = system.find(key)
            if not found:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            for each in found:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    system.rm_file(each)
            if self._scheme in _WITH_DIRECTORIES and system.exists(key):
                system.rm(key, recursive=True)

    def makedirs(self, path: str) -> None:
        """Check that the bucket is there; neither it nor a directory is created."""
        system, key = self._at(path)
        with _system_errors(path):
            self._check_bucket(system, key)
        self._made.add(path.rstrip("/"))

    def free(self, path: str) -> int | None:
        """None: there is no call for it."""

    def fsync(self, path: str) -> None:
        """Do nothing: a closed object is as safe as the store makes it."""

    def fsync_dir(self, path: str) -> None:
        """Do nothing."""

    def _check_bucket(self, system: Any, key: str) -> None:
        """Raise OSError where there is no such bucket, as far as this user may know; asks once."""
        bucket = key.partition("/")[0]
        if self._scheme not in _WITH_BUCKETS or bucket in self._buckets:
            return
        for ask in (system.info, system.ls):  # without rights, an empty one seems not to be there
            with contextlib.suppress(FileNotFoundError):
                with contextlib.suppress(PermissionError):
                    ask(bucket)
                self._buckets.add(bucket)
                return
        raise OSError(errno.EIO, f"there is no bucket or container {bucket!r}")

    def _type(self, path: str) -> str | None:
        system, key = self._at(path)
        with _system_errors(path):
            try:
                return str(system.info(key)["type"])
            except FileNotFoundError:
                return None

    def _at(self, path: str) -> tuple[Any, str]:
        """The file system for a path, made once for each process, and the path within it."""
        with _system_errors(path):
            options = self._class._get_kwargs_from_urls(path)
            known = (os.getpid(), *sorted(options.items()))
            with self._lock:
                if known not in self._systems:
                    options |= {"use_listings_cache": False, "skip_instance_cache": True}
                    if self._scheme in _WITH_DIRECTORIES:
                        options["auto_mkdir"] = True
                    self._systems[known] = self._class(**options)
            return self._systems[known], self._class._strip_protocol(path)


@contextlib.contextmanager
def _system_errors(path: str) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
        text = error.strerror or str(error) or type(error).__name__
        raise OSError(next(codes, error.errno or errno.EIO), text, path) from error
    except Exception as error:  # of any library
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", path) from error
