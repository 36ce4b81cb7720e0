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
