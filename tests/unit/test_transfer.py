"""Many values read at once: the same bytes, the same errors, and little that nobody asked for."""

from __future__ import annotations

import errno
import itertools
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
import pytest

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles import crc, read
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.io.files import SCRATCH, LocalFiles
from tfckpt.tools import verification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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


def test_a_value_may_be_wanted_twice(prefix, content) -> None:
    with Bundle.open(prefix) as bundle:
        wanted = [(key, np.zeros(SIZES[key], np.uint8)) for key in ("c", "b", "c", "b")]
        bundle.fetch(wanted)
    assert all(found.tobytes() == content[key].tobytes() for key, found in wanted)


def faults(prefix: str) -> Iterator[tuple[str, int]]:
    """A key of the data file, and a byte of its value."""
    with Bundle.open(prefix) as bundle:
        for key, entry in bundle.entries.items():
            if entry.nbytes:
                yield key, entry.offset + entry.nbytes // 2
                yield key, entry.offset + entry.nbytes - 1


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_faults_the_first_is_named(prefix, order) -> None:
    places = list(faults(prefix))[::3]
    with Bundle.open(prefix) as bundle:
        keys = list(bundle.entries)[::order]
        shards = {key: bundle.entries[key].shard for key in keys}
    for first, at in places:
        for second, also in places:
            paths = {key: Path(f"{prefix}.data-{shards[key]:05d}-of-00002") for key in keys}
            original = {path: path.read_bytes() for path in set(paths.values())}
            for key, place in {(first, at), (second, also)}:
                data = bytearray(paths[key].read_bytes())
                data[place] ^= 16
                paths[key].write_bytes(data)
            with Bundle.open(prefix) as bundle, pytest.raises(DamagedCheckpointError) as caught:
                bundle.verify(keys)
            assert caught.value.name == min(first, second, key=keys.index)
            assert "do not match their checksum" in str(caught.value)
            for path, data in original.items():
                path.write_bytes(data)


def test_a_file_cut_off_after_it_was_opened_names_the_value(prefix) -> None:
    with Bundle.open(prefix) as bundle:
        last = bundle.entries["h"]
        path = Path(f"{prefix}.data-{last.shard:05d}-of-00002")
        for key in ("e", "f", "g", "h"):
            entry = bundle.entries[key]
            data = path.read_bytes()
            with path.open("r+b") as file:
                file.truncate(entry.offset + entry.nbytes - 1)
            with pytest.raises(DamagedCheckpointError, match="ends before") as caught:
                bundle.verify(bundle.entries)
            assert caught.value.name == key
            path.write_bytes(data)
            bundle.verify(bundle.entries)


def test_a_bad_sector_is_said_of_the_value_that_is_on_it(prefix) -> None:
    with Bundle.open(prefix) as bundle:
        entries = {key: entry for key, entry in bundle.entries.items() if entry.nbytes}
    bad = -1

    def fail(offset: int, length: int) -> None:
        if offset <= bad < offset + length:
            raise OSError(errno.EIO, "Input/output error")

    with Bundle.open(prefix, Watched(fail)) as bundle:
        for key, entry in entries.items():
            bad = entry.offset
            alone = [name for name, other in entries.items() if other.shard == entry.shard]
            with pytest.raises(DamagedCheckpointError, match="Input/output error") as caught:
                bundle.verify(alone)
            assert caught.value.name == key


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


def test_where_no_thread_can_be_started_one_reads_it_all(prefix, content, monkeypatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with Bundle.open(prefix) as bundle:
        found = buffers(bundle)
        bundle.fetch(found.items())
    assert all(found[key].tobytes() == value.tobytes() for key, value in content.items())


@pytest.mark.parametrize("step", [2, 10])
@pytest.mark.parametrize("size", [17, 1024, 5000])
def test_a_part_costs_what_that_part_holds(tmp_path, step, size) -> None:
    content = {f"v{n:04d}": np.full(size, n % 251, np.uint8) for n in range(400)}
    prefix = str(tmp_path / "many")
    write(prefix, content)
    files = Watched()
    with Bundle.open(prefix, files) as bundle:
        wanted = [(key, np.zeros(size, np.uint8)) for key in list(content)[::step]]
        files.reads.clear()
        bundle.fetch(wanted)
    assert sum(files.reads) <= 1.02 * size * len(wanted)
    assert all(found.tobytes() == content[key].tobytes() for key, found in wanted)


def test_small_neighbours_are_read_together(tmp_path) -> None:
    content = {f"v{n:04d}": np.full(16, n % 251, np.uint8) for n in range(1000)}
    prefix = str(tmp_path / "many")
    write(prefix, content)
    files = Watched()
    with Bundle.open(prefix, files) as bundle:
        files.reads.clear()
        bundle.verify(bundle.entries)
    assert len(files.reads) < 20
    assert sum(files.reads) == 16_000


def test_a_fault_met_once_is_a_fault(prefix) -> None:
    for place in range(2, 30, 4):
        turns = itertools.count()

        def fail(_at: int, _length: int, turns: Iterator[int] = turns, place: int = place) -> None:
            if next(turns) == place:
                raise OSError(errno.EIO, "Input/output error")

        (fault,) = verification.verify_one(prefix, Watched(fail)).faults
        assert "Input/output error" in fault.message


@pytest.mark.parametrize("cut", [0, 1, 5, 4096, 70_001])
def test_a_checksum_is_carried_on(cut) -> None:
    data = np.random.default_rng(cut).integers(0, 256, 70_001, np.uint8)
    first, whole = google_crc32c.value(data[:cut]), google_crc32c.value(data)
    for find in (crc._in_c, lambda: None):  # and where the function in C cannot be found
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(crc, "_in_c", find)
            assert crc.extend(first, data[cut:]) == whole


@pytest.mark.skipif(google_crc32c.implementation != "c", reason="google_crc32c is in pure Python")
@pytest.mark.skipif(sys.platform == "win32", reason="only what is linked dynamically is found")
def test_threads_that_checksum_do_not_wait_for_each_other() -> None:
    assert crc._in_c() is not None
