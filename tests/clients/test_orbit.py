"""orbit: its controller, which saves and restores by the manager that it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import orbit
import pytest
import tensorflow as tf
import tf_keras
from clients.exchange import EVERY, STEPS, Program, checksums, exchanged, kill, resumed

import tfckpt

pytestmark = pytest.mark.long


def examples() -> tf.data.Dataset:
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1))).shuffle(32, seed=1).repeat().batch(4)


class Trainer(orbit.StandardTrainer):
    """Trains a small network; at step ``stop`` it kills its process."""

    def __init__(self, seed: int, stop: int | None = None) -> None:
        tf_keras.utils.set_random_seed(seed)
        self.model = tf_keras.Sequential(
            [tf_keras.layers.Dense(8, "relu"), tf_keras.layers.Dense(1)]
        )
        self.model.build((None, 4))
        self.optimizer = tf_keras.optimizers.Adam(0.01)
        self.optimizer.build(self.model.trainable_variables)
        self.global_step = tf.Variable(0, dtype=tf.int64)
        self.stop = stop
        super().__init__(examples())
        self.iterator = self._train_iter = iter(self.train_dataset)

    def train_loop_begin(self) -> None:
        kill(self.global_step, self.stop)

    def train_step(self, iterator: Any) -> None:
        x, y = next(iterator)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(x)[:, 0] - y) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.global_step.assign_add(1)

    def variables(self) -> list[tf.Variable]:
        return [*self.model.variables, *self.optimizer.variables, self.global_step]

    def objects(self) -> dict[str, Any]:
        names = ("model", "optimizer", "global_step", "iterator")
        return {name: getattr(self, name) for name in names}


def build(seed: int) -> Program:
    trainer = Trainer(seed)
    return Program(
        trainer.objects(),
        trainer.variables,
        train=lambda: trainer.train(tf.constant(1)),
        output=lambda: trainer.model(tf.ones((1, 4))),
    )


def train(directory: str, stop: int | None) -> list[str]:
    trainer = Trainer(1, stop)
    manager = tfckpt.CheckpointManager(
        tfckpt.Checkpoint(**trainer.objects()),
        directory,
        max_to_keep=2,
        step_counter=trainer.global_step,
        checkpoint_interval=EVERY,
    )
    controller = orbit.Controller(
        global_step=trainer.global_step,
        trainer=trainer,
        steps_per_loop=1,
        checkpoint_manager=manager,
        enable_async_checkpointing=True,
    )
    controller.train(STEPS)
    return checksums(trainer.variables())


test_a_trainer_is_exchanged_with_tensorflow = exchanged(build)
test_a_killed_controller_goes_on_exactly = resumed(__file__)
