"""Three ways to go on after an interruption: callbacks for ``fit``, and the epoch it begins with.

Each takes Keras or tf_keras, the model, a directory, when it saves (``epoch``, or each so many
steps) and how many steps an epoch has. What one needs beside Keras it imports itself.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Restart = tuple[list[Any], int]


def backup_and_restore(keras: Any, model: Any, path: str, every: Any, steps: int) -> Restart:
    return [keras.callbacks.BackupAndRestore(path, save_freq=every)], 0


def checkpoint_manager(keras: Any, model: Any, path: str, every: Any, steps: int) -> Restart:
    """As guides show it: the model and its optimizer, and the epoch by the optimizer's steps."""
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(checkpoint, path, max_to_keep=2)

    class Save(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if every != "epoch" and int(model.optimizer.iterations) % every == 0:
                manager.save()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if every == "epoch":
                manager.save()

    manager.restore_or_initialize()
    return [Save()], int(model.optimizer.iterations) // steps


def with_tfckpt(keras: Any, model: Any, path: str, every: Any, steps: int) -> Restart:
    import tfckpt

    save = {"every_epochs": 1} if every == "epoch" else {"every_steps": every}
    config = {
        "version": 1,
        "manager": {"directory": path, "save": save, "keep": [{"latest": 2}]},
        "restore": {"directory": path, "if_none": "initialize"},
    }
    return [tfckpt.from_config(config, model=model).callback(verbose=0)], 0


def killed_at(keras: Any, place: tuple[int, int]) -> Any:
    """A callback that kills the process as a batch begins: epoch and batch, counted from 0."""

    class Kill(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == place:
                os.kill(os.getpid(), signal.SIGKILL)

    return Kill()


RESTARTS: dict[str, Callable[..., Restart]] = {
    "BackupAndRestore": backup_and_restore,
    "CheckpointManager": checkpoint_manager,
    "tfckpt": with_tfckpt,
}
