"""What TensorFlow's CheckpointManager does, ours does too, but for what differs on purpose."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.sides import ASYNC, HOUR, MINUTE, START, Side, name

import tfckpt


def numbered(side: Side, kind: Callable[[int], Any]) -> list[Any]:
    manager, saved = side.manager(2), []
    for count, number in enumerate((4, 8)):
        side.clock[0] += MINUTE
        saved.append(side.save(manager, count, checkpoint_number=kind(number)))
    return [saved, side.seen(manager)]


def started(side: Side, before: int, init: int | None) -> list[Any]:
    first = side.manager()
    for number in range(before):
        side.save(first, number + 1)
    side.value.assign(-1)
    init_fn = None if init is None else (lambda: side.value.assign(init))
    manager = side.manager(init_fn=init_fn)
    return [(name(manager.restore_or_initialize()), int(side.value)), side.seen(manager)]


def moved(side: Side) -> Any:
    manager = side.manager()
    side.save(manager, 1)
    side.save(manager, 2)
    side.directory = side.directory.rename(side.directory.with_name(f"{side.directory.name}-new"))
    side.value.assign(0)
    manager = side.manager()
    found = name(manager.restore_or_initialize()), int(side.value)
    return [(*found, side.save(manager, 3)), side.seen(manager)]


def named(side: Side, kind: Callable[[str], Any]) -> Any:
    """Paths are spelt as the directory is."""
    side.directory.mkdir()
    os.chdir(side.directory)
    manager = side.manager(directory=kind("run"), checkpoint_name="model.v1")
    paths = [manager.save() for _ in range(2)]
    again = side.manager(directory=kind("run"), checkpoint_name="model.v1")
    assert os.fspath(manager.directory) == "run"
    assert side.value is manager.checkpoint.value
    return paths, again.checkpoints, again.latest_checkpoint, manager.checkpoint_interval


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


def refused(side: Side, wrong: dict[str, int]) -> Any:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        side.manager(**wrong)
    return [side.directory.exists()]


def called_back(side: Side, in_background: bool) -> Any:
    options = tf.train.CheckpointOptions(enable_async=in_background)
    manager, seen = side.manager(1), []
    options.experimental_write_callbacks = [
        lambda path: seen.append((name(path), side.stored(path))),
        lambda: seen.append("no argument"),
    ]
    for number in (1, 2):
        side.save(manager, number, options=options)
        manager.sync()
    return seen, len(options.experimental_write_callbacks), side.seen(manager)


def in_shards(side: Side, options: dict[str, Any]) -> Any:
    side.value = tf.Variable(tf.range(1000))
    side.manager().save(options=tf.train.CheckpointOptions(**options))
    restored = tf.Variable(tf.zeros(1000, tf.int32))
    tf.train.Checkpoint(value=restored).read(str(side.directory / "ckpt-1")).expect_partial()
    np.testing.assert_array_equal(restored, range(1000))
    found = sorted(path.name for path in side.directory.glob("*.data-*"))
    return [len(found) > 2, found]


def in_the_background(side: Side, options: Any) -> Any:
    """A save is of the moment."""
    manager = side.manager(2, **({"enable_async": True} if options is None else {}))
    paths = []
    for number in (1, 2, 3):
        side.value.assign(number)
        paths.append(name(manager.save(options=options)))
        side.value.assign(-number)
    manager.sync()
    return [(paths, [side.stored(path) for path in manager.checkpoints]), side.seen(manager)]


CALLED = [("ckpt-1", 1), "no argument", ("ckpt-2", 2), "no argument"]
SHARDS = {"experimental_sharding_callback": tf.train.experimental.MaxShardSizePolicy(1500)}
IN_BACKGROUND = (["ckpt-1", "ckpt-2", "ckpt-3"], [2, 3])
# What is done on each side, and what it comes to first; the whole is the same on both.
SCENARIOS: list[tuple[Any, ...]] = [
    *((numbered, kind, ["ckpt-4", "ckpt-8"]) for kind in (int, np.int64, tf.constant, tf.Variable)),
    (started, 0, None, (None, -1)),
    (started, 0, 42, (None, 42)),
    (started, 3, 42, ("ckpt-3", 3)),
    (moved, ("ckpt-2", 2, "ckpt-3")),
    *((named, kind, ["run/model.v1-1", "run/model.v1-2"]) for kind in (str, Path)),
    (at_steps, [(step, True) for step in range(9)], None, 3),
    (at_steps, [(step, True) for step in range(9)], 2, 3),
    (at_steps, [(step, False) for step in (1, 1, 2, 2, 3)], 0, 3),
    (at_steps, [(4, True), (5, True), (5, False), (7, True), (8, True)], None, 3),
    (at_steps, [(9, True), (3, True), (3, False), (4, True), (6, True)], 2, 3),
    *((refused, {"max_to_keep": number}, False) for number in (0, -3)),
    (refused, {"checkpoint_interval": 5}, False),
    *((called_back, in_background, CALLED) for in_background in (False, True)),
    (in_shards, {"experimental_io_device": "/job:localhost"}, False),
    (in_shards, SHARDS, True),
    (in_the_background, ASYNC, IN_BACKGROUND),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_both_do_the_same(sides, monkeypatch, tmp_path, scenario) -> None:
    monkeypatch.chdir(tmp_path)
    do, *arguments, expected = scenario
    results = []
    for side in sides:
        side.clock[0] = START
        results.append(do(side, *arguments))
    theirs, ours = results
    assert ours == theirs
    assert ours[0] == expected


def test_enable_async_is_an_argument_too(sides) -> None:
    assert in_the_background(sides[1], None)[0] == IN_BACKGROUND


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


def test_checkpoints_of_another_name_are_not_continued_and_named(sides, caplog) -> None:
    """TensorFlow takes the newest, whatever its name."""
    found = []
    for side in sides:
        side.save(side.manager(checkpoint_name="old"), 7)
        side.value.assign(0)
        found.append((name(side.manager().restore_or_initialize()), int(side.value)))
    assert found == [("old-1", 7), (None, 0)]
    assert "no checkpoint named 'ckpt' to restore\n" in caplog.text
    assert f"{sides[1].directory} holds 'old-1'" in caplog.text
    assert "`checkpoint_name: old`" in caplog.text


def save(manager, value: tf.Variable, numbers: range) -> None:
    for number in numbers:
        value.assign(number)
        manager.save()


@pytest.mark.parametrize("back", [0, 60], ids=["", "the clock is set back"])
def test_plain_tensorflow_opens_our_directory(back, tmp_path, monkeypatch) -> None:
    directory, value = str(tmp_path / "run"), tf.Variable(0)
    ours = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), directory, max_to_keep=2)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - back)
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
