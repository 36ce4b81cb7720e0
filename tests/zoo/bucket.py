"""An object store of this process, in the place of one that `fsspec` has a package for.

There are no directories, and nothing is created only if it is absent.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

_numbers = itertools.count()


class Bucket:
    """A place in it that is empty, and is forgotten with the process."""

    def __init__(self, _: pytest.MonkeyPatch) -> None:
        self.directory = f"bucket://bucket-{next(_numbers)}/run"


class _Store(MemoryFileSystem):
    protocol = ("bucket",)
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
        if mode == "create":
            raise NotImplementedError("this store writes whatever is there")
        super().pipe_file(path, value, mode, **more)


fsspec.register_implementation("bucket", _Store, clobber=True)
