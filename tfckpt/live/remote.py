"""Remote files through ``tf.io.gfile``: every file system that TensorFlow has, as ``gs://…``.

The interface is that of the local file system, with the same errors: TensorFlow's become
:class:`OSError`, so readers do not depend on where they read. Some guarantees are weaker: there is
no fsync (a closed file is as safe as the store makes it), an open file may disappear with its name,
and a rename may be a copy.

A listing must be of this moment, as those of the large stores are.

``file://`` is the local file system, but TensorFlow follows links in it even when it deletes trees.
So reading, looking up and deleting trees go through the local calls.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import shutil
import tempfile
import threading
from typing import TYPE_CHECKING

import tensorflow as tf

from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.live.paths import without_pattern
from tfckpt.live.private.runtime import renames_at_once
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.keys import OBJECT_GRAPH, edges, object_graph
from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.commits.record_file import parts
from tfckpt.stored.io.explain import DATA
from tfckpt.stored.io.files import (
    LOCAL,
    SCRATCH,
    Files,
    Handle,
    UnlockedFile,
    choose_files,
    join,
    temporary,
)
from tfckpt.stored.io.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from typing_extensions import Buffer

    from tfckpt.stored.io.files import LockedFile, Output

_CHUNK = 1 << 20  # 256 MiB in one piece takes TensorFlow sixty times as long
_FILE = "file://"
_CODES = {
    tf.errors.NotFoundError: errno.ENOENT,
    tf.errors.AlreadyExistsError: errno.EEXIST,
    tf.errors.PermissionDeniedError: errno.EACCES,
    tf.errors.UnauthenticatedError: errno.EACCES,
    tf.errors.ResourceExhaustedError: errno.ENOSPC,
}


def files_of(path: str, *, durable: bool = True) -> Files:
    """The file system of a local path or ``scheme://…``.

    ``durable`` is whether local files must survive a power failure.

    >>> type(files_of("gs://bucket/run")).__name__, type(files_of("runs/flowers")).__name__
    ('RemoteFiles', 'LocalFiles')
    """
    return choose_files(path, of_tensorflow, durable=durable)


def of_tensorflow(scheme: str) -> Files | None:
    """TensorFlow's file system for a scheme, None if it has none."""
    return REMOTE if scheme in tf.io.gfile.get_registered_schemes() else None


class RemoteHandle(Handle):
    """An open remote file; one thread reads at a time, since TensorFlow's has a position."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        with _system_errors(path):
            status = tf.io.gfile.stat(path)
            if status.is_directory:
                message = "is a directory, not a regular file"
                raise UnsupportedCheckpointError(message, path=path)
            self._size = int(status.length)
            self._file = tf.io.gfile.GFile(path, "rb")
            self._file.seek(0)  # opens it

    @property
    def size(self) -> int:
        return self._size

    def readinto(self, offset: int, buffer: memoryview) -> int:
        length, done = min(len(buffer), max(self._size - offset, 0)), 0
        with self._lock, _system_errors(self._path):
            if length:
                self._file.seek(offset)
            while done < length:
                data = self._file.read(min(length - done, _CHUNK))
                if not data:
                    break
                buffer[done : done + len(data)] = data
                done += len(data)
        return done

    def close(self) -> None:
        self._file.close()


class RemoteOutput:
    """A new remote file; an object store shows it once it is closed."""

    def __init__(self, path: str) -> None:
        self._path = path
        with _system_errors(path):
            self._file = tf.io.gfile.GFile(path, "wb")

    def reserve(self, nbytes: int) -> None:
        """Do nothing: there is no call for it."""

    def write(self, data: Buffer) -> None:
        rest = memoryview(data).cast("B")
        with _system_errors(self._path):
            for start in range(0, len(rest), _CHUNK):
                self._file.write(bytes(rest[start : start + _CHUNK]))

    def sync(self) -> None:
        """Do nothing: a closed file is as safe as the file system makes it."""

    def close(self) -> None:
        with _system_errors(self._path):
            self._file.close()


class RemoteFiles:
    """The file systems of ``tf.io.gfile``.

    >>> REMOTE.write_atomic("ram://run/file", b"content")
    >>> REMOTE.listdir("ram://run")
    ['file']
    """

    def __init__(self) -> None:
        self._made: set[str] = set()  # a store without directories does not know an empty one

    @property
    def renames(self) -> bool:
        return False

    def open_read(self, path: str) -> Handle:
        local = _local(path)
        return RemoteHandle(path) if local is None else LOCAL.open_read(local)

    def create(self, path: str) -> Output:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return RemoteOutput(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write a temporary file and rename it; write directly where a rename is a copy.

        An object store shows a new object as a whole when it is closed.
        """
        with _system_errors(path):
            if not renames_at_once(path):
                _write(path, data)
                return
            with temporary(path) as unfinished:
                try:
                    _write(unfinished, data)
                    tf.io.gfile.rename(unfinished, path, overwrite=True)
                except BaseException:
                    with contextlib.suppress(tf.errors.OpError):
                        tf.io.gfile.remove(unfinished)
                    raise

    def lock(self, path: str, new: bytes | None = None) -> LockedFile:
        if new is not None:
            if self.exists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self.write_atomic(path, new)
        return UnlockedFile(path, self)

    def rename(self, source: str, target: str) -> None:
        with _system_errors(source):
            tf.io.gfile.rename(source, target, overwrite=True)

    def listdir(self, path: str) -> list[str]:
        with _system_errors(path):
            try:
                return [name.rstrip("/") for name in tf.io.gfile.listdir(path)]
            except tf.errors.NotFoundError as error:
                # Also raised for a directory that is unreachable or not permitted, where a run
                # would then start from scratch. `stat` distinguishes these.
                try:
                    there = tf.io.gfile.stat(path).is_directory
                except tf.errors.NotFoundError:
                    if path not in self._made:
                        raise
                    return []
                code = errno.EIO if there else errno.ENOTDIR
                raise OSError(code, os.strerror(code), path) from error

    def exists(self, path: str) -> bool:
        local = _local(path)
        if local is not None:
            return LOCAL.exists(local)
        with _system_errors(path):
            return bool(tf.io.gfile.exists(path))

    def is_dir(self, path: str) -> bool:
        local = _local(path)
        if local is not None:
            return LOCAL.is_dir(local)
        with _system_errors(path):
            return bool(tf.io.gfile.isdir(path))

    def status(self, path: str) -> tuple[int, float]:
        with _system_errors(path):
            found = tf.io.gfile.stat(path)
        return int(found.length), found.mtime_nsec / 1e9

    def remove(self, path: str) -> None:
        with _system_errors(path):
            tf.io.gfile.remove(path)

    def remove_tree(self, path: str) -> None:
        self._made.discard(path)
        local = _local(path)
        if local is not None:
            LOCAL.remove_tree(local)
            return
        with _system_errors(path):
            if tf.io.gfile.isdir(path):
                tf.io.gfile.rmtree(path)
            else:
                tf.io.gfile.remove(path)

    def makedirs(self, path: str) -> None:
        with _system_errors(path):
            tf.io.gfile.makedirs(path)
        self._made.add(path)

    def free(self, path: str) -> int | None:
        """None: there is no call for it."""

    def fsync(self, path: str) -> None:
        """Do nothing: a closed file is as safe as the file system makes it."""

    def fsync_dir(self, path: str) -> None:
        """Do nothing."""


REMOTE = RemoteFiles()


def _write(path: str, data: bytes) -> None:
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(data)


def _local(path: str) -> str | None:
    """The local path of a ``file://`` path, without the host as in TensorFlow; else None."""
    return "/" + path[len(_FILE) :].partition("/")[2] if path.startswith(_FILE) else None


@contextlib.contextmanager
def _system_errors(path: str) -> Iterator[None]:
    try:
        yield
    except tf.errors.OpError as error:
        code = _CODES.get(type(error), errno.EIO)
        raise OSError(code, error.message or os.strerror(code), path) from error
    except UnicodeError as error:  # a name is not UTF-8
        raise OSError(errno.EILSEQ, str(error), path) from error


_COPIED = 1 << 22  # bytes at a time
_NAME = "ckpt"
_WRITTEN_ANEW = re.compile(rf"{DATA}|\.index|\.tfckpt\.json")


def readable(prefix: str, without: Collection[str] = ()) -> str:
    """A prefix at which TensorFlow can read a checkpoint until the process exits."""
    files = files_of(prefix)
    if not isinstance(files, ObjectStore):
        return without_pattern(prefix)
    directory = tempfile.mkdtemp(prefix="tfckpt-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with Bundle.open(prefix, files) as bundle:
        return _copied(bundle, bundle.entries.keys() - {*without}, files, directory)


@contextlib.contextmanager
def readable_part(prefix: str, keys: Iterable[str]) -> Iterator[str]:
    """A prefix at which TensorFlow can read the objects of some keys, within the block."""
    files = files_of(prefix)
    if not isinstance(files, ObjectStore):
        yield without_pattern(prefix)
        return
    with tempfile.TemporaryDirectory(prefix="tfckpt-") as directory:
        with Bundle.open(prefix, files) as bundle:
            target = _copied(bundle, _keys_below(bundle, keys), files, directory)
        yield target


@contextlib.contextmanager
def writable(prefix: str, files: Files) -> Iterator[str]:
    """A prefix at which TensorFlow can write; what it wrote is under ``prefix`` after the block."""
    if not isinstance(files, ObjectStore):
        yield prefix
        return
    parent, name = os.path.split(prefix)
    with tempfile.TemporaryDirectory(prefix="tfckpt-") as directory:
        yield join(directory, name)
        for file in LOCAL.listdir(directory):
            if not LOCAL.is_dir(join(directory, file)):  # it may leave `ckpt-1_temp`, empty
                _copy(join(directory, file), LOCAL, join(parent, file), files)


def _keys_below(bundle: Bundle, keys: Iterable[str]) -> set[str]:
    """The keys of the objects that some keys belong to, and of all objects below these."""
    nodes = object_graph(bundle).nodes
    found: set[int] = set()
    for key in keys:
        at = 0
        for edge in edges(key):
            at = next(c.node_id for c in nodes[at].children if c.local_name == edge)
        left = [at]
        while left:
            if (at := left.pop()) not in found:
                found.add(at)
                left += [child.node_id for child in nodes[at].children]
    # An iterator stores its state under the key with `_STATE` added, a table two with others.
    begin = tuple(each.checkpoint_key for at in found for each in nodes[at].attributes)
    return {key for key in bundle.entries if key.startswith(begin)}


def _copied(bundle: Bundle, keys: Collection[str], files: Files, directory: str) -> str:
    """The prefix of a local copy of some values, and of what registered savers wrote."""
    target, parent = join(directory, _NAME), os.path.split(bundle.prefix)[0]
    with BundleWriter(target, files=SCRATCH) as writer:
        for key in sorted({OBJECT_GRAPH, *keys} & bundle.entries.keys()):
            _add(writer, key, bundle)
        writer.finish()
    name = os.path.split(bundle.prefix)[1]
    for file in parts(bundle.prefix, {*files.listdir(parent)}, files):
        if file.startswith(name) and not _WRITTEN_ANEW.fullmatch(file.removeprefix(name)):
            _copy(join(parent, file), files, target + file.removeprefix(name), SCRATCH)
    return target


def _add(writer: BundleWriter, key: str, bundle: Bundle) -> None:
    """Copy a value as it is stored; one that is stored in slices becomes whole."""
    entry = bundle.entries[key]
    if entry.sliced:
        writer.add(key, bundle.read(key))
    else:
        writer.add_raw(key, entry, bundle.read_raw(key))


def _copy(source: str, source_files: Files, target: str, files: Files) -> None:
    with (
        contextlib.closing(source_files.open_read(source)) as handle,
        contextlib.closing(files.create(target)) as output,
    ):
        for start in range(0, handle.size, _COPIED):
            output.write(handle.pread(start, _COPIED))
