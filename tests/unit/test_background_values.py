"""A save in the background holds the values of the moment it began, whatever comes to them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.live import checkpoint as of_checkpoint
from tfckpt.live import save
from tfckpt.stored.io.files import LocalOutput

if TYPE_CHECKING:
    from collections.abc import Callable

ASYNC = tf.train.CheckpointOptions(enable_async=True)


def words(keras: Any, *, jit_compile: bool) -> Any:
    """An embedding, whose gradients are sparse, and a layer, trained for a step by Adam."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            layers.Embedding(50, 4, name="words"),
            layers.Flatten(name="flat"),
            layers.Dense(2, name="out"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=jit_compile)
    train(model)
    return model


def train(model: Any) -> None:
    model.train_on_batch(np.array([[1, 2, 3], [4, 5, 1]], "int32"), np.ones((2, 2), "float32"))


def values(model: Any) -> list[bytes]:
    every = (*model.variables, *model.optimizer.variables)
    return [np.asarray(variable).tobytes() for variable in every]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_training_goes_on_while_the_values_of_the_moment_are_written(
    flavour, jit_compile, gate, tmp_path
) -> None:
    model = words(flavour, jit_compile=jit_compile)
    checkpoint = tfckpt.Checkpoint(model=model, optimizer=model.optimizer)
    saved = []
    for _ in range(3):
        gate.close()
        before = values(model)
        path = checkpoint.save(tmp_path / "ckpt", options=ASYNC)
        for _ in range(3):
            train(model)
        trained = values(model)
        gate.open()
        checkpoint.sync()
        saved.append((path, before, trained))
    for path, before, trained in saved:
        checkpoint.restore(path).assert_consumed()
        assert values(model) == before
        assert [old == new for old, new in zip(before, trained, strict=True)].count(False) >= 9


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
