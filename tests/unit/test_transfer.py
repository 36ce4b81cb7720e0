"""Many values read at once: the same bytes, the same errors, and no thread left."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo.bundles import write_bundle

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles import read
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.io.files import LocalFiles

SIZES = {"a": 3, "b": 2_000_003, "c": 5, "d": 0, "e": 400_000, "f": 70_000, "g": 1, "h": 900_001}
CONTENT = {
    key: np.random.default_rng(7).integers(0, 256, size, np.uint8) for key, size in SIZES.items()
}


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is large is large enough for pieces and threads, and small enough for a test."""
    for name in ("CHUNK", "SMALL", "ALONE"):
        monkeypatch.setattr(read, name, getattr(read, name) >> 8)
    monkeypatch.setattr(read, "cores", lambda: 3)
    prefix, half = str(tmp_path / "ckpt-1"), [*CONTENT][: len(CONTENT) // 2]
    write_bundle(prefix, CONTENT, 2, lambda key: int(key not in half))
    return prefix


def test_every_value_is_where_it_is_wanted_in_whatever_order(prefix) -> None:
    for seed in range(4):
        with Bundle.open(prefix) as bundle:
            found = {k: np.zeros(e.nbytes, np.uint8) for k, e in bundle.entries.items()}
            keys = [k for k in np.random.default_rng(seed).permutation(list(found)) if k != "a"]
            bundle.fetch([("a", None), *((key, found[key]) for key in keys), ("b", None)])
        assert not found["a"].any()
        for key in keys:
            assert found[key].tobytes() == CONTENT[key].tobytes(), key


class Failing(LocalFiles):
    """Files of which one read fails."""

    def __init__(self, place: int, error: BaseException) -> None:
        super().__init__(durable=False)
        self.open, self.left, self.error = 0, place, error

    def open_read(self, path: str) -> Any:
        handle, self.open = super().open_read(path), self.open + 1
        readinto, close = handle.readinto, handle.close

        def reads(offset: int, buffer: memoryview) -> int:
            self.left -= ".data-" in path
            if self.left == -1:
                raise self.error
            return readinto(offset, buffer)

        def closed() -> None:
            self.open -= 1
            close()

        handle.readinto, handle.close = reads, closed
        return handle


def test_no_thread_and_no_file_is_left_whatever_is_raised(prefix) -> None:
    before = threading.active_count()
    errors = KeyboardInterrupt(), MemoryError(), OSError(errno.EIO, "no")
    for place in range(0, 10_000, 7):
        files = Failing(place, errors[place % 3])
        try:
            with Bundle.open(prefix, files) as bundle:
                bundle.verify(bundle.entries)
            break
        except (KeyboardInterrupt, MemoryError, DamagedCheckpointError):
            assert threading.active_count() == before
            assert files.open == 0
    assert place > 50
