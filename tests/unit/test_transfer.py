"""Many values read at once: the same bytes, the same errors, and little that nobody asked for."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles import read
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.io.files import SCRATCH, LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

SIZES = {"a": 3, "b": 2_000_003, "c": 5, "d": 0, "e": 400_000, "f": 70_000, "g": 1, "h": 900_001}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large is large enough for pieces and threads, and small enough for a test."""
    for name in ("CHUNK", "SMALL", "ALONE"):
        monkeypatch.setattr(read, name, getattr(read, name) >> 8)
    monkeypatch.setattr(read, "cores", lambda: 3)


@pytest.fixture
def content() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {key: random.integers(0, 256, size, np.uint8) for key, size in SIZES.items()}


@pytest.fixture
def prefix(tmp_path: Path, content: dict[str, np.ndarray]) -> str:
    write(str(tmp_path / "ckpt-1"), content)
    return str(tmp_path / "ckpt-1")


def write(prefix: str, content: Mapping[str, np.ndarray]) -> None:
    with BundleWriter(prefix, 2, SCRATCH) as writer:
        for number, (key, value) in enumerate(content.items()):
            writer.add(key, value, number * 2 // len(content))
        writer.finish()


class Watched(LocalFiles):
    """Files whose reads are counted, and may be made to fail."""

    def __init__(self, before: Callable[[int, int], None] = lambda _at, _length: None) -> None:
        super().__init__(durable=False)
        self.reads: list[int] = []
        self.open = 0
        self._before = before

    def open_read(self, path: str) -> Any:
        handle, self.open = super().open_read(path), self.open + 1
        readinto, close = handle.readinto, handle.close

        def read(offset: int, buffer: memoryview) -> int:
            if ".data-" in path:
                self.reads.append(len(buffer))
                self._before(offset, len(buffer))
            return readinto(offset, buffer)

        def closed() -> None:
            self.open -= 1
            close()

        handle.readinto, handle.close = read, closed
        return handle


def buffers(bundle: Bundle) -> dict[str, np.ndarray]:
    return {key: np.zeros(entry.nbytes, np.uint8) for key, entry in bundle.entries.items()}


@pytest.mark.parametrize("seed", range(8))
def test_every_value_is_where_it_is_wanted_in_whatever_order(prefix, content, seed) -> None:
    with Bundle.open(prefix) as bundle:
        found = buffers(bundle)
        keys = [key for key in np.random.default_rng(seed).permutation(list(found)) if key != "a"]
        bundle.fetch([("a", None), *((key, found[key]) for key in keys), ("b", None)])
    assert not found["a"].any()
    for key in keys:
        assert found[key].tobytes() == content[key].tobytes(), key


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), OSError(errno.EIO, "no")])
def test_no_thread_is_left_whatever_is_raised(prefix, error) -> None:
    before = threading.active_count()
    place = 0
    while True:
        countdown = iter(range(place, -1, -1))

        def fail(_at: int, _length: int, countdown: Iterator[int] = countdown) -> None:
            if next(countdown, None) == 0:
                raise error

        files = Watched(fail)
        try:
            with Bundle.open(prefix, files) as bundle:
                bundle.verify(bundle.entries)
        except (KeyboardInterrupt, MemoryError, DamagedCheckpointError):
            assert threading.active_count() == before
            assert files.open == 0
            place += 7
        else:
            break
    assert place > 50
