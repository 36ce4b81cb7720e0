"""A run by config: seeds, iterators and counters, and a policy that leaves them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


def test_seeds_come_back_exactly(tmp_path) -> None:
    keras = pytest.importorskip("keras")

    def build(seed: int) -> Any:
        return keras.Sequential(
            [keras.Input((4,)), keras.layers.Dropout(0.5, seed=seed), keras.layers.Dense(2)]
        )

    source, target = build(1), build(2)
    source(X, training=True)
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    expected = [source(X, training=True).numpy() for _ in range(3)]
    tfckpt.restore({"version": 1, "restore": {"path": path}}, model=target)
    np.testing.assert_equal([target(X, training=True).numpy() for _ in range(3)], expected)


def test_iterators_come_back_exactly(tmp_path) -> None:
    data = tf.data.Dataset.range(40).shuffle(10, seed=3).batch(4)
    iterator, step = iter(data), tf.Variable(0)
    for _ in range(3):
        next(iterator)
    run = tfckpt.from_config(
        {"version": 1, "manager": {"directory": str(tmp_path)}}, iterator=iterator, step=step
    )
    run.save()
    expected = [batch.numpy().tolist() for batch in iterator]
    again = iter(data)
    next(again)
    tfckpt.restore(
        {"version": 1, "restore": {"directory": str(tmp_path)}}, iterator=again, step=step
    )
    assert [batch.numpy().tolist() for batch in again] == expected


def test_training_state_leaves_out_what_it_does_not_list(tmp_path) -> None:
    iterator, step = iter(tf.data.Dataset.range(9)), tf.Variable(5)
    next(iterator)
    manager = {"directory": str(tmp_path)}
    run = tfckpt.from_config({"version": 1, "manager": manager}, iterator=iterator, step=step)
    run.save(epoch=3)
    policy = {"training_state": []}
    other, step = iter(tf.data.Dataset.range(9)), tf.Variable(0)
    later = tfckpt.from_config(
        {"version": 1, "restore": {"directory": str(tmp_path), "policy": policy}},
        iterator=other,
        step=step,
    )
    report = later.restore()
    assert next(other).numpy() == 0
    assert step.numpy() == 5
    assert (report.epoch, later.epoch) == (3, 0)


@pytest.mark.parametrize("by", ["run", "checkpoint"])
def test_an_iterator_that_does_not_fit_leaves_the_others_where_they_are(tmp_path, by) -> None:
    def begin(second: Any) -> dict[str, Any]:
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        first = iter(tf.data.Dataset.range(9).shuffle(4, seed=1))
        return {"a": first, "b": iter(second), "table": table, "step": tf.Variable(0)}

    data = tf.data.Dataset.range(9)
    saved = begin(data)
    saved["step"].assign(2)
    saved["table"].insert(tf.constant(["a"]), tf.constant([1], tf.int64))
    for _ in range(2):
        next(saved["a"]), next(saved["b"])
    path = tfckpt.Checkpoint(**saved).save(str(tmp_path / "ckpt"))
    objects = begin(data.shuffle(3, seed=1).batch(2))
    objects["table"].insert(tf.constant(["b"]), tf.constant([7], tf.int64))
    expected = begin(data.shuffle(3, seed=1).batch(2))
    for name in "ab":
        next(objects[name]), next(expected[name])
    run = tfckpt.from_config({"version": 1, "restore": {"path": path}}, **objects)
    checkpoint = tfckpt.Checkpoint(**objects)
    with pytest.raises((tfckpt.RestoreError, tf.errors.NotFoundError), match="iterator"):
        run.restore() if by == "run" else checkpoint.restore(path)
    assert objects["step"].numpy() == 0
    assert objects["table"].lookup(tf.constant(["a", "b"])).numpy().tolist() == [-1, 7]
    for name in "ab":
        left = [[value.numpy().tolist() for value in each[name]] for each in (objects, expected)]
        assert left[0] == left[1]
    assert (run.report, run.epoch) == (None, 0)


def test_a_step_that_is_no_number_is_refused_before_anything_is_assigned(tmp_path) -> None:
    step, value = tf.Variable(float("nan")), tf.Variable(1.0)
    path = tfckpt.Checkpoint(step=step, value=value).save(str(tmp_path / "ckpt"))
    step, value = tf.Variable(3.0), tf.Variable(2.0)
    run = tfckpt.from_config({"version": 1, "restore": {"path": path}}, step=step, value=value)
    with pytest.raises(tfckpt.RestoreError, match="`step` is not the number of a training step"):
        run.restore()
    assert (step.numpy(), value.numpy(), run.report) == (3.0, 2.0, None)
