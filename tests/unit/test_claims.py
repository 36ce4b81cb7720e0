"""What would fail at the first save is refused first; the lock of a directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import fit, runs_of, saved

import tfckpt
from tfckpt.errors import InUseError, SaveError
from tfckpt.stored.commits.writer_lock import LOCK_FILE, WriterLock
from tfckpt.stored.io.files import LocalFiles, LocalOutput
from tfckpt.stored.io.locks import FileLock


def failing(code: str) -> Any:
    def fail(*_: object) -> None:
        raise OSError(getattr(errno, code), "not here")

    return fail


def test_room_and_a_place_are_asked_for_before_the_training(tmp_path, monkeypatch) -> None:
    for mistake in ("no room", "in the way"):  # the slots are made by the first step
        model, one = runs_of(keras, tmp_path / mistake)(every_epochs=1)
        weights = sum(4 * int(np.prod(variable.shape)) for variable in model.trainable_variables)
        said, batches = "a save needs at least", []
        if mistake == "no room":
            monkeypatch.setattr(LocalFiles, "free", lambda self, path, w=weights: 2 * w)
        else:
            monkeypatch.undo()
            (tmp_path / mistake).write_text("in the way")
            said = "checkpoints cannot be written: File exists"
        counter = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs, batches=batches: batches.append(batch)
        )
        with pytest.raises(tfckpt.SaveError, match=said):
            fit(model, 1, one.callback(verbose=0), counter)
        assert len(batches) <= (mistake == "no room")
        assert mistake == "in the way" or saved(one) == []


def test_a_full_disk_says_how_much_is_missing_and_a_signal_ends_all_the_same(
    tmp_path, monkeypatch, caplog
) -> None:
    def loop(directory: str, **manager: Any) -> Any:
        step, value = tf.Variable(0), tf.Variable(tf.zeros(1000))
        manager = {"directory": str(tmp_path / directory), **manager}
        run = tfckpt.from_config({"version": 1, "manager": manager}, step=step, value=value)
        run.save()
        for _ in range(2):
            step.assign_add(1)
            run.save_if_due()
        step.assign_add(1)
        return run

    one, other = (
        loop("a", save={"every_steps": 1}),
        loop("b", save={"on_signal": ["SIGTERM"]}, on_save_error="warn"),
    )
    monkeypatch.setattr(LocalOutput, "write", failing("ENOSPC"))
    monkeypatch.setattr(LocalFiles, "free", lambda self, path: 1000)
    with pytest.raises(tfckpt.SaveError, match="not here") as error:
        one.save_if_due()
    assert "a save needs at least 3.9 KiB, but only 1000 B are free" in str(error.value)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"):
        other.save_if_due()
    assert "a save failed" in caplog.text
    newest = other.manager.checkpoints[-1]
    assert f"SIGTERM: not saved; the newest checkpoint is {newest}" in caplog.text


def test_a_fit_survives_failed_saves(tmp_path, monkeypatch, caplog) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="a")])
    model.compile("sgd", "mse", run_eagerly=True)
    manager = {"directory": str(tmp_path / "run"), "save": {"every_epochs": 1}}
    config = {"version": 1, "manager": {**manager, "on_save_error": "warn"}}
    one = tfckpt.from_config(config, model=model)
    genuine, failed = LocalOutput.write, []

    def fails_once(self: Any, data: Any) -> None:
        if one.epoch == 2 and not failed:
            failed.append(failing("EIO"))
            failed[0]()
        genuine(self, data)

    monkeypatch.setattr(LocalOutput, "write", fails_once)
    assert fit(model, 4, one.callback(verbose=0)) == [0, 1, 2, 3]
    records = [json.loads(Path(f"{p}.tfckpt.json").read_bytes()) for p in one.manager.checkpoints]
    assert [record["epoch"] for record in records] == [1, 3, 4]
    assert caplog.text.count("a save failed; the training continues without it") == 1


# The lock

OPEN = Path("/proc/self/fd")


@contextlib.contextmanager
def held_by_another(directory: Path, content: bytes) -> Iterator[None]:
    """The lock, taken as another process takes it: through an open file of its own."""
    with (directory / LOCK_FILE).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(content)
        file.flush()
        yield


def refusal(directory: Path, content: bytes) -> str:
    with held_by_another(directory, content), pytest.raises(InUseError) as caught:
        WriterLock(str(directory)).acquire()
    return str(caught.value)


def signed(**changes: Any) -> bytes:
    holder = {"pid": os.getpid(), "host": "far", "since": "2026-01-02T03:04:05+00:00"}
    return json.dumps({**holder, "command": "train.py", **changes}).encode() + b"\n"


def is_free(directory: Path) -> bool:
    with (directory / LOCK_FILE).open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """One that is let go, and of which no file is left open."""
    path = tmp_path / "run"
    path.mkdir()
    before = len(list(OPEN.iterdir()))
    yield path
    WriterLock(str(path)).release()
    assert len(list(OPEN.iterdir())) <= before


def test_every_way_to_a_directory_leads_to_one_lock(directory: Path, monkeypatch) -> None:
    (directory.parent / "link").symlink_to("run")
    monkeypatch.chdir(directory.parent)
    assert WriterLock("link").acquire()
    assert not WriterLock("run").acquire()
    assert not WriterLock(f"{directory}/").acquire()


def test_a_refusal_says_where_who_since_when_and_what_to_do(directory: Path) -> None:
    message = refusal(directory, signed(pid=4711))
    assert message.startswith(f"{directory}: another process saves into this directory")
    for said in ("process 4711 on 'far'", "'train.py'", "2026-01-0", "Save into another directory"):
        assert said in message
    message = refusal(directory, signed(command="\x1b[2J", host="\x07\n"))
    assert not set("\x1b\x07") & set(message)  # which a terminal would obey
    assert WriterLock(str(directory)).acquire()  # the other is done


def test_what_is_not_written_to_its_end_names_nobody(directory: Path) -> None:
    whole = signed()
    odd = {"pid": -1}, {"since": "yesterday"}, {"host": 1}, {"command": "x" * 5000}
    torn = b"", whole[:-1], b"\xff\n", b"[]\n", b"[" * 4000 + b"\n"
    for content in [*torn, *(signed(**each) for each in odd)]:
        assert "into this directory: an unknown process\n" in refusal(directory, content)


def test_a_file_that_a_dead_process_left_is_taken_over(directory: Path, caplog) -> None:
    caplog.set_level("DEBUG", logger="absl")
    (directory / LOCK_FILE).write_bytes(signed(pid=4711, command="x" * 1000))
    assert WriterLock(str(directory)).acquire()
    assert json.loads((directory / LOCK_FILE).read_text())["pid"] == os.getpid()
    (message,) = caplog.messages
    assert "the lock was last held by process 4711" in message


def test_a_file_that_is_deleted_while_it_is_taken_is_not_taken_for_the_lock(
    directory: Path, monkeypatch
) -> None:
    flock, deleted = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not deleted:
            deleted.append((directory / LOCK_FILE).unlink())
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    assert WriterLock(str(directory)).acquire()
    monkeypatch.undo()
    assert not is_free(directory)


def test_what_is_no_file_is_no_lock(directory: Path) -> None:
    place = directory / LOCK_FILE
    for make, remove in ((Path.mkdir, Path.rmdir), (os.mkfifo, Path.unlink)):
        make(place)
        with pytest.raises(SaveError, match="not a regular file"):
            WriterLock(str(directory)).acquire()
        remove(place)


@pytest.mark.parametrize("code", ["ENOLCK", "EINVAL", ""])
def test_a_file_system_without_locks_is_warned_of_once(
    directory: Path, monkeypatch, caplog, code: str
) -> None:
    if code:
        monkeypatch.setattr(fcntl, "flock", failing(code))
    else:  # as on Windows
        monkeypatch.setitem(sys.modules, "fcntl", None)
    assert [WriterLock(str(directory)).acquire() for _ in range(3)] == [True, False, False]
    (message,) = caplog.messages
    why = "not here)" if code else "the system"
    assert message.startswith(f"{directory}: the file system does not support locks ({why}")
    assert "make sure that only one process saves into this directory" in message


def test_a_full_disk_keeps_nobody_from_locking(directory: Path, monkeypatch) -> None:
    monkeypatch.setattr(FileLock, "write", failing("ENOSPC"))
    assert WriterLock(str(directory)).acquire()
    monkeypatch.undo()
    assert not is_free(directory)
