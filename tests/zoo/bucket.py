"""An object store, as bad as they come, in the place of what the adapter asks of `tf.io.gfile`.

The objects are files of `ram://`, so that TensorFlow's own C++ reads them, too. An object is there,
whole, once it is closed; there are no directories; a rename copies and deletes, and refuses an
empty object, as TensorFlow's own S3 does (tensorflow-io 0.37). Every call counts, and the n-th can
fail or be the process's last. tests/unit/test_object_store.py compares it with a real server.
"""

from __future__ import annotations

import itertools
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from tensorflow.python.lib.io import file_io

from tfckpt.live import remote
from tfckpt.stored.commits import commit, numbering

if TYPE_CHECKING:
    from collections.abc import Callable

_numbers = itertools.count()
GFile = tf.io.gfile.GFile
REPLACED = ("/checkpoint", ".tfckpt.mark")
Call = str


class Strike(Enum):
    """What becomes of the n-th call."""

    KILL_BEFORE = "the process dies before it"
    KILL_AFTER = "the process dies after it"
    FAIL = "it fails"
    FAIL_DONE = "it is done, and is said to have failed"
    FAIL_ON = "it fails, and so do all after it"
    TWICE = "it is done, and once more a little later"

    @property
    def kills(self) -> bool:
        return self in (Strike.KILL_BEFORE, Strike.KILL_AFTER)


class Killed(BaseException):
    """The end of the process: nothing that it still tries reaches the store."""


class Bucket:
    """One store, patched in for the length of a test.

    Attributes:
        directory: a place in it.
        calls: what was asked of it since :meth:`arm`: "put", "get", "list", and so on.
        replaced: objects that were written over by others, but for TensorFlow's state file and
            what marks a save.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.directory = f"ram://bucket-{next(_numbers)}/run"
        self.calls: list[tuple[Call, str]] = []
        self.replaced: list[str] = []
        self._strike: tuple[int, Strike] | None = None
        self._dead = False
        self._between: tuple[int, Callable[[], None]] | None = None
        self._again: list[tuple[int, str, bytes]] = []
        self._patch = patch
        for name in ("exists", "stat", "listdir", "isdir", "rename", "remove", "rmtree"):
            patch.setattr(tf.io.gfile, name, self._instead(name, getattr(tf.io.gfile, name)))
        patch.setattr(tf.io.gfile, "makedirs", self._makedirs(tf.io.gfile.makedirs))
        patch.setattr(tf.io.gfile, "GFile", self._file)
        patch.setattr(file_io, "has_atomic_move", lambda path: path not in self)
        self._real_listdir = file_io.list_directory_v2
        self.restart()

    def __contains__(self, path: str) -> bool:
        return path.startswith(self.directory.rpartition("/")[0])

    def restart(self) -> None:
        """Another process comes, which remembers nothing."""
        self._dead, self._strike, self._between = False, None, None
        self._patch.setattr(remote, "REMOTE", remote.RemoteFiles())
        self._patch.setattr(numbering, "_tried", {})
        self._patch.setattr(commit, "_held", {})

    def between(self, n: int, action: Callable[[], None]) -> None:
        """Before the n-th call from now, another process does something."""

        def other() -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(remote, "REMOTE", remote.RemoteFiles())
                patch.setattr(numbering, "_tried", {})
                patch.setattr(numbering, "_lock", threading.Lock())
                patch.setattr(commit, "_held", {})
                action()

        self.calls.clear()
        self._between = n, other

    def arm(self, n: int, strike: Strike) -> None:
        """The n-th call from now, counted from 1, is struck."""
        self.calls.clear()
        self._strike = n, strike

    def names(self, directory: str = "") -> list[str]:
        """What is there, as it is."""
        base = directory or self.directory
        return sorted(path.removeprefix(f"{base}/") for path in self._objects(base))

    def content(self, path: str) -> bytes:
        with GFile(path, "rb") as file:
            return bytes(file.read())

    def put(self, path: str, data: bytes) -> None:
        """As another client."""
        if file_io.file_exists_v2(path):
            if self.content(path) != data and not path.endswith(REPLACED):
                self.replaced.append(path)
            file_io.delete_file_v2(path)
        file_io.recursive_create_dir_v2(path.rpartition("/")[0])
        with GFile(path, "wb") as file:
            file.write(data)

    def delete(self, path: str) -> None:
        if not self._objects_at(path):  # of ram://, it may still be a directory
            raise tf.errors.NotFoundError(None, None, f"{path}: no such object")
        file_io.delete_file_v2(path)

    def _objects(self, base: str) -> list[str]:
        found: list[str] = []
        try:
            names = self._real_listdir(base)
        except tf.errors.NotFoundError:
            return []
        for name in names:
            path = f"{base}/{name}".rstrip("/")
            if not file_io.file_exists_v2(path):
                continue  # ram:// lists `run2` in `run`, as `2`
            found += self._objects(path) if file_io.is_directory_v2(path) else [path]
        return found

    def _listed(self, directory: str) -> list[str]:
        """The objects below a directory."""
        return sorted(self._objects(directory))

    def _called(self, call: Call, path: str, do: Any) -> Any:
        if self._dead:
            raise Killed
        if self._between is not None and len(self.calls) + 1 == self._between[0]:
            (_, action), self._between = self._between, None
            before = tuple(self.calls)
            action()
            self.calls[:] = before
        self.calls.append((call, path))
        for due in [late for late in self._again if late[0] <= len(self.calls)]:
            self._again.remove(due)
            self.put(*due[1:])
        n, strike = self._strike or (0, None)
        now = len(self.calls)
        if strike is None or not (now == n or (strike is Strike.FAIL_ON and now > n)):
            return do()
        if strike is Strike.KILL_BEFORE:
            self._dead = True
            raise Killed
        if strike in (Strike.FAIL, Strike.FAIL_ON):
            raise tf.errors.UnavailableError(None, None, "the store is busy")
        result = do()
        if strike is Strike.KILL_AFTER:
            self._dead = True
            raise Killed
        if strike is Strike.FAIL_DONE:
            raise tf.errors.UnavailableError(None, None, "the store did not answer")
        if call == "put":
            self._again.append((now + 7, path, self.content(path)))
        return result

    def _instead(self, name: str, real: Any) -> Any:
        def call(path: str, *rest: Any, **options: Any) -> Any:
            if path not in self:
                return real(path, *rest, **options)
            return getattr(self, f"_{name}")(path, *rest)

        return call

    def _makedirs(self, real: Any) -> Any:
        def call(path: str) -> None:
            if path in self:
                self._called("makedirs", path, lambda: None)
            real(path)  # for TensorFlow's own writing

        return call

    def _exists(self, path: str) -> bool:
        return bool(self._called("exists", path, lambda: path in self._objects_at(path)))

    def _objects_at(self, path: str) -> list[str]:
        there = file_io.file_exists_v2(path) and not file_io.is_directory_v2(path)
        return [path] if there else []

    def _stat(self, path: str) -> Any:
        def stat() -> Any:
            if not self._objects_at(path) and not self._listed(path):
                raise tf.errors.NotFoundError(None, None, f"{path}: no such object")
            return file_io.stat_v2(path)

        return self._called("stat", path, stat)

    def _isdir(self, path: str) -> bool:
        return bool(self._called("list", path, lambda: self._listed(path)))

    def _listdir(self, path: str) -> list[str]:
        def listdir() -> list[str]:
            found = self._listed(path)
            if not found:
                raise tf.errors.NotFoundError(None, None, f"{path}: no such directory")
            inner = (each.removeprefix(f"{path}/") for each in found)
            return sorted({n.partition("/")[0] + "/" * ("/" in n) for n in inner})

        listed: list[str] = self._called("list", path, listdir)
        return listed

    def _rename(self, source: str, target: str, _overwrite: bool = True) -> None:
        if not self.content(source):
            raise tf.errors.FailedPreconditionError(
                None, None, f"Source is a directory or empty file: {source}"
            )
        self._called("put", target, lambda: self.put(target, self.content(source)))
        self._called("delete", source, lambda: self.delete(source))

    def _remove(self, path: str) -> None:
        self._called("delete", path, lambda: self.delete(path))

    def _rmtree(self, path: str) -> None:
        for each in self._called("list", path, lambda: self._listed(path)):
            self._remove(each)

    def _file(self, path: str, mode: str = "r") -> Any:
        if path not in self:
            return GFile(path, mode)
        if "w" in mode:
            return _Upload(self, path)
        return self._called("get", path, lambda: GFile(path, mode))


class _Upload:
    """An object on its way: it is there when this is closed, or not at all."""

    def __init__(self, bucket: Bucket, path: str) -> None:
        self._bucket, self._path = bucket, path
        self._data: list[bytes] | None = []

    def write(self, data: bytes) -> None:
        assert self._data is not None
        self._data.append(bytes(data))

    def close(self) -> None:
        if self._data is not None:
            data, self._data = b"".join(self._data), None
            bucket, path = self._bucket, self._path
            bucket._called("put", path, lambda: bucket.put(path, data))

    def __enter__(self) -> _Upload:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self.close()
