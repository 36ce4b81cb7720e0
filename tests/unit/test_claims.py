"""What would fail at the first save is refused first; the lock of a directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import socket
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import X, Y, fit, runs_of, saved

import tfckpt
from tfckpt.errors import InUseError, SaveError
from tfckpt.stored.commits.writer_lock import LOCK_FILE, WriterLock
from tfckpt.stored.io.files import LocalFiles, LocalOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    return runs_of(flavour, tmp_path / "run")


@pytest.fixture
def loop(tmp_path) -> Callable[..., Any]:
    """``loop(every_steps=2)``: a step and a run of it."""

    def build(manager: dict[str, Any] | None = None, **save: Any) -> Any:
        step, value = tf.Variable(0), tf.Variable(tf.zeros(1000))
        where = {"directory": str(tmp_path / "run")}
        config = {"version": 1, "manager": {**where, "save": save, **(manager or {})}}
        return step, tfckpt.from_config(config, step=step, value=value)

    return build


@contextmanager
def full(monkeypatch: Any, free: int = 1000) -> Iterator[None]:
    """Writing meets a full disk, of which so much is free."""

    def no_space(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(LocalOutput, "write", no_space)
        patch.setattr(LocalFiles, "free", lambda self, path: free)
        yield


def warned(caplog: Any) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


class Counter:
    """How many batches were trained."""

    def __init__(self, keras: Any) -> None:
        self.batches = 0
        self.callback = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: setattr(self, "batches", self.batches + 1)
        )


def test_room_for_slots_that_the_first_step_makes_is_asked_for_after_it(
    run, flavour, monkeypatch
) -> None:
    model, one = run(every_epochs=1)
    weights = sum(4 * int(np.prod(variable.shape)) for variable in model.trainable_variables)
    counter = Counter(flavour)
    monkeypatch.setattr(LocalFiles, "free", lambda self, path: 2 * weights)
    with pytest.raises(tfckpt.SaveError, match="a save needs at least"):
        fit(model, 1, one.callback(verbose=0), counter.callback)
    assert counter.batches <= 1
    assert saved(one) == []


def test_a_file_in_the_place_of_the_directory_is_refused(run, flavour, tmp_path) -> None:
    model, one = run(every_epochs=1)
    (tmp_path / "run").write_text("in the way")
    counter = Counter(flavour)
    with pytest.raises(tfckpt.SaveError, match="checkpoints cannot be written: File exists"):
        fit(model, 1, one.callback(verbose=0), counter.callback)
    assert counter.batches == 0


def test_a_full_disk_says_how_much_is_missing(loop, monkeypatch) -> None:
    step, one = loop(every_steps=1)
    step.assign_add(1)
    one.save_if_due()
    step.assign_add(1)
    with full(monkeypatch), pytest.raises(tfckpt.SaveError, match="No space left") as error:
        one.save_if_due()
    assert "a save needs at least 3.9 KiB, but only 1000 B are free" in str(error.value)


def test_a_fit_survives_failed_saves(flavour, tmp_path, monkeypatch, caplog) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
    model.compile("sgd", "mse")
    manager = {"directory": str(tmp_path / "run"), "save": {"every_epochs": 1}}
    config = {"version": 1, "manager": {**manager, "on_save_error": "warn"}}
    one = tfckpt.from_config(config, model=model)
    genuine, writes = LocalOutput.write, iter(range(99))

    def fails_once(self: Any, data: Any) -> None:
        if one.epoch == 2 and next(writes) == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        genuine(self, data)

    monkeypatch.setattr(LocalOutput, "write", fails_once)
    history = model.fit(X, Y, epochs=4, verbose=0, callbacks=[one.callback(verbose=0)])
    assert history.epoch == [0, 1, 2, 3]
    assert [tfckpt_epoch(path) for path in one.manager.checkpoints] == [1, 3, 4]
    assert warned(caplog).count("a save failed; the training continues without it") == 1


def tfckpt_epoch(path: str) -> int:
    import json

    return int(json.loads(Path(f"{path}.tfckpt.json").read_bytes())["epoch"])


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_ends_the_process_though_its_save_failed(loop, monkeypatch, caplog) -> None:
    step, one = loop({"on_save_error": "warn"}, on_signal=["SIGTERM"])
    one.save()
    step.assign_add(1)
    one.save_if_due()
    os.kill(os.getpid(), signal.SIGTERM)
    with full(monkeypatch), pytest.raises(SystemExit, match="143"):
        one.save_if_due()
    said = warned(caplog)
    assert "a save failed" in said
    assert f"SIGTERM: not saved; the newest checkpoint is {one.manager.checkpoints[0]}" in said


@contextlib.contextmanager
def held_by_another(directory: Path, content: bytes) -> Iterator[None]:
    """The lock, taken as another process takes it: through an open file of its own."""
    with (directory / LOCK_FILE).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(content)
        file.flush()
        yield


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


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "run"
    path.mkdir()
    yield path
    WriterLock(str(path)).release()


def test_every_way_to_a_directory_leads_to_one_lock(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory.parent / "link").symlink_to("run")
    monkeypatch.chdir(directory.parent)
    assert WriterLock("link").acquire()
    assert not WriterLock("run").acquire()
    assert not WriterLock(f"{directory}/").acquire()


def test_a_refusal_says_where_who_since_when_and_what_to_do(directory: Path) -> None:
    before = open_files()
    with (
        held_by_another(directory, signed(pid=4711)),
        pytest.raises(InUseError) as caught,
    ):
        WriterLock(str(directory)).acquire()
    message = str(caught.value)
    assert message.startswith(f"{directory}: another process saves into this directory")
    assert "process 4711 on 'far'" in message
    assert "'train.py'" in message
    assert "2026-01-0" in message
    assert "Save into another directory" in message
    assert open_files() == before
    assert WriterLock(str(directory)).acquire()  # the other is done


UNFINISHED = [
    b"",
    signed()[:-1],
    signed()[: len(signed()) // 2] + b"\n",
    b"\xff\n",
    b"[]\n",
    b"7\n",
    b"[" * 4000 + b"\n",
    signed(pid=True),
    signed(pid=-1),
    signed(pid=1 << 80),
    signed(pid="1"),
    signed(host=1),
    signed(since=None),
    signed(since="yesterday"),
    signed(since="0001-01-01T00:00:00+23:00"),
    signed(command=["train.py"]),
    signed(more=1),
    signed(command="x" * 5000),
]


@pytest.mark.parametrize("content", UNFINISHED, ids=range(len(UNFINISHED)))
def test_what_is_not_written_to_its_end_names_nobody(directory: Path, content: bytes) -> None:
    with (
        held_by_another(directory, content),
        pytest.raises(InUseError, match=r"into this directory: an unknown process\n"),
    ):
        WriterLock(str(directory)).acquire()


def test_one_that_has_just_taken_it_is_not_mistaken_for_the_dead_one_before(
    directory: Path,
) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    content = signed(pid=child, host=socket.gethostname())
    with held_by_another(directory, content), pytest.raises(InUseError, match="an unknown process"):
        WriterLock(str(directory)).acquire()


def test_what_a_terminal_would_obey_is_escaped(directory: Path) -> None:
    content = signed(command="\x1b[2J", host="\x07\n")
    with held_by_another(directory, content), pytest.raises(InUseError) as caught:
        WriterLock(str(directory)).acquire()
    assert not set("\x1b\x07") & set(str(caught.value))


def test_a_file_that_a_dead_process_left_is_taken_over(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="absl")
    (directory / LOCK_FILE).write_bytes(signed(pid=4711, command="x" * 1000))
    assert WriterLock(str(directory)).acquire()
    assert json.loads((directory / LOCK_FILE).read_text())["pid"] == os.getpid()
    (message,) = caplog.messages
    assert "the lock left by process 4711" in message


def test_a_moved_directory_is_let_go_and_the_new_one_taken(directory: Path) -> None:
    lock = WriterLock(str(directory))
    lock.acquire()
    moved = directory.rename(directory.parent / "moved")
    assert not is_free(moved)
    with pytest.raises(SaveError, match="No such file or directory"):
        lock.acquire()
    assert is_free(moved)
    directory.mkdir()
    assert [lock.acquire(), lock.acquire()] == [True, False]


def test_a_deleted_file_is_made_again(directory: Path) -> None:
    lock = WriterLock(str(directory))
    lock.acquire()
    (directory / LOCK_FILE).unlink()
    assert lock.acquire()
    assert not is_free(directory)


def test_a_file_that_is_deleted_while_it_is_taken_is_not_taken_for_the_lock(
    directory: Path, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_not_followed(directory: Path, *, there: bool) -> None:
    victim = directory.parent / "victim"
    if there:
        victim.write_text("precious")
    (directory / LOCK_FILE).symlink_to(victim)
    with pytest.raises(SaveError, match=re.escape(f"{directory}/{LOCK_FILE}: is not a regular")):
        WriterLock(str(directory)).acquire()
    assert victim.exists() == there
    assert not there or victim.read_text() == "precious"


def test_what_is_no_file_is_no_lock(directory: Path) -> None:
    before = open_files()
    for make in (Path.mkdir, os.mkfifo):
        make(directory / LOCK_FILE)
        with pytest.raises(SaveError, match="not a regular file"):
            WriterLock(str(directory)).acquire()
        with contextlib.suppress(OSError):
            (directory / LOCK_FILE).rmdir()
    assert open_files() == before


@pytest.mark.parametrize("code", ["ENOLCK", "ENOTSUP", "ENOSYS", "EINVAL"])
def test_a_file_system_without_locks_is_warned_of_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(getattr(errno, code), "not here")

    before = open_files()
    monkeypatch.setattr(fcntl, "flock", fail)
    assert [WriterLock(str(directory)).acquire() for _ in range(3)] == [True, False, False]
    (message,) = caplog.messages
    assert message.startswith(f"{directory}: the file system does not support locks (not here)")
    assert open_files() == before


def test_a_system_without_locks_is_warned_of_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    assert [WriterLock(str(directory)).acquire() for _ in range(3)] == [True, False, False]
    (message,) = caplog.messages
    assert message.startswith(f"{directory}: the file system does not support locks (the system")
    assert "make sure that only one process saves into this directory" in message
    WriterLock(str(directory)).release()


def test_a_full_disk_keeps_nobody_from_locking(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    assert WriterLock(str(directory)).acquire()
    monkeypatch.undo()
    assert not is_free(directory)
