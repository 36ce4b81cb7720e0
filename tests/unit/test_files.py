from __future__ import annotations

import ctypes
import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from tfckpt.errors import SaveError, UnsupportedCheckpointError
from tfckpt.stored.io import preallocate
from tfckpt.stored.io.files import LOCAL, SCRATCH

if TYPE_CHECKING:
    from pathlib import Path


def test_reading_by_offset_is_short_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    handle = LOCAL.open_read(str(path))
    assert handle.size == 10
    assert handle.pread(3, 4) == b"3456"
    assert handle.pread(8, 4) == b"89"
    assert handle.pread(20, 4) == b""
    buffer = bytearray(4)
    assert handle.readinto(2, memoryview(buffer)) == 4
    assert buffer == b"2345"
    assert handle.readinto(8, memoryview(buffer)) == 2
    handle.close()


def test_an_open_file_outlives_its_name(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    handle = LOCAL.open_read(str(path))
    LOCAL.write_atomic(str(path), b"new")
    assert handle.pread(0, 3) == b"old"
    LOCAL.remove(str(path))
    assert handle.pread(0, 3) == b"old"
    handle.close()


def test_an_absent_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LOCAL.open_read(str(tmp_path / "absent"))


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    handle = LOCAL.open_read(str(tmp_path / "link"))
    assert handle.pread(0, 1) == b"x"
    handle.close()
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        LOCAL.open_read(str(tmp_path / "dangling"))


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("directory")
    os.mkfifo(tmp_path / "fifo")
    for name, what in {
        "link": "a symbolic link to directory",
        "directory": "a directory",
        "fifo": "a special file",
    }.items():
        with pytest.raises(UnsupportedCheckpointError, match=what):
            LOCAL.open_read(str(tmp_path / name))


def test_nothing_is_written_through_a_link_or_over_a_directory(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "directory").mkdir()
    for name in ("link", "directory"):
        with pytest.raises(SaveError, match="nothing was written"):
            LOCAL.write_atomic(str(tmp_path / name), b"x")
    assert victim.read_bytes() == b"precious"
    assert {file.name for file in tmp_path.iterdir()} == {"victim", "link", "directory"}


def test_a_failed_write_leaves_the_old_content_and_no_debris(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    LOCAL.write_atomic(str(path), b"old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        LOCAL.write_atomic(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_content_is_synced_before_it_gets_its_name_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    seen = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        seen.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    LOCAL.write_atomic(str(path), b"new")
    assert seen == [(False, False), (True, True)]


def test_what_is_written_has_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_bytes(b"")
    LOCAL.write_atomic(str(tmp_path / "file"), b"")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_a_dangling_link_exists(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert LOCAL.exists(str(tmp_path / "link"))
    assert not LOCAL.exists(str(tmp_path / "absent"))


def test_a_bare_name_is_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    LOCAL.write_atomic("file", b"x")
    assert LOCAL.listdir("") == ["file"]
    LOCAL.fsync("file")
    LOCAL.fsync_dir("")


@pytest.mark.parametrize("size", [1 << 10, 1 << 23])
def test_room_that_was_asked_for_changes_nothing_of_the_file(tmp_path: Path, size: int) -> None:
    output = SCRATCH.create(str(tmp_path / "file"))
    output.reserve(size)
    assert (tmp_path / "file").stat().st_size == 0
    output.write(b"a" * size)
    output.close()
    assert (tmp_path / "file").read_bytes() == b"a" * size


def test_a_disk_that_has_not_so_much_room_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    monkeypatch.setattr(preallocate, "_fallocate", lambda: full)
    monkeypatch.setattr(os, "major", lambda _: 8)
    output = SCRATCH.create(str(tmp_path / "file"))
    with pytest.raises(OSError, match="No space left"):
        output.reserve(1 << 40)
    output.close()
