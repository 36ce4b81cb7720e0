"""Saves in the background, and several threads that save and restore at once."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.live import checkpoint as of_checkpoint
from tfckpt.live import save
from tfckpt.live.turns import Background
from tfckpt.stored.commits import record_file
from tfckpt.stored.io.files import LocalFiles, LocalOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


def test_nothing_is_listed_before_it_is_committed(manager, gate) -> None:
    first = manager()
    path = first.save()
    assert (first.checkpoints, first.latest_checkpoint) == ([], None)
    gate.open()
    first.sync()
    assert (first.checkpoints, first.latest_checkpoint) == ([path], path)
    assert record_file.read(path) is not None


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


ASYNC = tf.train.CheckpointOptions(enable_async=True)


def values(model: Any) -> list[bytes]:
    every = (*model.variables, *model.optimizer.variables)
    return [np.asarray(variable).tobytes() for variable in every]


def rows(number: float) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.fill((2, 4), number), tf.constant([1, 3]))


UPDATES: dict[str, Callable[[tf.Variable, float], object]] = {
    "assign": lambda v, number: v.assign(tf.fill((8, 4), number)),
    "assign_add": lambda v, number: v.assign_add(tf.fill((8, 4), number)),
    "slice": lambda v, number: v[1:3].assign(tf.fill((2, 4), number)),
    "scatter_update": lambda v, number: v.scatter_update(rows(number)),
    "scatter_add": lambda v, number: v.scatter_add(rows(number)),
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
@pytest.mark.parametrize("update", UPDATES)
def test_no_kind_of_update_reaches_what_is_being_written(update, earlier, gate, tmp_path) -> None:
    value = tf.Variable(tf.reshape(tf.range(1.0, 33.0), (8, 4)))
    change = UPDATES[update]
    if earlier:  # from its first sparse update on, a variable is read by copying
        change(value, -1.0)
    before = value.numpy().copy()
    checkpoint = tfckpt.Checkpoint(value=value)
    path = checkpoint.save(tmp_path / "ckpt", options=ASYNC)
    change(value, -2.0)
    changed = value.numpy().copy()
    gate.open()
    checkpoint.sync()
    stored = tf.train.load_checkpoint(path).get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE")
    assert stored.tobytes() == before.tobytes() != changed.tobytes()


def test_what_is_no_variable_is_of_the_moment_as_well(gate, tmp_path) -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert("a", 1)
    iterator = iter(tf.data.Dataset.range(100))
    generator = tf.random.Generator.from_seed(5)
    next(iterator)
    checkpoint = tfckpt.Checkpoint(table=table, iterator=iterator, generator=generator)
    path = checkpoint.save(tmp_path / "ckpt", options=ASYNC)
    drawn = generator.normal((3,)).numpy()
    assert int(next(iterator)) == 1
    table.insert("a", 2)
    gate.open()
    checkpoint.sync()
    checkpoint.restore(path)
    assert int(table.lookup(tf.constant("a"))) == 1
    assert int(next(iterator)) == 1
    np.testing.assert_array_equal(generator.normal((3,)), drawn)


@pytest.mark.parametrize("synchronization", ["ON_READ", "ON_WRITE"])
@pytest.mark.parametrize("aggregation", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_a_variable_of_a_strategy_is_of_the_moment_as_well(
    synchronization, aggregation, gate, tmp_path
) -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        value = tf.Variable(
            [1.0, 2.0],
            synchronization=tf.VariableSynchronization[synchronization],
            aggregation=tf.VariableAggregation[aggregation],
        )
    checkpoint = tfckpt.Checkpoint(value=value)
    path = checkpoint.save(tmp_path / "ckpt", options=ASYNC)
    value.assign(tf.constant([3.0, 4.0]))
    gate.open()
    checkpoint.sync()
    stored = tf.train.load_checkpoint(path).get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE")
    np.testing.assert_array_equal(stored, [1.0, 2.0])


class Slow:
    """A disk that takes its time over every piece, and says how many it has got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pieces = 0
        genuine = LocalOutput.write

        def write(output: LocalOutput, data: Any) -> None:
            self.pieces += 1
            time.sleep(0.002)
            genuine(output, data)

        monkeypatch.setattr(LocalOutput, "write", write)


@pytest.mark.parametrize("files", [1, 2])
def test_saves_asked_for_faster_than_the_disk_takes_them(tmp_path, monkeypatch, files) -> None:
    slow = Slow(monkeypatch)
    monkeypatch.setattr(save, "files_for", lambda _: files)
    monkeypatch.setattr(of_checkpoint, "BACKGROUND", 1 << 12)
    values = [tf.Variable(tf.fill((8000,), float(number))) for number in range(8)]
    checkpoint = tfckpt.Checkpoint(values=values)
    saved, steps = [], 0
    for _ in range(4):
        before = [value.numpy().tobytes() for value in values]
        saved.append((checkpoint.save(tmp_path / "ckpt", options=ASYNC), before))
        while checkpoint._background.busy:
            for value in values:
                value.assign_add(tf.ones_like(value))
                value.scatter_update(tf.IndexedSlices(tf.constant([-1.0]), tf.constant([steps])))
            steps += 1
    checkpoint.sync()
    assert slow.pieces > 4 * 50
    assert steps > 4
    for path, before in saved:
        reader = tf.train.load_checkpoint(path)
        keys = [f"values/{number}/.ATTRIBUTES/VARIABLE_VALUE" for number in range(8)]
        assert [reader.get_tensor(key).tobytes() for key in keys] == before


@pytest.mark.parametrize(
    ("optimizer", "precision", "steps", "jit_compile"),
    [
        ("adam", "mixed_float16", 2, False),
        pytest.param("sgd", "float32", 1, True, marks=pytest.mark.long),
        pytest.param("adam", "mixed_float16", 2, True, marks=pytest.mark.long),
        pytest.param("adam", "mixed_bfloat16", 3, False, marks=pytest.mark.long),
    ],
)
def test_fit_goes_on_while_the_values_of_the_moment_are_written(
    flavour, optimizer, precision, steps, jit_compile, gate, tmp_path
) -> None:
    policy = (
        flavour.mixed_precision.global_policy()
        if hasattr(flavour.mixed_precision, "global_policy")
        else flavour.mixed_precision.dtype_policy()
    )
    flavour.mixed_precision.set_global_policy(precision)
    try:
        layers = flavour.layers
        model = flavour.Sequential(
            [flavour.Input((4,)), layers.Dense(8, name="a"), layers.Dense(2, name="b")]
        )
        model.compile(optimizer, "mse", steps_per_execution=steps, jit_compile=jit_compile)
        x, y = np.ones((12, 4), "float32"), np.zeros((12, 2), "float32")
        model.fit(x, y, batch_size=2, verbose=0)
        checkpoint = tfckpt.Checkpoint(model=model, optimizer=model.optimizer)
        before = values(model)
        path = checkpoint.save(tmp_path / "ckpt", options=ASYNC)
        model.fit(x, y, batch_size=2, verbose=0)
        trained = values(model)
        gate.open()
        checkpoint.sync()
    finally:
        flavour.mixed_precision.set_global_policy(policy)
    checkpoint.restore(path).assert_consumed()
    assert values(model) == before
    assert sum(old != new for old, new in zip(before, trained, strict=True)) >= 5
