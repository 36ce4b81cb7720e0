"""A large file that is deleted is gone at once, and its space before the next file is written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tfckpt.stored.io import released
from tfckpt.stored.io.files import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterator

posix = pytest.mark.skipif(os.name != "posix", reason="an open file cannot be deleted")


def large(path: Path) -> Path:
    path.write_bytes(bytes(released.LARGE))
    return path


def descriptors() -> list[str]:
    """The files that this process has open; none where the system does not say."""
    found = Path("/proc/self/fd")
    names = [each for each in found.iterdir() if each.is_symlink()] if found.exists() else []
    return sorted(str(each.readlink()) for each in names if each.is_symlink())


@pytest.fixture
def slow_close(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The kernel frees nothing until the event is set."""
    allowed, close, process = threading.Event(), os.close, os.getpid()

    def waiting(descriptor: int) -> None:
        if os.getpid() == process:
            allowed.wait(30)
        close(descriptor)

    monkeypatch.setattr(released, "os", SimpleNamespace(**{**vars(os), "close": waiting}))
    yield allowed
    allowed.set()
    released.wait_until_freed()


@posix
def test_a_removed_file_is_gone_at_once(tmp_path: Path, slow_close: threading.Event) -> None:
    path = large(tmp_path / "data")
    LOCAL.remove(str(path))
    assert not slow_close.is_set()
    assert list(tmp_path.iterdir()) == []


@posix
def test_the_next_file_waits_for_its_space(tmp_path: Path, slow_close: threading.Event) -> None:
    LOCAL.remove(str(large(tmp_path / "old")))
    created = threading.Event()

    def create() -> None:
        LOCAL.create(str(tmp_path / "new")).close()
        created.set()

    thread = threading.Thread(target=create)
    thread.start()
    assert not created.wait(0.2)
    slow_close.set()
    thread.join(30)
    assert created.is_set()


@posix
def test_what_cannot_be_removed_leaves_no_open_file(tmp_path: Path, monkeypatch: Any) -> None:
    path = large(tmp_path / "data")
    before = descriptors()

    def refused(_: Any) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        with pytest.raises(PermissionError):
            LOCAL.remove(str(path))
    assert path.exists()
    assert descriptors() == before


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LOCAL.remove(str(tmp_path / "none"))


@posix
def test_a_second_name_keeps_the_file(tmp_path: Path) -> None:
    path = large(tmp_path / "data")
    other = tmp_path / "other"
    other.hardlink_to(path)
    LOCAL.remove(str(path))
    assert other.stat().st_size == released.LARGE


@posix
def test_a_forked_child_holds_no_space(tmp_path: Path, slow_close: threading.Event) -> None:
    LOCAL.remove(str(large(tmp_path / "data")))
    threading.Timer(0.2, slow_close.set).start()
    child = os.fork()
    if not child:
        os._exit(any(str(tmp_path) in path for path in descriptors()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


FILL = """
import sys
import numpy as np
import tensorflow as tf
import tfckpt

value = tf.Variable(np.zeros(8 << 20, "float32"))
manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), sys.argv[1], max_to_keep=1)
for number in range(20):
    value.assign_add(tf.ones_like(value))
    manager.save()
print(int(value.numpy()[0]), len(manager.checkpoints))
"""


def test_a_disk_with_room_for_one_more_is_large_enough(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=70m", "none", tmp_path],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("no file system of 70 MiB can be mounted")
    try:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-c", FILL, str(tmp_path / "run")]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        assert done.stdout.splitlines()[-1:] == ["20 1"], done.stderr[-2000:]
        assert len(list((tmp_path / "run").glob("*.index"))) == 1
    finally:
        subprocess.run(["umount", tmp_path], check=True)
