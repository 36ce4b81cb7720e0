"""Train by a loop of one's own, and go on with the very next batch where a run was killed.

``RUN_DIR=/tmp/run python examples/loops/spirals.py`` starts; the same line again resumes. However
often it was killed, the digest at its end is that of a run that went through.
"""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from ending import digest

import tfckpt

STEPS = 60
CONFIG = Path(__file__).resolve().parents[2] / "configs" / "loop.yaml"


def points() -> tf.data.Dataset:
    """Points on two spirals, and which of the two each is on; without end."""
    turns = np.linspace(0.5, 3.5, 200, dtype="float32") * np.pi
    arm = np.stack([np.cos(turns), np.sin(turns)], axis=1) * turns[:, None] / 10
    both, labels = np.concatenate([arm, -arm]), np.repeat([0, 1], len(arm))
    return tf.data.Dataset.from_tensor_slices((both, labels)).shuffle(400).repeat().batch(32)


def main() -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(64, activation="relu", name="hidden"),
            keras.layers.Dropout(0.1, name="dropout"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(2, name="classes"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.01, STEPS))
    optimizer.build(model.trainable_variables)
    step = tf.Variable(0, dtype=tf.int64)
    iterator = iter(points())

    @tf.function
    def train_step(batch: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(labels, model(batch, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        step.assign_add(1)
        return value

    run = tfckpt.from_config(CONFIG, model=model, optimizer=optimizer, step=step, iterator=iterator)
    run.restore()
    print(f"begins after step {int(step)}")
    while int(step) < STEPS:
        value = train_step(*next(iterator))
        run.save_if_due(metrics={"loss": float(value)})
    run.save()
    run.sync()
    print(f"ends after step {int(step)} with {digest(model, optimizer)}")


if __name__ == "__main__":
    main()
