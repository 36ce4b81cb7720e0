"""Optimizer state in TF1's checkpoints: training goes on from it as TF1 itself would have.

Into the same optimizers of ``tf.compat.v1.train``, run eagerly, and into Keras 3's where theirs are
the same. TF1's momentum is not Keras's, which has the rate in it; that is refused.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.graphs import dense, v1

import tfckpt

train = v1.train
V1 = {
    "adam": lambda: train.AdamOptimizer(0.05),
    "momentum": lambda: train.MomentumOptimizer(0.05, 0.9),
    "rmsprop": lambda: train.RMSPropOptimizer(0.05, momentum=0.5),
    "rmsprop_centered": lambda: train.RMSPropOptimizer(0.05, momentum=0.5, centered=True),
    "adagrad": lambda: train.AdagradOptimizer(0.05),
    "adadelta": lambda: train.AdadeltaOptimizer(0.5),
    "ftrl": lambda: train.FtrlOptimizer(0.05),
    "proximal_adagrad": lambda: train.ProximalAdagradOptimizer(0.05),
}
KERAS = {
    "adam": lambda: keras.optimizers.Adam(0.05, epsilon=1e-8),
    "adagrad": lambda: keras.optimizers.Adagrad(0.05, epsilon=0.0),
    "adadelta": lambda: keras.optimizers.Adadelta(0.5, epsilon=1e-8),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05),
}
X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
BEFORE, AFTER = 3, 4


def written(path: str, make: Any) -> list[Any]:
    """Train, save, train on: the weights at the end."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        loss = tf.reduce_mean(tf.square(dense(tf.constant(X), 2, "out") - 1.0))
        step = make().minimize(loss, train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        for _ in range(BEFORE):
            session.run(step)
        train.Saver().save(session, path, write_meta_graph=False)
        for _ in range(AFTER):
            session.run(step)
        return session.run(v1.trainable_variables())


def restore(path: str, **objects: Any) -> Any:
    policy = {"optimizer": {"hyperparameters": "config"}, "assert": "none"}
    return tfckpt.restore({"version": 1, "restore": {"path": path, "policy": policy}}, **objects)


@pytest.mark.parametrize("name", V1)
def test_the_same_optimizer_goes_on(tmp_path, name) -> None:
    expected = written(str(tmp_path / "ckpt"), V1[name])
    model = tf_keras.Sequential([tf_keras.Input((3,)), tf_keras.layers.Dense(2, name="out")])
    optimizer = V1[name]()

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(X) - 1.0))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    step()  # which makes the slots
    report = restore(str(tmp_path / "ckpt"), model=model, optimizer=optimizer)
    slots = [step for step in report.plan.assignments if step.live.slot]
    assert len(slots) == 2 * len(optimizer.get_slot_names())
    for _ in range(AFTER):
        step()
    for variable, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", KERAS)
def test_keras_3s_optimizer_goes_on(tmp_path, name) -> None:
    expected = written(str(tmp_path / "ckpt"), V1[name])
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    optimizer = KERAS[name]()
    optimizer.build(model.trainable_variables)
    restore(str(tmp_path / "ckpt"), model=model, optimizer=optimizer)
    assert int(optimizer.iterations.numpy()) == BEFORE
    for _ in range(AFTER):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(X) - 1.0))
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        optimizer.apply(gradients)
    for variable, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("writer", ["saver", "object"])
def test_tf1s_momentum_is_refused_by_keras(tmp_path, writer) -> None:
    path = str(tmp_path / "ckpt")
    if writer == "saver":
        written(path, V1["momentum"])
    else:
        other = tf_keras.Sequential([tf_keras.Input((3,)), tf_keras.layers.Dense(2, name="out")])
        momentum = V1["momentum"]()
        zeros = [tf.zeros_like(v) for v in other.trainable_variables]
        momentum.apply_gradients(zip(zeros, other.trainable_variables, strict=True))
        path = tf.train.Checkpoint(model=other, optimizer=momentum).write(path)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)
    with pytest.raises(tfckpt.RefusedError, match="'momentum' in the checkpoint"):
        restore(path, model=model, optimizer=optimizer)
