"""Saves in the background: who waits for them, and who is told that one failed."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.live.turns import Background
from tfckpt.stored.commits import record_file
from tfckpt.stored.io.files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ASYNC = tf.train.CheckpointOptions(enable_async=True)


@pytest.fixture
def opened_by_waiting(gate, monkeypatch) -> None:
    """The gate opens as soon as somebody waits for the save behind it."""
    genuine = Background.failure

    def failure(self: Background) -> BaseException | None:
        gate.open()
        return genuine(self)

    monkeypatch.setattr(Background, "failure", failure)


@pytest.fixture
def full_disk(monkeypatch) -> Iterator[Callable[[], None]]:
    """A disk without space, from now on; the call ends it."""

    def rename(_: LocalFiles, source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "rename", rename)
        yield patch.undo


@pytest.fixture
def value() -> tf.Variable:
    return tf.Variable(0)


@pytest.fixture
def manager(value, tmp_path) -> Callable[..., Any]:
    """``manager(if_busy="skip")``: one that saves in the background."""

    def build(**more: Any) -> Any:
        checkpoint = tfckpt.Checkpoint(value=value)
        return tfckpt.CheckpointManager(checkpoint, tmp_path, None, enable_async=True, **more)

    return build


def names(manager: Any) -> list[str]:
    return [Path(path).name for path in manager.checkpoints]


def stored(path: str) -> Any:
    return tf.train.load_checkpoint(path).get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE")


# A save that fails


def test_the_next_save_raises_the_failure_once_and_the_retry_saves(
    manager, value, full_disk, tmp_path
) -> None:
    step = tf.Variable(5)
    first = manager(step_counter=step, checkpoint_interval=3, last_checkpoint_step=1)
    first.save()
    step.assign(8)
    with pytest.raises(tfckpt.SaveError, match="No space left"):
        first.save()
    assert int(first.checkpoint.save_counter) == 0
    assert [path.name for path in tmp_path.glob("[!.]*")] == []
    full_disk()
    value.assign(3)
    step.assign(4)  # three after the last one that succeeded
    path = first.save()
    first.sync()
    assert path.endswith("ckpt-1")
    assert (names(first), stored(path)) == (["ckpt-1"], 3)
    step.assign(6)
    assert first.save() is None
    assert int(first.checkpoint.save_counter) == 1


@pytest.mark.parametrize("by", ["manager", "checkpoint"])
def test_sync_raises_the_failure_once(manager, full_disk, by) -> None:
    first = manager()
    first.save()
    waiting = first if by == "manager" else first.checkpoint
    with pytest.raises(tfckpt.SaveError, match="No space left"):
        waiting.sync()
    waiting.sync()
    assert int(first.checkpoint.save_counter) == 0
    full_disk()
    first.save()
    waiting.sync()
    assert names(first) == ["ckpt-1"]


def test_a_checkpoint_without_a_manager_tells_likewise(value, full_disk, tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(value=value)
    for attempt in (checkpoint.save, checkpoint.write):
        checkpoint.save(tmp_path / "ckpt", options=ASYNC)
        with pytest.raises(tfckpt.SaveError, match="No space left"):
            attempt(tmp_path / "ckpt")
    assert int(checkpoint.save_counter) == 0
    full_disk()
    checkpoint.save(tmp_path / "ckpt", options=ASYNC)
    checkpoint.sync()
    assert tf.train.latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-1")


def test_a_restore_leaves_the_failure_to_who_saves(manager, value, full_disk, monkeypatch) -> None:
    full_disk()
    first = manager()
    value.assign(1)
    first.save()
    first.sync()

    def rename(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "rename", rename)
        value.assign(2)
        first.save()
        assert first.restore_or_initialize().endswith("ckpt-1")
        assert value.numpy() == 1
        with pytest.raises(tfckpt.SaveError, match="No space left"):
            first.sync()


# While one is under way


def test_nothing_is_listed_before_it_is_committed(manager, gate) -> None:
    first = manager()
    path = first.save()
    assert (first.checkpoints, first.latest_checkpoint) == ([], None)
    gate.open()
    first.sync()
    assert (first.checkpoints, first.latest_checkpoint) == ([path], path)
    assert record_file.read(path) is not None


def test_a_number_given_by_hand_counts_before_it_is_committed(manager, gate) -> None:
    first, second = manager(), manager()
    first.save(checkpoint_number=50)
    with pytest.raises(tfckpt.SaveError, match="ckpt-50 exists"):
        second.save(checkpoint_number=49)
    newest = second.save()
    gate.open()
    first.sync()
    second.sync()
    assert names(first) == ["ckpt-50", "ckpt-51"]
    assert second.restore_or_initialize() == newest


def test_skip_makes_no_save_while_one_is_under_way(manager, value, gate) -> None:
    first = manager(if_busy="skip")
    value.assign(1)
    first.save()
    value.assign(2)
    assert first.save() is None
    assert int(first.checkpoint.save_counter) == 1
    gate.open()
    first.sync()
    second = first.save()
    first.sync()
    assert [stored(path) for path in first.checkpoints] == [1, 2]
    assert second == first.latest_checkpoint


def test_a_skipped_save_does_not_move_the_interval(manager, gate) -> None:
    step = tf.Variable(0)
    first = manager(if_busy="skip", step_counter=step, checkpoint_interval=10)
    first.save()
    step.assign(10)
    assert first.save() is None
    gate.open()
    first.sync()
    step.assign(11)
    assert first.save().endswith("ckpt-2")


@pytest.mark.usefixtures("opened_by_waiting")
def test_wait_begins_after_the_one_before_is_committed(manager, value, gate) -> None:
    first = manager(if_busy="wait")
    value.assign(1)
    path = first.save()
    value.assign(2)
    first.save()
    gate.open()
    assert path in first.checkpoints
    first.sync()
    assert [stored(path) for path in first.checkpoints] == [1, 2]


@pytest.mark.usefixtures("opened_by_waiting")
@pytest.mark.parametrize("how", ["restore_or_initialize", "restore", "read"])
def test_a_restore_sees_the_one_that_is_under_way(manager, value, how) -> None:
    first = manager(init_fn=lambda: pytest.fail("there is one"))
    value.assign(7)
    path = first.save()
    value.assign(0)
    if how == "restore_or_initialize":
        assert first.restore_or_initialize() == path
    else:
        getattr(first.checkpoint, how)(path).assert_existing_objects_matched()
    assert value.numpy() == 7
    first.sync()


@pytest.mark.usefixtures("opened_by_waiting")
def test_a_save_by_the_checkpoint_waits_for_the_one_of_its_manager(manager, gate) -> None:
    first = manager()
    first.save()
    assert first.checkpoint.save(Path(first.directory) / "ckpt").endswith("ckpt-2")
    assert names(first) == ["ckpt-1", "ckpt-2"]


# The end of the process

SCRIPT = """
    import errno, os, pathlib, sys, threading
    import tensorflow as tf
    import tfckpt
    from tfckpt.stored.io.files import LocalFiles

    gate, makedirs, rename = threading.Event(), LocalFiles.makedirs, LocalFiles.rename

    def at_the_end(self, path):
        if threading.current_thread() is not threading.main_thread():
            gate.wait()
        makedirs(self, path)

    def full(self, source, target):
        if "full" in pathlib.Path(target).parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(self, source, target)

    LocalFiles.makedirs, LocalFiles.rename = at_the_end, full
    managers = []
    for name in ("whole", "full"):
        checkpoint = tfckpt.Checkpoint(value=tf.Variable(tf.range(5)))
        managers.append(tfckpt.CheckpointManager(checkpoint, name, None, enable_async=True))
        managers[-1].save()
    gate.set()
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> tuple[Path, Any]:
    """Where a script was that ended with two saves under way, and what it said."""
    place = tmp_path_factory.mktemp("ended")
    (place / "script.py").write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    command = [sys.executable, "script.py"]
    return place, subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


def test_the_end_of_a_script_waits_for_the_save_under_way(ended) -> None:
    place, done = ended
    path = str(place / "whole" / "ckpt-1")
    assert done.returncode == 0, done.stderr
    assert record_file.read(path) is not None
    np.testing.assert_array_equal(stored(path), range(5))
    assert sorted(each.name for each in (place / "whole").glob("[!.]*")) == [
        "checkpoint",
        "ckpt-1.data-00000-of-00001",
        "ckpt-1.index",
        "ckpt-1.tfckpt.json",
    ]


def test_a_failure_that_nobody_asked_for_is_said_at_the_end(ended) -> None:
    place, done = ended
    assert "the last background save failed" in done.stderr
    assert "No space left" in done.stderr
    assert [each.name for each in (place / "full").glob("[!.]*")] == []


def test_a_save_that_another_thread_finishes_meanwhile_is_finished(monkeypatch) -> None:
    background = Background()
    background.start(lambda: None)

    def is_here(self: Background) -> bool:  # asked for after the work was found
        self._work = None
        return False

    monkeypatch.setattr(Background, "_is_current_thread", property(is_here))
    assert background.failure() is None


def test_a_thread_that_waits_for_a_save_has_its_turn(value, monkeypatch) -> None:
    checkpoint, calls = tfckpt.Checkpoint(value=value), []
    genuine = Background.turn

    @contextlib.contextmanager
    def turn(self: Background) -> Iterator[None]:
        with genuine(self):
            calls.append("begins")
            yield
            calls.append("ends")

    monkeypatch.setattr(Background, "turn", turn)
    monkeypatch.setattr(Background, "finish", lambda _: calls.append("finish"))
    checkpoint.sync()
    assert calls == ["begins", "finish", "ends"]
