"""What holds a save in the background where a test wants it, so that no thread need be the faster.

It is held in the thread that writes, before anything is written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tfckpt.stored.io.files import LocalFiles

PATIENCE = 60.0  # seconds after which a test that hangs fails instead


class Gate:
    """What the thread of a background save passes before it writes; closed at first."""

    def __init__(self) -> None:
        opened = threading.Event()
        self.open, self.close, self._wait = opened.set, opened.clear, opened.wait

    def wait(self) -> None:
        assert self._wait(PATIENCE), "nobody opened the gate"


def built_in(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """One that the local file system has; what the main thread writes does not pass it."""

    def behind(genuine: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: LocalFiles, path: str) -> Any:
            if threading.current_thread() is not threading.main_thread():
                gate.wait()
            return genuine(self, path)

        return call

    gate = Gate()
    for name in ("makedirs", "create"):  # the first calls that change something
        monkeypatch.setattr(LocalFiles, name, behind(getattr(LocalFiles, name)))
    return gate
