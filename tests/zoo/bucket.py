"""An object store, as bad as they come, in the place of one that `fsspec` has a package for.

An object is there, whole, once it is closed; there are no directories; nothing is created only if
it is absent. Every call counts, and the n-th can fail or be the process's last.
tests/unit/test_object_store.py compares it with a real server.
"""

from __future__ import annotations

import datetime
import itertools
import threading
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from tfckpt.stored.commits import commit, numbering
from tfckpt.stored.io import object_store

if TYPE_CHECKING:
    from collections.abc import Callable

_numbers = itertools.count()
_buckets: dict[str, Bucket] = {}
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
    """One store, served for the length of a test.

    Attributes:
        directory: a place in it.
        objects: what is in it, by path.
        calls: what was asked of it since :meth:`arm`: "put", "get", "list", and so on.
        replaced: objects that were written over by others, but for TensorFlow's state file and
            what marks a save.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        name = f"bucket-{next(_numbers)}"
        patch.setitem(_buckets, name, self)
        self.directory = f"bucket://{name}/run"
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[Call, str]] = []
        self.replaced: list[str] = []
        self._strike: tuple[int, Strike] | None = None
        self._dead = False
        self._between: tuple[int, Callable[[], None]] | None = None
        self._again: list[tuple[int, str, bytes]] = []
        self._patch = patch
        self.restart()

    def restart(self) -> None:
        """Another process comes, which remembers nothing."""
        self._dead, self._strike, self._between = False, None, None
        _forget(self._patch)

    def between(self, n: int, action: Callable[[], None]) -> None:
        """Before the n-th call from now, another process does something."""

        def other() -> None:
            with pytest.MonkeyPatch.context() as patch:
                _forget(patch)
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
        return sorted(path.removeprefix(f"{base}/") for path in self.below(base))

    def below(self, base: str) -> list[str]:
        return sorted(path for path in self.objects if path.startswith(f"{base}/"))

    def content(self, path: str) -> bytes:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    def put(self, path: str, data: bytes) -> None:
        """As another client."""
        before = self.objects.get(path)
        if before not in (None, data) and not path.endswith(REPLACED):
            self.replaced.append(path)
        self.objects[path] = data

    def delete(self, path: str) -> None:
        if path not in self.objects:
            raise FileNotFoundError(path)
        del self.objects[path]

    def called(self, call: Call, path: str, do: Callable[[], Any]) -> Any:
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
            raise ConnectionError("the store is busy")
        result = do()
        if strike is Strike.KILL_AFTER:
            self._dead = True
            raise Killed
        if strike is Strike.FAIL_DONE:
            raise ConnectionError("the store did not answer")
        if call == "put":
            self._again.append((now + 7, path, self.content(path)))
        return result


def _forget(patch: pytest.MonkeyPatch) -> None:
    """What a process knows that has just begun."""
    fresh = cache(object_store.object_store.__wrapped__)
    patch.setattr(object_store, "object_store", fresh)
    patch.setattr(numbering, "_tried", {})
    patch.setattr(numbering, "_lock", threading.Lock())
    patch.setattr(commit, "_held", {})


class _Store(fsspec.AbstractFileSystem):
    """The buckets of this process, as `fsspec` shows a store."""

    protocol = "bucket"
    cachable = False

    def _of(self, path: str) -> tuple[Bucket, str]:
        full = f"bucket://{self._strip_protocol(path)}"
        return _buckets[full[len("bucket://") :].partition("/")[0]], full

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        bucket, full = self._of(path)

        def info() -> dict[str, Any]:
            if full in bucket.objects:
                return {"name": path, "type": "file", "size": len(bucket.objects[full])}
            if bucket.below(full):
                return {"name": path, "type": "directory", "size": 0}
            raise FileNotFoundError(path)

        found: dict[str, Any] = bucket.called("stat", full, info)
        return found

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime(2025, 1, 31, tzinfo=datetime.timezone.utc)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        bucket, full = self._of(path)

        def ls() -> list[dict[str, Any]]:
            found = bucket.below(full)
            if not found:
                raise FileNotFoundError(path)
            names = {each.removeprefix(f"{full}/").partition("/")[::2] for each in found}
            return [
                {"name": f"{path}/{name}", "type": "directory" if rest else "file", "size": 0}
                for name, rest in sorted(names)
            ]

        listed: list[Any] = bucket.called("list", full, ls)
        return listed

    def find(self, path: str, *_: Any, **__: Any) -> list[str]:
        bucket, full = self._of(path)

        def find() -> list[str]:
            return [full] if full in bucket.objects else bucket.below(full)

        found: list[str] = bucket.called("list", full, find)
        return [each[len("bucket://") :] for each in found]

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        bucket, full = self._of(path)

        data: bytes = bucket.called("get", full, lambda: bucket.content(full)[start:end])
        return data

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create":
            raise NotImplementedError("this store writes whatever is there")
        bucket, full = self._of(path)
        bucket.called("put", full, lambda: bucket.put(full, bytes(value)))

    def rm_file(self, path: str) -> None:
        bucket, full = self._of(path)
        bucket.called("delete", full, lambda: bucket.delete(full))

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        bucket, target = self._of(path2)
        source = self._of(path1)[1]
        bucket.called("put", target, lambda: bucket.put(target, bucket.content(source)))

    def open(self, path: str, mode: str = "rb", **_: Any) -> _Upload:
        assert mode == "wb", "objects are fetched by cat_file"
        return _Upload(*self._of(path))


class _Upload:
    """An object on its way: it is there when this is closed, or not at all."""

    def __init__(self, bucket: Bucket, path: str) -> None:
        self._bucket, self._path = bucket, path
        self._data: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._data.append(bytes(data))

    def close(self) -> None:
        data = b"".join(self._data)
        bucket, path = self._bucket, self._path
        bucket.called("put", path, lambda: bucket.put(path, data))

    def discard(self) -> None:
        self._data.clear()


fsspec.register_implementation("bucket", _Store, clobber=True)
