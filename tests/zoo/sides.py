"""TensorFlow's manager and ours, each in a directory and with variables of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tensorflow as tf

import tfckpt

START = 1_700_000_000.0
MINUTE = 60.0
HOUR = 60 * MINUTE
ASYNC = tf.train.CheckpointOptions(enable_async=True)


@dataclasses.dataclass
class Side:
    """One of the two implementations, with a directory and variables of its own."""

    package: Any
    directory: Path
    clock: list[float]
    value: tf.Variable = dataclasses.field(default_factory=lambda: tf.Variable(0))
    step: tf.Variable = dataclasses.field(default_factory=lambda: tf.Variable(0))

    def manager(self, max_to_keep: int | None = None, **more: Any) -> Any:
        """A new one, of a new Checkpoint, as after a restart."""
        checkpoint = self.package.Checkpoint(value=self.value, step=self.step)
        directory = more.pop("directory", self.directory)
        return self.package.CheckpointManager(checkpoint, directory, max_to_keep, **more)

    def save(self, manager: Any, value: int, **more: Any) -> str | None:
        """The name of a checkpoint that holds a value."""
        self.value.assign(value)
        return name(manager.save(**more))

    def on_disk(self) -> list[str]:
        return sorted(path.stem for path in self.directory.glob("*.index"))

    def seen(self, manager: Any) -> Any:
        """What a user may ask of a manager and of its directory."""
        return {
            "checkpoints": [name(path) for path in manager.checkpoints],
            "latest": name(manager.latest_checkpoint),
            "for TensorFlow's tools": name(tf.train.latest_checkpoint(self.directory)),
            "counter": int(manager.checkpoint.save_counter),
            "on disk": self.on_disk(),
        }

    def stored(self, path: str) -> int:
        """The value in a checkpoint, as TensorFlow reads it."""
        key = "value/.ATTRIBUTES/VARIABLE_VALUE"
        return int(tf.train.load_checkpoint(path).get_tensor(key))


def name(path: str | None) -> str | None:
    return None if path is None else Path(path).name


def both(directory: Path, clock: list[float]) -> tuple[Side, Side]:
    """TensorFlow's, and ours."""
    plain = Side(tf.train, directory / "tensorflow", clock)
    return plain, Side(tfckpt, directory / "tfckpt", clock)
