"""What an interruption costs: BackupAndRestore, CheckpointManager and tfckpt in one table.

A training of 5 epochs of 8 batches is killed (SIGKILL) as the batch 6 of the epoch 1 begins, both
counted from 0, when 14 steps are done, and is started again by the same code in a new process.
Shown is what the second process ends with, beside a training that went through:

- again: batches that were trained more than once, by both processes together;
- steps: the optimizer's iterations at the end, 40 where all is right;
- weights: whether their bits are the same, or the greatest difference;
- history: whether that of ``fit`` is the same, or how many of its epochs are there;
- best: whether ModelCheckpoint's file with the best weights, which here are those of the first
  epoch, is the same, or holds those of a worse one.
"""

from __future__ import annotations

import importlib
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.measure import Result, Settings, in_child
from benchmarks.restarts import RESTARTS, killed_at

FLAVOURS = ("keras", "tf_keras")
EPOCHS, STEPS, BATCH = 5, 8, 8
KILLED_AT = (1, 6)
EVERY = 4
SEED = 1


def compiled(keras: Any) -> Any:
    keras.utils.set_random_seed(SEED)
    if keras.__name__ == "tf_keras":  # else the state of its dropout is nowhere to be saved
        keras.backend.experimental.enable_tf_random_generator()
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(16, activation="relu", name="hidden"),
            keras.layers.Dropout(0.2, name="dropout"),
            keras.layers.Dense(1, name="out"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def examples(batches: int) -> tf.data.Dataset:
    x = np.random.default_rng(SEED).normal(size=(batches * BATCH, 4)).astype("float32")
    y = x.sum(1, keepdims=True)
    return tf.data.Dataset.from_tensor_slices((x, y))


def validation() -> tf.data.Dataset:
    """The opposite of what is learned, so that the first epoch is the best."""
    return examples(2).map(lambda x, y: (x, -y)).batch(BATCH)


def train(flavour: str, way: str, every: Any, path: str, kill: bool) -> dict[str, Any]:
    """One process's part of a training: what it ends with."""
    keras = importlib.import_module(flavour)
    counted = Path(path, "batches")

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            with counted.open("a") as file:
                file.write(".")

    model = compiled(keras)
    best = str(Path(path, "best.weights.h5"))
    keeps_best = keras.callbacks.ModelCheckpoint(
        best, "val_loss", save_best_only=True, save_weights_only=True
    )
    killing = [killed_at(keras, KILLED_AT)] if kill else []
    goes_on, epoch = [], 0
    if way:
        goes_on, epoch = RESTARTS[way](keras, model, f"{path}/saves", every, STEPS)
    history = model.fit(
        examples(STEPS).shuffle(STEPS * BATCH).batch(BATCH),
        validation_data=validation(),
        epochs=EPOCHS,
        initial_epoch=epoch,
        callbacks=[*goes_on, keeps_best, Watch(), *killing],
        verbose=0,
    )
    weights = [value.tolist() for value in model.get_weights()]
    steps = int(model.optimizer.iterations)
    model.load_weights(best)
    return {
        "weights": weights,
        "steps": steps,
        "epochs": history.epoch,
        "history": {name: list(map(float, values)) for name, values in history.history.items()},
        "best": [value.tolist() for value in model.get_weights()],
        "batches": len(counted.read_text()),
    }


def compare(one: dict[str, Any], whole: dict[str, Any]) -> dict[str, str]:
    pairs = list(zip(one["weights"], whole["weights"], strict=True))
    off = max(float(np.abs(np.subtract(*pair)).max()) for pair in pairs)
    history = f"{len(one['epochs'])} of {len(whole['epochs'])} epochs"
    if one["epochs"] == whole["epochs"]:
        history = "equal" if one["history"] == whole["history"] else "values"
    return {
        "again": str(one["batches"] - whole["batches"]),
        "steps": str(one["steps"]),
        "weights": "equal" if one["weights"] == whole["weights"] else f"off by {off:.0e}",
        "history": history,
        "best": "kept" if one["best"] == whole["best"] else "overwritten",
    }


def run(settings: Settings) -> list[Result]:
    # Keras 3 says of every data set of TensorFlow's that it does not shuffle it.
    warnings.filterwarnings("ignore", message=".*shuffle=True.*")
    found = []
    for flavour in FLAVOURS[:1] if settings.quick else FLAVOURS:
        with tempfile.TemporaryDirectory(dir=settings.disk) as path:
            whole = in_child(train, flavour, "", None, path, False)
        for way in ("tfckpt",) if settings.quick else RESTARTS:
            for every in (EVERY,) if settings.quick else ("epoch", EVERY):
                with tempfile.TemporaryDirectory(dir=settings.disk) as path:
                    if in_child(train, flavour, way, every, path, True) is not None:
                        raise RuntimeError(f"{way} was not killed")
                    cells = compare(in_child(train, flavour, way, every, path, False), whole)
                saves = "every epoch" if every == "epoch" else f"every {every} steps"
                for what, cell in cells.items():
                    found.append(Result("resume", flavour, f"{way}, {saves}", what, (), cell))
    return found
