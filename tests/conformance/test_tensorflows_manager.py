"""What TensorFlow's CheckpointManager does, ours does too, but for what differs on purpose."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.sides import ASYNC, HOUR, MINUTE, START, Side, name

import tfckpt
from tfckpt.stored.io.files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@pytest.fixture
def alike(sides) -> Callable[..., Any]:
    """``alike(scenario, 3)``: what it comes to, which is the same on both sides."""

    def compare(scenario: Callable[..., Any], *args: Any) -> Any:
        results = []
        for side in sides:
            side.clock[0] = START
            results.append(scenario(side, *args))
        theirs, ours = results
        assert ours == theirs
        return ours

    return compare


def numbered(side: Side, kind: Callable[[int], Any], numbers: Iterable[int]) -> list[Any]:
    manager = side.manager(2)
    history = []
    for count, number in enumerate(numbers):
        side.clock[0] += MINUTE
        saved = side.save(manager, count, checkpoint_number=kind(number))
        history.append((saved, side.seen(manager)))
        if count == 2:
            manager = side.manager(2)
            history.append((name(manager.restore_or_initialize()), int(side.value)))
            history.append(side.seen(manager))
    return history


@pytest.mark.parametrize("kind", [int, np.int64, tf.constant, tf.Variable])
def test_a_number_may_be_a_tensor_or_a_variable(alike, kind) -> None:
    assert [saved for saved, _ in alike(numbered, kind, (4, 8))] == ["ckpt-4", "ckpt-8"]


def started(side: Side, before: int, init: int | None) -> list[Any]:
    first = side.manager()
    for number in range(before):
        side.save(first, number + 1)
    side.value.assign(-1)
    init_fn = None if init is None else (lambda: side.value.assign(init))
    manager = side.manager(init_fn=init_fn)
    return [name(manager.restore_or_initialize()), int(side.value), side.seen(manager)]


@pytest.mark.parametrize("init", [None, 42])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_init_fn_is_for_where_there_is_none(alike, before, init) -> None:
    assert alike(started, before, init)[1] == (before or init or -1)


def moved(side: Side) -> Any:
    manager = side.manager()
    side.save(manager, 1)
    side.save(manager, 2)
    side.directory = side.directory.rename(side.directory.with_name(f"{side.directory.name}-new"))
    side.value.assign(0)
    manager = side.manager()
    found = name(manager.restore_or_initialize()), int(side.value)
    return found, side.save(manager, 3), side.seen(manager)


def test_a_directory_may_be_moved(alike) -> None:
    assert alike(moved)[:2] == (("ckpt-2", 2), "ckpt-3")


def named(side: Side, kind: Callable[[str], Any]) -> Any:
    side.directory.mkdir()
    os.chdir(side.directory)
    manager = side.manager(directory=kind("run"), checkpoint_name="model.v1")
    paths = [manager.save() for _ in range(2)]
    again = side.manager(directory=kind("run"), checkpoint_name="model.v1")
    assert os.fspath(manager.directory) == "run"
    assert side.value is manager.checkpoint.value
    return paths, again.checkpoints, again.latest_checkpoint, manager.checkpoint_interval


@pytest.mark.parametrize("kind", [str, Path])
def test_paths_are_spelt_as_the_directory_is(alike, kind, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert alike(named, kind)[0] == ["run/model.v1-1", "run/model.v1-2"]


def at_steps(side: Side, calls: Sequence[tuple[int, bool]], last: int | None) -> list[Any]:
    counted: dict[str, Any] = {"step_counter": side.step, "checkpoint_interval": 3}
    manager = side.manager(**counted, last_checkpoint_step=last)
    history: list[Any] = [manager.checkpoint_interval]
    for step, check in calls:
        side.step.assign(step)
        history.append(side.save(manager, step, check_interval=check))
    side.step.assign(0)
    manager = side.manager(**counted)
    history.append((name(manager.restore_or_initialize()), int(side.step)))
    for passed in (0, 2, 1):
        side.step.assign_add(passed)
        history.append(side.save(manager, passed))
    return history


@pytest.mark.parametrize("last", [None, 0, 2])
@pytest.mark.parametrize(
    "calls",
    [
        [(step, True) for step in range(9)],
        [(step, False) for step in (1, 1, 2, 2, 3)],
        [(4, True), (5, True), (5, False), (7, True), (8, True)],
        [(9, True), (3, True), (3, False), (4, True), (6, True)],
    ],
    ids=["each step", "each forced", "some forced", "backwards"],
)
def test_checkpoint_interval_holds_saves_back(alike, calls, last) -> None:
    alike(at_steps, calls, last)


@pytest.mark.parametrize(
    "wrong", [{"max_to_keep": 0}, {"max_to_keep": -3}, {"checkpoint_interval": 5}], ids=str
)
def test_what_both_refuse(alike, wrong) -> None:
    def refused(side: Side) -> Any:
        with pytest.raises(ValueError, match=next(iter(wrong))) as caught:
            side.manager(**wrong)
        return isinstance(caught.value, ValueError), side.directory.exists()

    alike(refused)


def called_back(side: Side, options: Any) -> Any:
    manager, seen = side.manager(1), []
    options.experimental_write_callbacks = [
        lambda path: seen.append((name(path), side.stored(path))),
        lambda: seen.append("no argument"),
    ]
    for number in (1, 2):
        side.save(manager, number, options=options)
        manager.sync()
    return seen, len(options.experimental_write_callbacks), side.seen(manager)


@pytest.mark.parametrize("in_background", [False, True])
def test_callbacks_run_after_each_write(alike, in_background) -> None:
    options = tf.train.CheckpointOptions(enable_async=in_background)
    seen, count, _ = alike(called_back, options)
    assert seen == [("ckpt-1", 1), "no argument", ("ckpt-2", 2), "no argument"]
    assert count == 2


def in_shards(side: Side, options: Any) -> list[str]:
    side.value = tf.Variable(tf.range(1000))
    side.manager().save(options=options)
    restored = tf.Variable(tf.zeros(1000, tf.int32))
    tf.train.Checkpoint(value=restored).read(str(side.directory / "ckpt-1")).expect_partial()
    np.testing.assert_array_equal(restored, range(1000))
    return sorted(path.name for path in side.directory.glob("*.data-*"))


@pytest.mark.parametrize(
    ("options", "shards"),
    [
        ({"experimental_io_device": "/job:localhost"}, 1),
        ({"experimental_sharding_callback": tf.train.experimental.MaxShardSizePolicy(1500)}, 3),
    ],
    ids=["device", "shards"],
)
def test_options_go_to_who_writes(alike, options, shards) -> None:
    assert len(alike(in_shards, tf.train.CheckpointOptions(**options))) >= shards


def in_the_background(side: Side, options: Any) -> Any:
    more = {"enable_async": True} if options is None else {}
    manager = side.manager(2, **more)
    paths = []
    for number in (1, 2, 3):
        side.value.assign(number)
        paths.append(manager.save(options=options))
        side.value.assign(-number)
    manager.sync()
    held = [side.stored(path) for path in manager.checkpoints]
    return [*map(name, paths)], held, side.seen(manager)


def test_a_save_in_the_background_is_of_the_moment(sides, alike) -> None:
    paths, held, _ = alike(in_the_background, ASYNC)
    assert (paths, held) == (["ckpt-1", "ckpt-2", "ckpt-3"], [2, 3])
    by_argument = dataclasses.replace(sides[1], directory=sides[1].directory / "again")
    assert in_the_background(by_argument, None)[:2] == (paths, held)


@pytest.fixture
def ours(sides) -> Side:
    return sides[1]


@pytest.mark.parametrize("by", ["save", "sync"])
def test_a_failure_in_the_background_is_raised_once(ours, by, monkeypatch) -> None:
    """TensorFlow's ``sync`` says nothing, and the error comes with a later save."""
    manager = ours.manager()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "rename", full)
        manager.save(options=ASYNC)
        with pytest.raises(tfckpt.SaveError, match="No space left"):
            getattr(manager, by)()
    manager.sync()
    assert ours.save(manager, 5) == "ckpt-1"
    assert ours.seen(manager)["counter"] == 1


def test_what_is_kept_for_good_is_listed_after_a_clock_set_back_too(sides) -> None:
    """TensorFlow lists none of them, and does not know which to delete where its clock went back.

    It keeps the one that was the newest then for ever: it is no more told from those to keep. Here
    that one stays until the run that begins beside it has come as far.
    """
    seen = []
    for side in sides:
        side.clock[0] = START
        manager = side.manager(1, keep_checkpoint_every_n_hours=1)
        for number in range(3):
            side.save(manager, number)
            side.clock[0] += HOUR
        side.clock[0] = START - HOUR
        manager = side.manager(1)
        assert side.seen(manager)["latest"] == "ckpt-3"
        for number in (4, 5):
            manager.checkpoint.save_counter.assign(number - 1)
            side.clock[0] += MINUTE
            side.save(manager, number)
        seen.append(side.seen(manager))
    theirs, ours = seen
    assert ours["checkpoints"] == ours["on disk"] == ["ckpt-2", "ckpt-3", "ckpt-5"]
    assert theirs["checkpoints"] == ["ckpt-5"]
    assert theirs["on disk"] == ["ckpt-2", "ckpt-3", "ckpt-5"]


def test_no_number_is_used_twice(sides) -> None:
    """TensorFlow counts on from ``save_counter``, and after a restart without a restore from 1."""
    numbers = []
    for side in sides:
        manager = side.manager()
        first = [side.save(manager, 1, checkpoint_number=10), side.save(manager, 2)]
        numbers.append((*first, side.save(side.manager(), 3)))
    assert numbers == [("ckpt-10", "ckpt-2", "ckpt-1"), ("ckpt-10", "ckpt-11", "ckpt-12")]


def test_no_number_is_below_an_existing_one(sides) -> None:
    """In TensorFlow the file `checkpoint` says which was saved last."""
    plain, ours = (side.manager() for side in sides)
    for side, manager in zip(sides, (plain, ours), strict=True):
        side.save(manager, 1, checkpoint_number=700)
    assert sides[0].save(plain, 2, checkpoint_number=600) == "ckpt-600"
    with pytest.raises(tfckpt.SaveError, match="ckpt-700 exists"):
        sides[1].save(ours, 2, checkpoint_number=600)


def test_checkpoints_of_another_name_are_not_continued_and_named(sides, caplog) -> None:
    """TensorFlow takes the newest, whatever its name."""
    found = []
    for side in sides:
        side.save(side.manager(checkpoint_name="old"), 7)
        side.value.assign(0)
        found.append((name(side.manager().restore_or_initialize()), int(side.value)))
    assert found == [("old-1", 7), (None, 0)]
    assert "holds 'old-1'" in caplog.text


def save(manager, value: tf.Variable, numbers: range) -> None:
    for number in numbers:
        value.assign(number)
        manager.save()


def test_plain_tensorflow_opens_our_directory(tmp_path) -> None:
    directory, value = str(tmp_path / "run"), tf.Variable(0)
    ours = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), directory, max_to_keep=2)
    save(ours, value, range(1, 4))
    assert tf.train.latest_checkpoint(directory) == ours.latest_checkpoint
    other = tf.Variable(0)
    theirs = tf.train.CheckpointManager(tf.train.Checkpoint(value=other), directory, 2)
    assert theirs.checkpoints == ours.checkpoints
    assert theirs.restore_or_initialize() == ours.latest_checkpoint
    assert other.numpy() == 3
    assert theirs.save().endswith("ckpt-4")


def test_we_open_the_directory_of_plain_tensorflow_and_delete_nothing(tmp_path) -> None:
    directory, value = str(tmp_path / "run"), tf.Variable(0)
    theirs = tf.train.CheckpointManager(tf.train.Checkpoint(value=value), directory, None)
    save(theirs, value, range(1, 4))
    value.assign(0)
    ours = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), directory, max_to_keep=1)
    assert ours.checkpoints == theirs.checkpoints
    assert ours.restore_or_initialize() == theirs.latest_checkpoint
    assert value.numpy() == 3
    save(ours, value, range(4, 5))
    assert [path[-6:] for path in ours.checkpoints] == ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4"]
    assert tf.train.latest_checkpoint(directory) == ours.latest_checkpoint
