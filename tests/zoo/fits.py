"""A ``fit`` of a few steps with a run of its own, as after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tfckpt

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.stack([X.sum(1), X.prod(1)], 1)
STEPS = 3  # of an epoch


def runs_of(keras: Any, directory: Path) -> Callable[..., Any]:
    """``run(every_epochs=1)``: a new model and a new run of that directory."""

    def build(
        policy: dict[str, Any] | None = None, *, enable_async: bool = False, **save: Any
    ) -> Any:
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(3, name="a"), keras.layers.Dense(2)]
        )
        model.compile(keras.optimizers.Adam(0.05), "mse", run_eagerly=True)
        where = {"directory": str(directory)}
        config = {
            "version": 1,
            "manager": {**where, "save": save, "enable_async": enable_async},
            "restore": {**where, "if_none": "initialize", "policy": policy or {}},
        }
        return model, tfckpt.from_config(config, model=model)

    return build


def fit(model: Any, epochs: int, *callbacks: Any, **more: Any) -> list[int]:
    """The epochs of which History knows."""
    more = {"batch_size": 4, "shuffle": False, "verbose": 0, **more}
    return list(model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **more).epoch)


def stop(keras: Any, epoch: int, batch: int = 0) -> Any:
    """A callback that ends the process before that batch, as far as a test can."""

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, number: int, logs: Any = None) -> None:
            self.epoch = number

        def on_train_batch_begin(self, number: int, logs: Any = None) -> None:
            if (self.epoch, number) == (epoch, batch):
                raise KeyboardInterrupt

    return Stop()


def state(model: Any) -> list[np.ndarray]:
    return [v.numpy() for v in (*model.trainable_variables, *model.optimizer.variables)]


def saved(run: Any) -> list[str]:
    return [Path(path).name for path in run.manager.checkpoints]


def through_json(value: Any) -> Any:
    """As a commit record has it, whose keys are sorted."""
    return json.loads(json.dumps(value, sort_keys=True, allow_nan=False))
