"""Calls that fail where a test says so, as those of a full disk do."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any

import pytest

from tfckpt.stored.io.files import LocalFiles


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def struck(
    name: str,
    error: BaseException,
    when=lambda *_: True,
    owner: Any = LocalFiles,
):
    """Calls of that method raise the error where ``when(*arguments)`` is true."""
    genuine = getattr(owner, name)

    def call(self: Any, *arguments: Any) -> Any:
        if when(*arguments):
            raise error
        return genuine(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, call)
        yield


def nth(number: int):
    """True for one call alone, counted from 1."""
    calls = iter(range(1, number + 1))
    return lambda *_: next(calls, 0) == number
