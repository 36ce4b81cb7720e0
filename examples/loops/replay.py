"""Q-learning with a replay buffer, that goes on exactly where it was killed.

An agent learns to walk to the end of a line. The buffer, where the agent stands, and the generator
that draws its actions are saved with the model: without them, a restart would learn from other
steps. ``RUN_DIR=/tmp/run python examples/loops/replay.py`` starts; the same line again resumes.
"""

from __future__ import annotations

from pathlib import Path

import keras
import tensorflow as tf
from ending import digest

import tfckpt

STEPS = 60
BATCH = 16
CELLS = 6
CAPACITY = 40
CONFIG = Path(__file__).resolve().parents[2] / "configs" / "replay.yaml"


class Replay(tf.Module):
    """The last steps: from which cell, to the left or right, to which cell, for what reward."""

    def __init__(self) -> None:
        self.steps = tf.Variable(tf.zeros([CAPACITY, 3], tf.int32))
        self.rewards = tf.Variable(tf.zeros([CAPACITY]))
        self.count = tf.Variable(0, dtype=tf.int64)

    def add(self, cell: tf.Tensor, action: tf.Tensor, after: tf.Tensor, reward: tf.Tensor) -> None:
        row = [[self.count % CAPACITY]]
        self.steps.scatter_nd_update(row, [[cell, action, after]])
        self.rewards.scatter_nd_update(row, [reward])
        self.count.assign_add(1)

    def draw(self, chance: tf.random.Generator) -> tuple[tf.Tensor, ...]:
        size = tf.minimum(self.count, CAPACITY)
        rows = chance.uniform([BATCH], maxval=size, dtype=tf.int64)
        cells, actions, afters = tf.unstack(tf.gather(self.steps, rows), axis=1)
        return cells, actions, afters, tf.gather(self.rewards, rows)


def main() -> None:
    keras.utils.set_random_seed(0)
    values = keras.Sequential(
        [
            keras.layers.Input((CELLS,)),
            keras.layers.Dense(16, activation="relu", name="hidden"),
            keras.layers.Dense(2, name="actions"),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(values.trainable_variables)
    replay = Replay()
    cell = tf.Variable(0)
    chance = tf.random.Generator.from_seed(1)
    step = tf.Variable(0, dtype=tf.int64)

    def value_of(cells: tf.Tensor) -> tf.Tensor:
        return values(tf.one_hot(cells, CELLS))

    @tf.function
    def train_step() -> tf.Tensor:
        best = tf.argmax(value_of(cell[None])[0], output_type=tf.int32)
        drawn = chance.uniform([], maxval=2, dtype=tf.int32)
        action = tf.where(chance.uniform([]) < 0.3, drawn, best)
        after = tf.clip_by_value(cell + 2 * action - 1, 0, CELLS - 1)
        reward = tf.cast(after == CELLS - 1, tf.float32)
        replay.add(cell.read_value(), action, after, reward)
        cell.assign(tf.where(reward > 0, 0, after))

        cells, actions, afters, rewards = replay.draw(chance)
        wanted = rewards + 0.9 * (1 - rewards) * tf.reduce_max(value_of(afters), axis=1)
        with tf.GradientTape() as tape:
            given = tf.gather(value_of(cells), actions, batch_dims=1)
            loss = tf.reduce_mean((given - wanted) ** 2)
        variables = values.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        step.assign_add(1)
        return loss

    run = tfckpt.from_config(
        CONFIG,
        values=values,
        optimizer=optimizer,
        replay=replay,
        cell=cell,
        chance=chance,
        step=step,
    )
    run.restore()
    print(f"begins after step {int(step)}")
    while int(step) < STEPS:
        loss = train_step()
        run.save_if_due(metrics={"loss": float(loss)})
    run.save()
    run.sync()
    print(f"ends after step {int(step)} with {digest(values, optimizer, replay)}")


if __name__ == "__main__":
    main()
