"""A small training, run with another TensorFlow each time: ``python training.py FLAVOR DIRECTORY``.

With ``EPOCH BATCH`` behind it, it kills itself after that batch. It writes what its variables were
after each batch, by checksum, and in the end its ``History``, to ``DIRECTORY.json``, line by line.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tfckpt.callbacks

EPOCHS, BATCHES, SIZE = 6, 5, 8


def build(keras: Any) -> Any:
    """Something of each kind: seeds, statistics, slots, averages, a nested model."""
    body = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(8, activation="relu", name="dense"),
            keras.layers.BatchNormalization(name="norm"),
        ],
        name="encoder",
    )
    dropout = keras.layers.Dropout(0.3, seed=7, name="dropout")
    layers = [keras.layers.Input((4,)), body, dropout, keras.layers.Dense(3, name="classes")]
    model = keras.Sequential(layers, name="model")
    optimizer = keras.optimizers.Adam(0.01, use_ema=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    return model


def examples() -> Any:
    """Shuffled, and one iterator for all epochs: Keras itself makes those of a finite one."""
    x = np.random.default_rng(1).normal(size=(BATCHES * SIZE, 4)).astype("float32")
    y = (x.sum(1) > 0).astype("int32") + (x[:, 0] > 0.5)
    return (
        tf.data.Dataset.from_tensor_slices((x, y))
        .shuffle(BATCHES * SIZE, seed=3)
        .repeat()
        .batch(SIZE)
    )


def variables(model: Any) -> dict[str, np.ndarray]:
    """Every value of the model and its optimizer, by number: their names differ by version."""
    listed = model.optimizer.variables
    owned = {"model": model.variables, "optimizer": listed() if callable(listed) else listed}
    return {f"{k}/{n}": v.numpy() for k, vs in owned.items() for n, v in enumerate(vs)}


def checksum(value: np.ndarray) -> str:
    """Of whole numbers in 64 bits: seeds are uint32 in Keras 3.1."""
    wide = value.astype(np.int64) if value.dtype.kind in "iu" else value
    return hashlib.sha256(wide.tobytes()).hexdigest()


def main(flavor: str, directory: str, *stop: str) -> None:
    keras = importlib.import_module(flavor)
    file = Path(f"{directory}.json")
    file.write_text("", encoding="utf-8")

    def write(key: str, value: Any) -> None:
        """To a file, as a resume would bring back a dict of the program's own."""
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([key, value]) + "\n")

    class Record(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            values = variables(self.model).items()
            write(f"{self.epoch} {batch}", {name: checksum(value) for name, value in values})
            if [str(self.epoch), str(batch)] == [*stop]:
                os.kill(os.getpid(), signal.SIGKILL)

    if flavor == "tf_keras":  # else the state of its dropout cannot be saved
        keras.backend.experimental.enable_tf_random_generator()
    keras.utils.set_random_seed(5)
    model = build(keras)
    resume = tfckpt.callbacks.resume(model, directory, save_freq=2, verbose=0)
    rate = keras.callbacks.ReduceLROnPlateau("accuracy", factor=0.5, patience=1)
    best = keras.callbacks.EarlyStopping("accuracy", patience=50)
    history = model.fit(
        examples(),
        epochs=EPOCHS,
        steps_per_epoch=BATCHES,
        verbose=0,
        callbacks=[rate, best, resume, Record()],
    )
    write("history", {key: [float(x) for x in each] for key, each in history.history.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
