"""Saves in the background, and several threads that save and restore at once.

What a thread does in the middle of another's work is decided here, and not by their speed: it is
begun there, and the other goes on once it has either come to wait for its turn or is through.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.gate import PATIENCE
from zoo.struck import full_disk, struck

import tfckpt
from tfckpt.live import turns
from tfckpt.live.apply import Undo
from tfckpt.live.graph import Walk
from tfckpt.stored.commits import record_file

ASYNC = tf.train.CheckpointOptions(enable_async=True)


@pytest.fixture
def value() -> tf.Variable:
    return tf.Variable(0)


@pytest.fixture
def manager(value, tmp_path):
    """``manager(if_busy="skip")``: one that saves in the background."""

    def build(**more: Any) -> Any:
        checkpoint = tfckpt.Checkpoint(value=value)
        return tfckpt.CheckpointManager(checkpoint, tmp_path, None, enable_async=True, **more)

    return build


def stored(path: str, key: str = "value") -> Any:
    return tf.train.load_checkpoint(path).get_tensor(f"{key}/.ATTRIBUTES/VARIABLE_VALUE")


def listed(directory) -> list[str]:
    return sorted(path.name for path in directory.glob("[!.]*"))


def test_the_next_save_raises_the_failure_once_and_the_retry_saves(
    manager, value, tmp_path
) -> None:
    step = tf.Variable(5)
    first = manager(step_counter=step, checkpoint_interval=3, last_checkpoint_step=1)
    with struck("rename", full_disk()):
        first.save()
        step.assign(8)
        with pytest.raises(tfckpt.SaveError, match="No space left"):
            first.save()
        assert (int(first.checkpoint.save_counter), listed(tmp_path)) == (0, [])
        value.assign(3)
        step.assign(4)  # three after the last one that succeeded
        first.save()
        with pytest.raises(tfckpt.SaveError, match="No space left"):
            first.sync()
        first.checkpoint.sync()
    path = first.save()
    first.sync()
    assert (first.checkpoints, path[-6:], stored(path)) == ([path], "ckpt-1", 3)
    step.assign(6)
    assert first.save() is None
    assert int(first.checkpoint.save_counter) == 1


def test_skip_makes_no_save_while_one_is_under_way_and_lists_none(manager, value, gate) -> None:
    first = manager(if_busy="skip")
    value.assign(1)
    path = first.save()
    assert (first.checkpoints, first.latest_checkpoint) == ([], None)
    value.assign(2)
    assert first.save() is None
    assert int(first.checkpoint.save_counter) == 1
    gate.open()
    first.sync()
    assert (first.checkpoints, first.latest_checkpoint) == ([path], path)
    assert record_file.read(path) is not None
    second = first.save()
    first.sync()
    assert [stored(path) for path in first.checkpoints] == [1, 2]
    assert second == first.latest_checkpoint


@pytest.mark.parametrize("how", ["restore_or_initialize", "read"])
def test_a_restore_sees_the_one_that_is_under_way(manager, value, how, gate, monkeypatch) -> None:
    genuine = turns.Background.failure

    def failure(self: turns.Background) -> BaseException | None:
        gate.open()  # as soon as somebody waits for the save behind it
        return genuine(self)

    monkeypatch.setattr(turns.Background, "failure", failure)
    first = manager(init_fn=lambda: pytest.fail("there is one"))
    value.assign(7)
    path = first.save()
    value.assign(0)
    if how == "read":
        first.checkpoint.read(path).assert_existing_objects_matched()
    else:
        assert first.restore_or_initialize() == path
    assert value.numpy() == 7
    first.sync()


SCRIPT = """
import os, sys
import pytest
import tensorflow as tf
import tfckpt
from zoo.gate import built_in
from zoo.struck import full_disk, struck

gate, managers = built_in(pytest.MonkeyPatch()), []
full = struck("rename", full_disk(), lambda _, target: "/full/" in target)
full.__enter__()
for name in ("whole", "full"):
    checkpoint = tfckpt.Checkpoint(value=tf.Variable(tf.range(5)))
    managers.append(tfckpt.CheckpointManager(checkpoint, name, None, enable_async=True))
    managers[-1].save()
if not (child := os.fork()):
    sys.exit(3)
print("the child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
gate.open()
"""


def test_the_end_of_a_script_waits_for_its_saves_and_that_of_its_child_does_not(tmp_path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    path = str(tmp_path / "whole" / "ckpt-1")
    assert (done.returncode, done.stdout) == (0, "the child ended with 3\n"), done.stderr
    assert record_file.read(path) is not None
    np.testing.assert_array_equal(stored(path), range(5))
    ends = ("data-00000-of-00001", "index", "tfckpt.json")
    assert listed(tmp_path / "whole") == ["checkpoint", *(f"ckpt-1.{end}" for end in ends)]
    assert "the last background save failed" in done.stderr
    assert "No space left" in done.stderr
    assert listed(tmp_path / "full") == []


# What changes while it is being written


def rows(number: float) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.fill((2, 4), number), tf.constant([1, 3]))


UPDATES = {
    "assign": lambda v, number: v.assign(tf.fill((8, 4), number)),
    "slice": lambda v, number: v[1:3].assign(tf.fill((2, 4), number)),
    "scatter_update": lambda v, number: v.scatter_update(rows(number)),
    "scatter_nd_update": lambda v, number: v.scatter_nd_update([[1]], tf.fill((1, 4), number)),
    "batch_scatter_update": lambda v, number: v.batch_scatter_update(
        tf.IndexedSlices(tf.fill((8, 1), number), tf.zeros((8, 1), tf.int32))
    ),
    "dense gradient": lambda v, number: tf.raw_ops.ResourceApplyGradientDescent(
        var=v.handle, alpha=0.5, delta=tf.fill((8, 4), number)
    ),
    "sparse gradient": lambda v, number: tf.raw_ops.ResourceSparseApplyAdagrad(
        var=v.handle,
        accum=tf.Variable(tf.ones_like(v)).handle,
        lr=0.5,
        grad=rows(number).values,
        indices=rows(number).indices,
    ),
}


@pytest.mark.parametrize("earlier", [False, True], ids=["first", "again"])
def test_nothing_reaches_what_is_being_written(earlier, gate, tmp_path) -> None:
    variables = {each: tf.Variable(tf.reshape(tf.range(1.0, 33.0), (8, 4))) for each in UPDATES}
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    for synchronization, aggregation in (("ON_READ", "SUM"), ("ON_WRITE", "MEAN")):
        with strategy.scope():
            variables[synchronization] = tf.Variable(
                tf.ones((8, 4)),
                synchronization=tf.VariableSynchronization[synchronization],
                aggregation=tf.VariableAggregation[aggregation],
            )
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    iterator, generator = iter(tf.data.Dataset.range(100)), tf.random.Generator.from_seed(5)
    others = {"table": table, "iterator": iterator, "generator": generator}

    def change(number: float) -> dict[str, bytes]:
        for name, variable in variables.items():
            UPDATES.get(name, UPDATES["assign"])(variable, number)
        table.insert("a", int(number))
        return {name: variable.numpy().tobytes() for name, variable in variables.items()}

    # From its first sparse update on, a variable is read by copying.
    before = change(-1.0) if earlier else {n: v.numpy().tobytes() for n, v in variables.items()}
    checkpoint = tfckpt.Checkpoint(values=variables, **others)
    path = checkpoint.save(tmp_path / "ckpt", options=ASYNC)
    changed, drawn = change(-2.0), generator.normal((3,)).numpy()
    assert int(next(iterator)) == 0
    gate.open()
    checkpoint.sync()
    for name in variables:
        assert stored(path, f"values/{name}").tobytes() == before[name] != changed[name], name
    checkpoint.restore(path)
    assert table.lookup(tf.constant("a")).numpy() == -1
    assert int(next(iterator)) == 0
    np.testing.assert_array_equal(generator.normal((3,)), drawn)


# Several threads, and what comes between


class Other:
    """Another thread, which begins in the middle of what this one does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waits_or_done = threading.Event()
        self._threads = ThreadPoolExecutor(1, initializer=lambda: setattr(local, "other", True))
        self._work = None
        genuine, other, local = turns.Lock.held, self, threading.local()

        @contextlib.contextmanager
        def held(self: turns.Lock):
            if hasattr(local, "other"):
                other._waits_or_done.set()
            with genuine(self):
                yield

        monkeypatch.setattr(turns.Lock, "held", held)

    def begin(self, work) -> None:
        """Once only; returns when it waits, or is through."""
        if self._work is None:
            self._work = self._threads.submit(work)
            self._work.add_done_callback(lambda _: self._waits_or_done.set())
            assert self._waits_or_done.wait(PATIENCE)

    def end(self) -> None:
        assert self._work is not None
        self._work.result(PATIENCE)
        self._threads.shutdown()


def before_second(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, do) -> None:
    """Have this thread do something before each call of a function but the first."""
    genuine, thread, calls = getattr(owner, name), threading.current_thread(), []

    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is thread:
            if calls:
                do()
            calls.append(1)
        return genuine(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def objects(value: float) -> dict[str, Any]:
    """Of two types."""
    return {
        "a": tf.Variable(value),
        "b": tf.Variable([value] * 3),
        "c": tf.Variable(value, dtype=tf.float64),
        "d": [tf.Variable(value), tf.Variable(value, dtype=tf.float64)],
    }


def values(held: dict[str, Any]) -> set[float]:
    return {float(np.mean(each)) for each in tf.nest.flatten(held)}


@pytest.fixture
def saved(tmp_path) -> list[str]:
    """Checkpoints of ones and of twos."""
    names = [str(tmp_path / name) for name in ("ones", "twos")]
    return [tfckpt.Checkpoint(**objects(float(n))).write(path) for n, path in enumerate(names, 1)]


def by_checkpoint(held: dict[str, Any], path: str) -> Any:
    return tfckpt.Checkpoint(**held).read(path)


def by_call(held: dict[str, Any], path: str) -> Any:
    return tfckpt.restore(path, **held)


def write(held: dict[str, Any], path: str) -> Any:
    return tfckpt.Checkpoint(**held).write(path)


ASSIGNS, WALKS = (Undo, "_keep"), (Walk, "_visit")


@pytest.mark.parametrize(
    ("first", "at", "second", "live", "written"),
    [
        (by_call, ASSIGNS, by_checkpoint, 2.0, None),
        (by_checkpoint, ASSIGNS, write, 1.0, 1.0),
        (write, WALKS, by_checkpoint, 1.0, 0.0),
    ],
)
def test_two_threads_save_and_restore_one_after_the_other(
    first, at, second, live, written, saved, tmp_path, monkeypatch
) -> None:
    held, other, new = objects(0.0), Other(monkeypatch), str(tmp_path / "meanwhile")
    paths = iter(saved if written is None else saved[:1])
    source, then = (new if each is write else next(paths) for each in (first, second))
    before_second(monkeypatch, *at, lambda: other.begin(lambda: second(held, then)))
    first(held, source)
    other.end()
    assert values(held) == {live}
    if written is not None:
        by_checkpoint(fresh := objects(5.0), new)
        assert values(fresh) == {written}


@pytest.mark.parametrize(("in_background", "managers"), [(False, 2), (True, 2)])
def test_many_threads_save_by_one_checkpoint(in_background, managers, tmp_path) -> None:
    checkpoint, start = tfckpt.Checkpoint(**objects(1.0)), threading.Barrier(4)
    found = [
        tfckpt.CheckpointManager(checkpoint, tmp_path, 100, enable_async=in_background)
        for _ in range(managers)
    ]

    def save(number: int) -> list[str]:
        start.wait(PATIENCE)
        return [found[number % managers].save() for _ in range(5)]

    with ThreadPoolExecutor(4) as threads:
        paths = [path for each in threads.map(save, range(4)) for path in each]
    checkpoint.sync()
    assert sorted(paths) == sorted(str(tmp_path / f"ckpt-{n}") for n in range(1, 21))
    assert sorted(found[0].checkpoints) == sorted(paths)
    assert int(checkpoint.save_counter) == 20
    for path in paths:
        tfckpt.Checkpoint(**objects(0.0)).restore(path).assert_consumed()


def test_a_callback_in_the_background_is_told_that_it_cannot_save(tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(**objects(1.0))
    again = tf.train.CheckpointOptions(
        experimental_enable_async_checkpoint=True,
        experimental_write_callbacks=[lambda: checkpoint.write(tmp_path / "again")],
    )
    checkpoint.save(tmp_path / "ckpt", again)
    with pytest.raises(tfckpt.SaveError, match="a background save started another save"):
        checkpoint.sync()
    assert not (tmp_path / "again.index").exists()
    fresh = objects(0.0)
    tfckpt.Checkpoint(**fresh).restore(tmp_path / "ckpt-1").assert_consumed()
    assert values(fresh) == {1.0}


@pytest.mark.parametrize("what", ["save", "restore"])
def test_a_signal_handler_cannot_come_between_two_assignments(
    what, saved, tmp_path, monkeypatch
) -> None:
    held = objects(0.0)
    checkpoint = tfckpt.Checkpoint(**held)

    def handler(*_: Any) -> None:
        write(held, str(tmp_path / "mixed")) if what == "save" else by_call(held, saved[1])

    before_second(monkeypatch, *ASSIGNS, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(tfckpt.TfckptError, match="assigning values"):
            checkpoint.read(saved[0])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert values(held) == {0.0}
    assert not (tmp_path / "mixed.index").exists()
    monkeypatch.undo()
    checkpoint.read(saved[0]).assert_existing_objects_matched()
    assert values(held) == {1.0}
