"""What holds a save in the background where a test wants it, so that no thread need be the faster.

It is held in the thread that writes, before anything is written.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tfckpt.stored.io.files import LocalFiles

if TYPE_CHECKING:
    import pytest

PATIENCE = 60.0  # seconds after which a test that hangs fails instead


class Gate:
    """What the thread of a background save passes before it writes; closed at first."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def wait(self) -> None:
        assert self._open.wait(PATIENCE), "nobody opened the gate"


def built_in(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """One that the local file system has; what the main thread writes does not pass it."""
    gate, genuine = Gate(), LocalFiles.makedirs

    def makedirs(self: LocalFiles, path: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            gate.wait()
        genuine(self, path)

    monkeypatch.setattr(LocalFiles, "makedirs", makedirs)
    return gate
