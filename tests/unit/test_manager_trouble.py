"""What a manager does when numbers go down, calls fail, files are planted, or the process forks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tfckpt
from tfckpt.stored.io.files import LocalFiles


def numbers(manager: Any) -> list[int]:
    return [int(path.rpartition("-")[2]) for path in manager.checkpoints]


@pytest.fixture
def value() -> tf.Variable:
    return tf.Variable(0)


@pytest.fixture
def manager(value, tmp_path) -> Any:
    """``manager(keep)``: a new one of the same directory."""

    def build(max_to_keep: int | None = None, **more: Any) -> tfckpt.CheckpointManager:
        checkpoint = tfckpt.Checkpoint(value=value)
        return tfckpt.CheckpointManager(checkpoint, tmp_path / "run", max_to_keep, **more)

    return build


# Numbers


def test_a_number_below_an_existing_one_is_refused(manager, value, tmp_path) -> None:
    first = manager()
    value.assign(7)
    first.save(checkpoint_number=700)
    before = sorted((tmp_path / "run").iterdir())
    for one in (first, manager()):
        counter = int(one.checkpoint.save_counter)
        value.assign(6)
        with pytest.raises(tfckpt.SaveError) as caught:
            one.save(checkpoint_number=600)
        assert "ckpt-700 exists and would be restored before ckpt-600" in str(caught.value)
        assert "delete ckpt-700, or use another directory" in str(caught.value)
        assert sorted((tmp_path / "run").iterdir()) == before
        assert int(one.checkpoint.save_counter) == counter
    assert manager().restore_or_initialize() == first.latest_checkpoint
    assert value.numpy() == 7
    assert numbers(first) == [700]
    assert first.save().endswith("ckpt-701")


def test_one_below_what_tensorflow_saved_is_refused_too(manager, value, tmp_path) -> None:
    tf.train.Checkpoint(value=value).write(f"{tmp_path}/run/ckpt-9")
    with pytest.raises(tfckpt.SaveError, match="ckpt-9 exists"):
        manager().save(checkpoint_number=8)


def test_the_same_number_is_saved_anew(manager, value) -> None:
    one = manager()
    for step in (1, 2):
        value.assign(step)
        path = one.save(checkpoint_number=5)
    value.assign(0)
    assert manager().restore_or_initialize() == path
    assert value.numpy() == 2
    assert numbers(one) == [5]


def test_a_name_that_ends_with_a_date_is_written_and_read(value, tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(value=value)
    value.assign(5)
    path = checkpoint.write(tmp_path / "model-20261120121613123456")
    value.assign(0)
    checkpoint.read(path).assert_consumed()
    assert value.numpy() == 5


# What fails


def test_a_failing_listing_moves_no_counter_and_takes_no_number(manager, monkeypatch) -> None:
    one = manager()
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


def test_options_that_are_none_move_no_counter(value, tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(value=value)
    with pytest.raises(AttributeError):
        checkpoint.save(tmp_path / "ckpt", options="none")
    assert int(checkpoint.save_counter) == 0
    assert checkpoint.save(tmp_path / "ckpt").endswith("ckpt-1")


def test_where_no_thread_can_be_had_the_save_is_made_at_once(manager, monkeypatch) -> None:
    def none(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    one = manager(enable_async=True)
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


# The state file, by which plain TensorFlow finds checkpoints


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
    manager, value, tmp_path, state_fails, code, in_background, caplog
) -> None:
    one = manager(1, enable_async=in_background)
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
    manager, value, tmp_path, state_fails
) -> None:
    one = manager(1)
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


def test_the_end_of_a_training_writes_it_too(tmp_path, state_fails) -> None:
    value = tf.Variable(1)
    manager = {"directory": str(tmp_path / "run"), "keep": [{"latest": 1}]}
    config = {"version": 1, "manager": manager}
    run = tfckpt.from_config(config, value=value)
    run.save()
    state_fails.append(errno.EIO)
    value.assign(2)
    run.save()
    assert found_by_tensorflow(tmp_path / "run") == 1
    state_fails.clear()
    run.sync()
    assert found_by_tensorflow(tmp_path / "run") == 2


def test_a_state_file_that_cannot_be_read_either_lets_nothing_be_deleted(
    manager, value, tmp_path, state_fails
) -> None:
    one = manager(1)
    one.save()
    state = tmp_path / "run" / "checkpoint"
    written = state.read_bytes()
    state.write_bytes(written[:9])
    state_fails.append(errno.EIO)
    one.save()
    assert numbers(one) == [1, 2]
    state.write_bytes(written)
    assert found_by_tensorflow(tmp_path / "run") == 0


# What lies in the directory


def test_one_without_its_data_does_not_count(manager, tmp_path) -> None:
    one = manager(2)
    for _ in range(2):
        one.save()
    (tmp_path / "run" / "ckpt-2.data-00000-of-00001").unlink()
    one.save()
    assert numbers(one) == [1, 2, 3]
    one.save()
    assert numbers(one) == [2, 3, 4]


# Where the process goes


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


def test_managers_of_directories_that_are_gone_hold_no_descriptors(value, tmp_path) -> None:
    import shutil

    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    checkpoint = tfckpt.Checkpoint(value=value)
    counts = []
    for number in range(6):
        directory = tmp_path / str(number)
        tfckpt.CheckpointManager(checkpoint, directory, 1).save()
        shutil.rmtree(directory)
        counts.append(held())
    assert counts[-1] <= counts[1]


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


# What is not as it was


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "damage", [lambda data: os.truncate(data, 3), os.remove], ids=["cut", "lost"]
)
def test_damaged_checkpoints_do_not_count(manager, tmp_path, damage, restarted) -> None:
    first = manager(3)
    for _ in range(3):
        first.save()
    for number in (2, 3):
        damage(tmp_path / "run" / f"ckpt-{number}.data-00000-of-00001")
    if restarted:
        first = manager(3)
    first.save()
    first.save()
    assert numbers(first) == [1, 2, 3, 4, 5]
    assert [path[-6:] for path in first.retention().kept] == ["ckpt-1", "ckpt-4", "ckpt-5"]


def test_a_training_that_starts_mends_the_state_file(manager, tmp_path, monkeypatch) -> None:
    first = manager()
    first.save()
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "write_atomic", failing_for("checkpoint"))
        first.save()
    assert tf.train.latest_checkpoint(tmp_path / "run").endswith("ckpt-1")
    manager().claim()
    assert tf.train.latest_checkpoint(tmp_path / "run").endswith("ckpt-2")


def failing_for(name: str) -> Any:
    real = LocalFiles.write_atomic

    def write(files: Any, path: str, data: bytes) -> None:
        if os.path.split(path)[1] == name:
            raise OSError(errno.EIO, "no")
        real(files, path, data)

    return write


def test_paths_exist_when_the_process_works_elsewhere(value, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), "run", None)
    assert [first.save(), first.latest_checkpoint] == ["run/ckpt-1"] * 2
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for path in (first.save(), first.latest_checkpoint, first.restore_or_initialize()):
        assert path == str(tmp_path / "run" / "ckpt-2")
    assert first.directory == str(tmp_path / "run")
