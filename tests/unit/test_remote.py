from __future__ import annotations

import errno
import itertools
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.lib.io import file_io

from tfckpt.errors import (
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.live.remote import REMOTE, RemoteHandle, files_of
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.commits import discovery, record_file
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.files import LOCAL, SCRATCH
from tfckpt.stored.io.state_file import read_state

if TYPE_CHECKING:
    from pathlib import Path

_numbers = itertools.count()


@pytest.fixture(params=["ram", "file"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh directory in a file system of TensorFlow's."""
    path = f"ram://test-{next(_numbers)}/run" if request.param == "ram" else f"file://{tmp_path}"
    tf.io.gfile.makedirs(path)
    return path


def put(path: str, data: bytes) -> None:
    if tf.io.gfile.exists(path):  # opened to be written, a file of ram:// keeps its content
        tf.io.gfile.remove(path)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(data)


def content(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def test_the_file_system_is_told_by_the_path() -> None:
    assert files_of("gs://bucket/run") is REMOTE
    assert files_of("file:///tmp/run", durable=False) is REMOTE
    assert files_of("runs/flowers") is LOCAL
    assert files_of("runs/flowers", durable=False) is SCRATCH


def test_reading_by_offset_is_short_only_at_the_end(base: str) -> None:
    put(f"{base}/file", b"0123456789")
    handle = REMOTE.open_read(f"{base}/file")
    assert handle.size == 10
    assert handle.pread(3, 4) == b"3456"
    assert handle.pread(8, 4) == b"89"
    assert handle.pread(0, 10) == b"0123456789"
    assert handle.pread(10, 1) == b""
    assert handle.pread(20, 4) == b""
    buffer = bytearray(4)
    assert handle.readinto(2, memoryview(buffer)) == 4
    assert buffer == b"2345"
    assert handle.readinto(8, memoryview(buffer)) == 2
    assert buffer == b"8945"
    assert handle.readinto(11, memoryview(buffer)) == 0
    handle.close()


def test_an_empty_file_has_no_bytes(base: str) -> None:
    REMOTE.write_atomic(f"{base}/file", b"")
    handle = REMOTE.open_read(f"{base}/file")
    assert (handle.size, handle.pread(0, 1)) == (0, b"")
    handle.close()


def test_many_threads_read_one_long_file(base: str) -> None:
    data = np.random.default_rng(0).bytes(3 << 20)  # longer than the buffer and than a chunk
    put(f"{base}/file", data)
    handle = RemoteHandle(f"{base}/file")
    wrong = []

    def read(seed: int) -> None:
        random = np.random.default_rng(seed)
        for start in random.integers(0, len(data), 20):
            length = int(random.integers(0, 2 << 20))
            if handle.pread(int(start), length) != data[start : start + length]:
                wrong.append((start, length))

    threads = [threading.Thread(target=read, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert handle.pread(0, len(data)) == data
    handle.close()


def test_an_open_file_outlives_its_name(base: str) -> None:
    put(f"{base}/file", b"old")
    handle = REMOTE.open_read(f"{base}/file")
    REMOTE.write_atomic(f"{base}/file", b"new")
    assert handle.pread(0, 3) == b"old"
    REMOTE.remove(f"{base}/file")
    assert handle.pread(0, 3) == b"old"
    handle.close()


def test_what_is_absent_is_not_found(base: str) -> None:
    for call in (REMOTE.open_read, REMOTE.listdir, REMOTE.remove, REMOTE.remove_tree):
        with pytest.raises(FileNotFoundError) as caught:
            call(f"{base}/absent")
        assert "absent" in str(caught.value)
    with pytest.raises(FileNotFoundError):
        REMOTE.rename(f"{base}/absent", f"{base}/other")
    assert not REMOTE.exists(f"{base}/absent")


def test_a_directory_is_not_read_as_a_file(base: str) -> None:
    for open_read in (REMOTE.open_read, RemoteHandle):
        with pytest.raises(UnsupportedCheckpointError, match="is a directory, not a regular file"):
            open_read(base)
    put(f"{base}/file", b"")
    with pytest.raises(NotADirectoryError):
        REMOTE.listdir(f"{base}/file")


def test_what_is_written_replaces_what_was_there_and_leaves_nothing_else(base: str) -> None:
    for data in (b"old", b"new"):
        REMOTE.write_atomic(f"{base}/file", data)
        assert content(f"{base}/file") == data
    assert REMOTE.listdir(base) == ["file"]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_failed_write_is_a_system_error_and_leaves_no_temporary_file(
    base: str, monkeypatch: pytest.MonkeyPatch, *, atomic: bool
) -> None:
    put(f"{base}/file", b"old")

    def full(*_: object, **__: object) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "no room")

    monkeypatch.setattr(file_io, "has_atomic_move", lambda _: atomic)
    monkeypatch.setattr(tf.io.gfile.GFile, "write", full)
    with pytest.raises(OSError, match="no room") as caught:
        REMOTE.write_atomic(f"{base}/file", b"new")
    assert caught.value.errno == errno.ENOSPC
    assert REMOTE.listdir(base) == ["file"]
    monkeypatch.undo()
    assert not atomic or content(f"{base}/file") == b"old"


def test_where_a_rename_is_a_copy_nothing_is_renamed(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_io, "has_atomic_move", lambda _: False)
    monkeypatch.delattr(tf.io.gfile, "rename")
    REMOTE.write_atomic(f"{base}/file", b"new")
    assert content(f"{base}/file") == b"new"


def test_the_file_systems_that_come_with_tensorflow_say_that_they_rename_atomically(
    base: str,
) -> None:
    assert file_io.has_atomic_move(base)  # it is not public


def test_names_change_and_go(base: str) -> None:
    REMOTE.makedirs(f"{base}/a/b")
    REMOTE.makedirs(f"{base}/a/b")
    REMOTE.write_atomic(f"{base}/a/b/file", b"1")
    REMOTE.write_atomic(f"{base}/a/other", b"2")
    assert sorted(REMOTE.listdir(f"{base}/a")) == ["b", "other"]
    REMOTE.rename(f"{base}/a/b/file", f"{base}/a/other")
    assert content(f"{base}/a/other") == b"1"
    assert REMOTE.listdir(f"{base}/a/b") == []
    REMOTE.remove_tree(f"{base}/a/other")
    assert REMOTE.exists(f"{base}/a/b")
    REMOTE.remove_tree(f"{base}/a")
    assert not REMOTE.exists(f"{base}/a")
    assert REMOTE.listdir(base) == []


def test_nothing_is_synced_and_nothing_fails(base: str) -> None:
    REMOTE.fsync(f"{base}/absent")
    REMOTE.fsync_dir(base)


def test_directories_are_listed_without_the_slash_that_stores_give_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tf.io.gfile, "listdir", lambda _: ["ckpt-1_temp/", "ckpt-1.index"])
    assert REMOTE.listdir("gs://bucket/run") == ["ckpt-1_temp", "ckpt-1.index"]


ERRORS: list[tuple[type[tf.errors.OpError], type[OSError], int]] = [
    (tf.errors.NotFoundError, FileNotFoundError, errno.ENOENT),
    (tf.errors.AlreadyExistsError, FileExistsError, errno.EEXIST),
    (tf.errors.PermissionDeniedError, PermissionError, errno.EACCES),
    (tf.errors.UnauthenticatedError, PermissionError, errno.EACCES),
    (tf.errors.ResourceExhaustedError, OSError, errno.ENOSPC),
    (tf.errors.UnavailableError, OSError, errno.EIO),
    (tf.errors.FailedPreconditionError, OSError, errno.EIO),
]


@pytest.mark.parametrize(("theirs", "ours", "code"), ERRORS)
def test_tensorflows_errors_are_the_systems(
    monkeypatch: pytest.MonkeyPatch, theirs: Any, ours: type[OSError], code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise theirs(None, None, "what the store says")

    for name in ("exists", "stat", "listdir", "remove", "rename", "makedirs", "isdir"):
        monkeypatch.setattr(tf.io.gfile, name, fail)
    path = "gs://bucket/x"
    calls = {
        "exists": lambda: REMOTE.exists(path),
        "open_read": lambda: REMOTE.open_read(path),
        "listdir": lambda: REMOTE.listdir(path),
        "remove": lambda: REMOTE.remove(path),
        "remove_tree": lambda: REMOTE.remove_tree(path),
        "rename": lambda: REMOTE.rename(path, path),
        "makedirs": lambda: REMOTE.makedirs(path),
    }
    for name, call in calls.items():
        with pytest.raises(ours, match="what the store says") as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (code, path), name


def test_a_store_that_cannot_be_reached_is_not_an_empty_one() -> None:
    path = "nosuchscheme://bucket/run"
    assert not tf.io.gfile.isdir(path)  # which is all that TensorFlow's listing asks
    for call in (REMOTE.listdir, REMOTE.exists, REMOTE.open_read, REMOTE.makedirs):
        with pytest.raises(OSError, match="nosuchscheme") as caught:
            call(path)
        assert not isinstance(caught.value, FileNotFoundError)
    with pytest.raises(DamagedCheckpointError, match="nosuchscheme"):
        discovery.candidates(path, files=REMOTE)


def test_a_directory_that_is_there_and_not_listed_is_not_an_empty_one(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> None:
        raise tf.errors.NotFoundError(None, None, f"Could not find directory {path}")

    monkeypatch.setattr(tf.io.gfile, "listdir", fail)
    with pytest.raises(OSError, match="error") as caught:
        REMOTE.listdir(base)
    assert caught.value.errno == errno.EIO


def test_a_name_that_is_no_text_is_a_system_error(tmp_path: Path) -> None:
    os.mkfifo(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(OSError, match="utf-8"):
        REMOTE.listdir(f"file://{tmp_path}")


def test_a_link_in_a_file_uri_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/file").write_text("precious")
    (tmp_path / "tree").mkdir()
    for link in ("link", "tree/link"):
        (tmp_path / link).symlink_to(tmp_path / "victim")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("link", "tree"):
        REMOTE.remove_tree(f"file://{tmp_path}/{name}")
        assert not (tmp_path / name).exists()
    assert (tmp_path / "victim/file").read_text() == "precious"
    assert REMOTE.exists(f"file://host{tmp_path}/dangling")  # a host means nothing to TensorFlow


def test_a_link_to_a_file_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "file").symlink_to("victim")
    REMOTE.write_atomic(f"file://{tmp_path}/file", b"new")
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "file").read_text() == "new"


def test_a_fifo_in_a_file_uri_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnsupportedCheckpointError, match="special file"):
        REMOTE.open_read(f"file://{tmp_path}/fifo")


@pytest.fixture
def saved(base: str) -> str:
    """Three checkpoints of plain TensorFlow; the values of number n are all n."""
    values = [tf.Variable(tf.zeros([300])), tf.Variable([b"", b""]), tf.Variable(0)]
    checkpoint = tf.train.Checkpoint(values=values)
    manager = tf.train.CheckpointManager(checkpoint, base, max_to_keep=None)
    for number in (1, 2, 3):
        values[0].assign(tf.fill([300], float(number)))
        values[1].assign([b"x" * number, b""])
        values[2].assign(number)
        manager.save()
    return base


def test_what_plain_tensorflow_wrote_there_is_found_and_read(saved: str) -> None:
    found = discovery.candidates(saved, files=REMOTE)
    assert [one.prefix for one in found] == [f"{saved}/ckpt-{n}" for n in (3, 2, 1)]
    assert {one.kind for one in found} == {discovery.CheckpointKind.FOREIGN}
    assert discovery.highest_number(saved, files=REMOTE) == 3
    for one in found:
        with Bundle.open(one.prefix, REMOTE) as bundle:
            bundle.verify(bundle.entries)
            key = "values/{}/.ATTRIBUTES/VARIABLE_VALUE"
            np.testing.assert_array_equal(bundle.read(key.format(0)), np.full(300, one.number))
            assert bundle.read(key.format(1)).tolist() == [b"x" * one.number, b""]
            assert bundle.read(key.format(2)) == one.number
        with open_checkpoint(one.prefix, files=REMOTE) as stored:
            assert stored.kind == "tensorflow"
            assert {"values/0", "values/1", "values/2"} <= stored.inventory.entries.keys()
        assert record_file.read(one.prefix, REMOTE) is None
    state = read_state(f"{saved}/checkpoint", REMOTE)
    assert state is not None
    assert state.model_checkpoint_path.endswith("ckpt-3")


def test_a_wrong_prefix_is_told_what_is_there(saved: str) -> None:
    for wrong, hint in {
        f"{saved}/ckpt-4": "'ckpt-1', 'ckpt-2', 'ckpt-3'",
        f"{saved}/ckpt-3.index": f"Use '{saved}/ckpt-3'",
        saved: f"Use '{saved}/ckpt-3'",
        f"{saved}/absent/ckpt-1": "is not a directory",
    }.items():
        with pytest.raises(CheckpointNotFoundError, match=hint):
            Bundle.open(wrong, REMOTE)
    assert discovery.candidates(f"{saved}/absent", files=REMOTE) == []
    assert read_state(f"{saved}/absent/checkpoint", REMOTE) is None


def test_damage_is_found_there(saved: str) -> None:
    index, data = f"{saved}/ckpt-3.index", f"{saved}/ckpt-2.data-00000-of-00001"
    put(index, content(index)[:-1])
    with pytest.raises(DamagedCheckpointError, match="truncated"):
        Bundle.open(f"{saved}/ckpt-3", REMOTE)
    altered = bytearray(content(data))
    altered[0] ^= 1
    put(data, bytes(altered))
    with (
        Bundle.open(f"{saved}/ckpt-2", REMOTE) as bundle,
        pytest.raises(DamagedCheckpointError, match="checksum"),
    ):
        bundle.verify(bundle.entries)
    REMOTE.remove(data)
    with Bundle.open(f"{saved}/ckpt-2", REMOTE) as bundle:
        assert list(bundle.missing_files) == [data]
