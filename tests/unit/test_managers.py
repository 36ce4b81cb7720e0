"""`tfckpt.CheckpointManager`: TensorFlow's, and what a manager does when things go wrong."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

import tfckpt
from tfckpt.stored.io.files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable


HOUR = 3600.0


@pytest.fixture
def value() -> tf.Variable:
    return tf.Variable(0)


@pytest.fixture
def manager(value, tmp_path) -> Callable[..., Any]:
    """``manager(max_to_keep=2)``: a new one, of a new Checkpoint, as after a restart."""

    def build(max_to_keep: int | None = None, **more: Any) -> Any:
        checkpoint = tfckpt.Checkpoint(value=value)
        return tfckpt.CheckpointManager(checkpoint, tmp_path / "run", max_to_keep, **more)

    return build


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """``clock[0] += 3600``: an hour later."""
    now = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def save(manager: Any, value: tf.Variable, number: int) -> str:
    value.assign(number)
    return manager.save()


def kept(manager: Any) -> list[str]:
    return [Path(path).name for path in manager.checkpoints]


def test_one_per_so_many_hours_is_kept_for_good(manager, value, clock) -> None:
    first = manager(max_to_keep=1, keep_checkpoint_every_n_hours=2)
    for number in range(1, 8):
        save(first, value, number)
        clock[0] += HOUR
    assert kept(first) == ["ckpt-3", "ckpt-5", "ckpt-7"]
    second = manager(max_to_keep=1)
    second.restore_or_initialize()
    for number in range(8, 10):
        save(second, value, number)
        clock[0] += HOUR
    assert kept(second) == ["ckpt-3", "ckpt-5", "ckpt-9"]


def test_a_lost_state_file_loses_no_checkpoint_and_no_rule(manager, value, clock, tmp_path) -> None:
    first = manager(max_to_keep=3)
    for number in range(1, 4):
        save(first, value, number)
        clock[0] += 60
    (tmp_path / "run" / "checkpoint").unlink()
    again = manager(max_to_keep=3)
    assert again.restore_or_initialize().endswith("ckpt-3")
    assert kept(again) == ["ckpt-1", "ckpt-2", "ckpt-3"]
    save(again, value, 4)
    assert kept(again) == ["ckpt-2", "ckpt-3", "ckpt-4"]


def test_checkpoint_interval_counts_from_the_last_save(manager, value) -> None:
    step = tf.Variable(0)
    first = manager(step_counter=step, checkpoint_interval=3)
    saved = []
    for number in range(8):
        step.assign(number)
        saved.append(first.save() is not None)
    assert saved == [True, False, False, True, False, False, True, False]
    assert first.save(check_interval=False) is not None
    assert first.save(check_interval=False) is None  # this step has been saved
    assert first.checkpoint_interval == 3


def test_init_fn_is_called_where_there_is_no_checkpoint_only(manager, value) -> None:
    first = manager(init_fn=lambda: value.assign(42))
    assert first.restore_or_initialize() is None
    assert value.numpy() == 42
    first.save()
    value.assign(0)
    again = manager(init_fn=lambda: value.assign(-1))
    assert again.restore_or_initialize() == first.latest_checkpoint
    assert value.numpy() == 42


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"max_to_keep": 0}, ValueError),
        ({"max_to_keep": -1}, ValueError),
        ({"checkpoint_interval": 3}, ValueError),
        ({"max_to_keep": 1.5}, TypeError),
        ({"max_to_keep": "3"}, TypeError),
        ({"max_to_keep": True}, TypeError),
        ({"keep_checkpoint_every_n_hours": "2"}, TypeError),
        ({"keep_checkpoint_every_n_hours": -1}, ValueError),
        ({"keep_checkpoint_every_n_hours": float("nan")}, ValueError),
        ({"checkpoint_name": ""}, ValueError),
        ({"checkpoint_name": "a/b"}, ValueError),
        ({"checkpoint_name": "a\0b"}, ValueError),
        ({"checkpoint_name": None}, TypeError),
    ],
)
def test_what_the_constructor_refuses(manager, arguments, error) -> None:
    with pytest.raises(error):
        manager(**arguments)


@pytest.mark.parametrize("number", [-3, 1.5, "7", True, 10**18])
def test_a_number_that_no_checkpoint_has_is_refused_before_anything_is_written(
    manager, tmp_path, number
) -> None:
    first = manager()
    with pytest.raises(tfckpt.SaveError, match="checkpoint_number"):
        first.save(checkpoint_number=number)
    assert not (tmp_path / "run").exists()
    assert int(first.checkpoint.save_counter) == 0
    assert first.save(checkpoint_number=0).endswith("ckpt-0")


def test_weights_that_the_checkpoint_does_not_have_are_named(flavour, tmp_path, caplog) -> None:
    def build(*names: str) -> Any:
        layers = [flavour.layers.Dense(4, name=name) for name in names]
        model = flavour.Sequential([flavour.Input((4,)), *layers])
        return tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), tmp_path, 3)

    build("a").save()
    assert build("a").restore_or_initialize().endswith("ckpt-1")
    assert "model/a" not in caplog.text
    assert build("a", "head").restore_or_initialize().endswith("ckpt-1")
    assert "model/head/kernel" in caplog.text
    assert "model/head/bias" in caplog.text
    assert "model/a" not in caplog.text


def test_a_plain_checkpoint_is_refused(tmp_path) -> None:
    with pytest.raises(TypeError, match=r"tfckpt\.Checkpoint"):
        tfckpt.CheckpointManager(tf.train.Checkpoint(), str(tmp_path), 1)


@pytest.mark.parametrize("call", ["write_state", "remove"])
def test_a_committed_save_succeeds_although_the_tidying_fails(
    manager, value, monkeypatch, call
) -> None:
    first = manager(max_to_keep=1)
    save(first, value, 1)
    real = LocalFiles.write_atomic

    def broken(files: Any, path: str, *rest: Any) -> None:
        if call == "remove" or path.endswith("/checkpoint"):
            raise OSError(errno.EIO, "Input/output error")
        real(files, path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "remove" if call == "remove" else "write_atomic", broken)
        assert save(first, value, 2).endswith("ckpt-2")
    value.assign(0)
    assert manager().restore_or_initialize().endswith("ckpt-2")
    assert value.numpy() == 2
    save(first, value, 3)
    assert kept(first) == ["ckpt-3"]


def numbers(reopened: Any) -> list[int]:
    return [int(path.rpartition("-")[2]) for path in reopened.checkpoints]


@pytest.fixture
def reopened(value, tmp_path) -> Any:
    """``manager(keep)``: a new one of the same directory."""

    def build(max_to_keep: int | None = None, **more: Any) -> tfckpt.CheckpointManager:
        checkpoint = tfckpt.Checkpoint(value=value)
        return tfckpt.CheckpointManager(checkpoint, tmp_path / "run", max_to_keep, **more)

    return build


def test_a_number_below_an_existing_one_is_refused(reopened, value, tmp_path) -> None:
    first = reopened()
    value.assign(7)
    first.save(checkpoint_number=700)
    before = sorted((tmp_path / "run").iterdir())
    for one in (first, reopened()):
        counter = int(one.checkpoint.save_counter)
        value.assign(6)
        with pytest.raises(tfckpt.SaveError) as caught:
            one.save(checkpoint_number=600)
        assert "ckpt-700 exists and would be restored before ckpt-600" in str(caught.value)
        assert "delete ckpt-700, or use another directory" in str(caught.value)
        assert sorted((tmp_path / "run").iterdir()) == before
        assert int(one.checkpoint.save_counter) == counter
    assert reopened().restore_or_initialize() == first.latest_checkpoint
    assert value.numpy() == 7
    assert numbers(first) == [700]
    assert first.save().endswith("ckpt-701")


def test_the_same_number_is_saved_anew(reopened, value) -> None:
    one = reopened()
    for step in (1, 2):
        value.assign(step)
        path = one.save(checkpoint_number=5)
    value.assign(0)
    assert reopened().restore_or_initialize() == path
    assert value.numpy() == 2
    assert numbers(one) == [5]


def test_a_failing_listing_moves_no_counter_and_takes_no_number(reopened, monkeypatch) -> None:
    one = reopened()
    one.save()
    genuine = LocalFiles.listdir
    for failing in range(1, 40):
        calls = iter(range(1, 99))

        def unreadable(self: Any, path: str, failing: int = failing, calls: Any = calls) -> Any:
            if next(calls) == failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return genuine(self, path)

        before = int(one.checkpoint.save_counter), numbers(one)
        with monkeypatch.context() as patch:
            patch.setattr(LocalFiles, "listdir", unreadable)
            try:
                one.save()
            except tfckpt.SaveError:
                assert (int(one.checkpoint.save_counter), numbers(one)) == before
            else:
                break
    assert 3 < failing < 39
    assert one.save().endswith(f"ckpt-{before[1][-1] + 2}")


def test_where_no_thread_can_be_had_the_save_is_made_at_once(reopened, monkeypatch) -> None:
    def none(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    one = reopened(enable_async=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        path = one.save()
        assert one.checkpoints == [path]


def test_an_interrupt_while_a_save_is_undone_loses_neither_version(
    value, tmp_path, monkeypatch
) -> None:
    checkpoint = tfckpt.Checkpoint(value=value)
    value.assign(1)
    checkpoint.write(tmp_path / "last")
    value.assign(2)
    genuine = LocalFiles.rename

    def interrupted(self: Any, source: str, target: str) -> None:
        if target.endswith("last.tfckpt.json"):
            raise KeyboardInterrupt
        genuine(self, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.write(tmp_path / "last")
    value.assign(0)
    checkpoint.read(tmp_path / "last").assert_consumed()
    assert value.numpy() in (1, 2)
    checkpoint.write(tmp_path / "last")
    left = {"last.index", "last.tfckpt.json", *(file.name for file in tmp_path.glob("last.data-*"))}
    assert {file.name for file in tmp_path.iterdir()} == left


@pytest.fixture
def state_fails(monkeypatch) -> list[int]:
    """``[errno]`` of the next tries to write the state file; all succeed where it is empty."""
    fails: list[int] = []
    genuine = LocalFiles.write_atomic

    def write_atomic(self: LocalFiles, path: str, data: bytes) -> None:
        if Path(path).name == "checkpoint" and fails:
            raise OSError(fails[0], os.strerror(fails[0]), path)
        genuine(self, path, data)

    monkeypatch.setattr(LocalFiles, "write_atomic", write_atomic)
    return fails


def found_by_tensorflow(directory: Path) -> int:
    path = tf.train.latest_checkpoint(str(directory))
    assert path is not None
    return int(tf.train.load_checkpoint(path).get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE"))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("in_background", [False, True])
def test_what_the_state_file_names_stays_until_it_is_written_again(
    reopened, value, tmp_path, state_fails, code, in_background, caplog
) -> None:
    one = reopened(1, enable_async=in_background)
    for step in (1, 2, 3, 4):
        value.assign(step)
        state_fails[:] = [code] if step in (2, 3) else []
        one.save()
        one._checkpoint.sync()  # the manager's own would try again
        assert found_by_tensorflow(tmp_path / "run") == {2: 1, 3: 1}.get(step, step)
        assert numbers(one) == {2: [1, 2], 3: [1, 3]}.get(step, [step])
    assert "could not write the state file" in caplog.text
    assert "ckpt-1: not deleted; the next save tries again" in caplog.text


def test_sync_writes_the_state_file_that_a_save_could_not(
    reopened, value, tmp_path, state_fails
) -> None:
    one = reopened(1)
    one.save()
    state_fails.append(errno.EIO)
    value.assign(2)
    one.save()
    one.sync()
    assert found_by_tensorflow(tmp_path / "run") == 0
    state_fails.clear()
    one.sync()
    assert found_by_tensorflow(tmp_path / "run") == 2
    assert numbers(one) == [2]


def test_a_state_file_that_cannot_be_read_either_lets_nothing_be_deleted(
    reopened, value, tmp_path, state_fails
) -> None:
    one = reopened(1)
    one.save()
    state = tmp_path / "run" / "checkpoint"
    written = state.read_bytes()
    state.write_bytes(written[:9])
    state_fails.append(errno.EIO)
    one.save()
    assert numbers(one) == [1, 2]
    state.write_bytes(written)
    assert found_by_tensorflow(tmp_path / "run") == 0


def test_a_change_of_the_working_directory_takes_no_checkpoint_elsewhere(
    value, tmp_path, monkeypatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    checkpoint = tfckpt.Checkpoint(value=value)
    one = tfckpt.CheckpointManager(checkpoint, "run", 2)
    assert one.save() == "run/ckpt-1"
    monkeypatch.chdir(tmp_path / "elsewhere")
    one.save()
    assert {path.stem for path in (tmp_path / "run").glob("*.index")} == {"ckpt-1", "ckpt-2"}
    assert not list((tmp_path / "elsewhere").iterdir())


FORK = """
import os, sys, threading
import tensorflow as tf
import tfckpt
from tfckpt.stored.io.files import LocalFiles

go_on, genuine = threading.Event(), LocalFiles.fsync
LocalFiles.fsync = lambda self, path: (go_on.wait(), genuine(self, path))
checkpoint = tfckpt.Checkpoint(value=tf.Variable(1))
manager = tfckpt.CheckpointManager(checkpoint, sys.argv[1], None, enable_async=True)
manager.save()
if not (child := os.fork()):
    sys.exit(3)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
go_on.set()
manager.sync()
print("saved", len(manager.checkpoints))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_forked_during_a_save_does_not_wait_for_it(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.split() == ["child", "3", "saved", "1"]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "damage", [lambda data: os.truncate(data, 3), os.remove], ids=["cut", "lost"]
)
def test_damaged_checkpoints_do_not_count(reopened, tmp_path, damage, restarted) -> None:
    first = reopened(3)
    for _ in range(3):
        first.save()
    for number in (2, 3):
        damage(tmp_path / "run" / f"ckpt-{number}.data-00000-of-00001")
    if restarted:
        first = reopened(3)
    first.save()
    first.save()
    assert numbers(first) == [1, 2, 3, 4, 5]
    assert [path[-6:] for path in first.retention().kept] == ["ckpt-1", "ckpt-4", "ckpt-5"]
