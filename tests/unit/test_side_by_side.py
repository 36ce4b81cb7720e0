"""Data files that are written at the same time, and what becomes of them when one cannot be."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.write import (
    BundleValue,
    Target,
    encode_index,
    files_for,
    write_in_parallel,
)
from tfckpt.stored.io.files import SCRATCH, LocalOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tfckpt.stored.bundles.write import Written

FAST = 1 << 10
SHARDS = 3


def values(count: int = 12, size: int = 3000) -> list[BundleValue]:
    arrays = [np.full(size + number, number, np.float32) for number in range(count)]
    return [
        BundleValue(f"v{number:02d}", "float32", array.shape, array.nbytes, True, array)
        for number, array in enumerate(arrays)
    ]


def pieces(value: BundleValue) -> Iterator[np.ndarray]:
    middle = len(value.held) // 2
    yield from (value.held[:middle], value.held[middle:])


def write(prefix: Path, written: list[BundleValue], **more: Any) -> Written:
    place = Target(str(prefix), range(SHARDS), SHARDS, SCRATCH)
    return write_in_parallel(written, more.get("read", pieces), place, FAST)


def others() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("tfckpt-file")]


@pytest.fixture
def struck(monkeypatch) -> Callable[..., None]:
    """``struck("write", error, when)``: that call of an output fails where ``when`` says so."""

    def strike(name: str, error: BaseException, when: Callable[[], bool]) -> None:
        genuine = getattr(LocalOutput, name)

        def call(self: LocalOutput, *data: Any) -> None:
            if when():
                raise error
            genuine(self, *data)

        monkeypatch.setattr(LocalOutput, name, call)

    return strike


def aside() -> bool:
    return threading.current_thread() is not threading.main_thread()


def test_every_value_is_in_one_of_the_files_as_it_was(tmp_path) -> None:
    expected = {value.key: value.held.copy() for value in values()}
    written = write(tmp_path / "ckpt", values())
    (tmp_path / "ckpt.index").write_bytes(encode_index(written.coded, SHARDS))
    sizes = [(tmp_path / f"ckpt.data-0000{n}-of-00003").stat().st_size for n in range(SHARDS)]
    assert sum(sizes) == sum(array.nbytes for array in expected.values())
    assert max(sizes) - min(sizes) <= max(array.nbytes for array in expected.values())
    with Bundle.open(str(tmp_path / "ckpt")) as bundle:
        bundle.verify(bundle.entries)
        assert {key: bundle.read(key).tobytes() for key in bundle.entries} == {
            key: array.tobytes() for key, array in expected.items()
        }


def test_a_value_is_let_go_once_it_is_written(tmp_path, struck) -> None:
    given = values()
    held = [weakref.ref(value.held) for value in given]
    alive = []

    def count() -> bool:
        alive.append(sum(ref() is not None for ref in held))
        return False

    struck("write", OSError(), count)
    write(tmp_path / "ckpt", given)
    assert given == []
    assert alive[0] == len(held)
    assert alive[-1] <= SHARDS
    assert not any(ref() is not None for ref in held)


@pytest.mark.parametrize("name", ["write", "sync", "close"])
@pytest.mark.parametrize("here", [True, False], ids=["here", "in a thread"])
def test_a_failure_in_one_thread_stops_the_others_and_is_raised(
    tmp_path, struck, name, here
) -> None:
    given = values()
    held = [weakref.ref(value.held) for value in given]
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    struck(name, full, lambda: aside() is not here)
    with pytest.raises(OSError, match="No space left") as caught:
        write(tmp_path / "ckpt", given)
    assert caught.value is full
    assert others() == []
    assert sum(ref() is not None for ref in held) <= SHARDS  # those that were being written


def test_an_interrupt_is_not_lost_and_leaves_no_thread_behind(tmp_path, struck) -> None:
    interrupted = threading.Event()

    def here() -> bool:
        if aside():  # fails, too, and later than the interrupt
            interrupted.wait(60)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        interrupted.set()
        return True

    struck("write", KeyboardInterrupt(), here)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "ckpt", values())
    assert others() == []


def test_without_a_thread_to_be_had_one_writes_all(tmp_path, monkeypatch) -> None:
    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    assert len(write(tmp_path / "ckpt", values()).coded) == 12


def test_what_cannot_be_read_is_said(tmp_path) -> None:
    def read(value: BundleValue) -> Any:
        if value.key == "v07":
            raise ValueError("of the device")
        return pieces(value)

    with pytest.raises(ValueError, match="of the device"):
        write(tmp_path / "ckpt", values(), read=read)
    assert others() == []


@pytest.mark.parametrize("size", [3, 3000])  # gathered with others, and by itself
def test_the_values_that_are_not_finite_are_named(tmp_path, size) -> None:
    given = values(size=size)
    for number, nonfinite_keys in ((2, np.nan), (5, np.inf), (9, -np.inf)):
        given[number].held[-1] = nonfinite_keys
    given[9] = given[9]._replace(look=False)
    assert sorted(write(tmp_path / "ckpt", given).nonfinite) == ["v02", "v05"]


def test_a_small_checkpoint_is_one_file_and_a_large_one_no_more_than_four() -> None:
    assert files_for(0) == files_for(1 << 24) == 1
    assert 1 <= files_for(1 << 40) <= 4
