"""What TensorFlow's CheckpointManager does well, ours does too.

A scenario is a function of a ``Side``. It runs twice, in a directory each: with TensorFlow's two
classes, and with ours. What it returns the first time is what is expected of the second. What is
different on purpose is in ``test_manager_differences.py``.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.sides import ASYNC, HOUR, MINUTE, START, Side, name

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


# What is deleted


def saved_with_restarts(side: Side, keep: Sequence[int | None], restarts: set[int]) -> list[Any]:
    limits = iter(keep)
    manager = side.manager(next(limits))
    history = []
    for number in range(1, 8):
        side.clock[0] += MINUTE
        history.append((side.save(manager, number), side.seen(manager)))
        if number in restarts:
            manager = side.manager(next(limits))
            history.append((name(manager.restore_or_initialize()), int(side.value)))
    return history


@pytest.mark.parametrize("max_to_keep", [1, 2, 3, None])
def test_the_newest_are_kept(alike, max_to_keep) -> None:
    history = alike(saved_with_restarts, [max_to_keep], set())
    assert len(history[-1][1]["on disk"]) == min(7, max_to_keep or 7)


@pytest.mark.parametrize(
    "keep", [(2, 2, 2), (5, 2, 1), (1, 3, 3), (None, 2, 2), (2, None, 2)], ids=str
)
def test_the_newest_are_kept_over_restarts(alike, keep) -> None:
    alike(saved_with_restarts, keep, {3, 5})


def saved_at(side: Side, keep: int, hours: float, minutes: Sequence[float], end: int) -> list[Any]:
    manager = side.manager(keep, keep_checkpoint_every_n_hours=hours)
    history = []
    for number, passed in enumerate(minutes):
        side.clock[0] += passed * MINUTE
        if number == end:
            manager = side.manager(keep, keep_checkpoint_every_n_hours=hours)
            manager.restore_or_initialize()
        side.save(manager, number)
        state = tf.train.get_checkpoint_state(side.directory)
        history.append((side.on_disk(), state.all_model_checkpoint_timestamps[-1]))
    return history


@pytest.mark.parametrize("restart", [0, 5])
@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize(
    ("hours", "minutes"),
    [
        (1, [30] * 10),
        (1, [61] * 8),
        (0.5, [5, 5, 50, 5, 5, 50, 5, 29, 1, 1]),
        (2, [1, 1, 1, 300, 1, 1, 1, 300, 1]),
        (24, [60] * 8),
    ],
)
def test_one_in_so_many_hours_is_kept_for_good(alike, hours, minutes, keep, restart) -> None:
    alike(saved_at, keep, hours, minutes, restart)


def clock_goes_back(side: Side, keep: int) -> list[Any]:
    manager = side.manager(keep)
    history = []
    for number in range(6):
        side.clock[0] += -1000 * HOUR if number == 3 else MINUTE
        side.save(manager, number)
        history.append(side.seen(manager))
    return history


def test_a_clock_set_back_does_not_change_the_order(alike) -> None:
    assert alike(clock_goes_back, 2)[-1]["checkpoints"] == ["ckpt-5", "ckpt-6"]


def somebody_saved_before(side: Side) -> list[Any]:
    plain = tf.train.Checkpoint(value=side.value, step=side.step)
    for number in (1, 2):
        side.value.assign(number)
        plain.save(str(side.directory / "ckpt"))
    side.clock[0] += MINUTE
    manager = side.manager(2)
    history = [name(manager.restore_or_initialize()), int(side.value)]
    for number in (3, 4, 5):
        side.clock[0] += MINUTE
        history.append((side.save(manager, number), side.on_disk()))
    return history


def test_what_was_saved_without_a_manager_stays(alike) -> None:
    assert alike(somebody_saved_before)[-1] == ("ckpt-5", ["ckpt-1", "ckpt-2", "ckpt-4", "ckpt-5"])


# Numbers given


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


@pytest.mark.parametrize(
    "numbers",
    [(10, 20, 30, 40), (0, 1, 2, 3, 4), (5, 5, 6, 6, 6), (1, 100, 200, 200, 1000), (7, 7, 7, 8, 9)],
    ids=str,
)
def test_the_order_is_that_of_the_numbers(alike, numbers) -> None:
    history = alike(numbered, int, numbers)
    assert history[-1][1]["latest"] == f"ckpt-{numbers[-1]}"


@pytest.mark.parametrize("kind", [int, np.int64, tf.constant, tf.Variable])
def test_a_number_may_be_a_tensor_or_a_variable(alike, kind) -> None:
    assert [saved for saved, _ in alike(numbered, kind, (4, 8))] == ["ckpt-4", "ckpt-8"]


# The first start, and the next


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


# Intervals


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


# Options


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
