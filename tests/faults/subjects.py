"""What is saved and restored here: objects whose every value says which step it is of.

Runs in children of a process that has only imported TensorFlow. A `Subject` is made of tfckpt's
classes or, to compare with, of TensorFlow's own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfckpt

UNTOUCHED = -1
WEIGHTS = 300
FROZEN = 7.0  # of every step


class Subject:
    """Objects, a checkpoint of them, and a manager once it is opened."""

    def __init__(self, library: str, directory: str) -> None:
        self.library = library
        self.directory = directory
        self.weights = tf.Variable(tf.zeros(WEIGHTS))
        self.frozen = tf.Variable(tf.zeros(4 * WEIGHTS), trainable=False)
        self.model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, name="out")])
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(self.model.trainable_variables)
        kind = tfckpt.Checkpoint if library == "tfckpt" else tf.train.Checkpoint
        self.checkpoint = kind(
            weights=self.weights,
            frozen=self.frozen,
            model=self.model,
            optimizer=self.optimizer,
        )
        self.manager: Any = None
        self.fill(UNTOUCHED)

    def _variables(self) -> list[Any]:
        return [self.weights, *self.model.variables, *self.optimizer.variables]

    def fill(self, step: int) -> None:
        for variable in self._variables():
            variable.assign(np.full_like(np.array(variable), step))
        self.frozen.assign(
            tf.fill(self.frozen.shape, float(UNTOUCHED) if step == UNTOUCHED else FROZEN)
        )

    def value(self) -> int | None:
        """The step that all values are of, None where they are as they were made.

        Raises:
            AssertionError: they are of several steps.
        """
        found = {float(n) for v in self._variables() for n in np.unique(np.array(v))}
        assert len(found) == 1, f"values of several steps: {sorted(found)}"
        step = int(found.pop())
        frozen = {float(UNTOUCHED) if step == UNTOUCHED else FROZEN}
        assert {*np.unique(self.frozen).tolist()} == frozen, "frozen values of another step"
        return None if step == UNTOUCHED else step

    def open(self, max_to_keep: int, *, durable: bool = True, **options: str) -> None:
        kind = tfckpt.CheckpointManager if self.library == "tfckpt" else tf.train.CheckpointManager
        given = options if durable else {"durable": False, **options}
        self.manager = kind(self.checkpoint, self.directory, max_to_keep=max_to_keep, **given)

    def restore(self) -> int | None:
        """Restore the newest checkpoint; its step, None where there is none."""
        self.manager.restore_or_initialize()
        return self.value()

    def save(self, step: int) -> str:
        """Save values of a step; the name of the checkpoint."""
        self.fill(step)
        return Path(self.manager.save()).name

    @property
    def fixed_prefix(self) -> str:
        return str(Path(self.directory) / "weights")

    def write(self, step: int) -> str:
        """Write values of a step under the same name as always."""
        self.fill(step)
        return Path(self.checkpoint.write(self.fixed_prefix)).name

    def read(self, name: str) -> int | None:
        """The step that one checkpoint is of."""
        self.fill(UNTOUCHED)
        self.checkpoint.read(str(Path(self.directory) / name)).expect_partial()
        return self.value()

    def counter(self) -> int:
        return int(self.checkpoint.save_counter)


def plain_step(prefix: str) -> int:
    """The step of a checkpoint as plain TensorFlow reads it."""
    reader = tf.train.load_checkpoint(prefix)
    found = set()
    for name in reader.get_variable_to_shape_map():
        if name.startswith("weights/"):
            found |= set(np.unique(reader.get_tensor(name)).tolist())
    assert len(found) == 1, f"plain TensorFlow reads values of several steps: {sorted(found)}"
    return int(found.pop())


def listing(directory: str) -> list[str]:
    return sorted(os.listdir(directory))  # noqa: PTH208  names, not paths
