"""What an interruption costs: BackupAndRestore, CheckpointManager and tfckpt in one table.

Run it with ``python benchmarks/bench_resume.py [ROUNDS]``. A training of 5 epochs of 8 batches is
killed (SIGKILL) as the batch 6 of the epoch 1 begins, both counted from 0, when 14 steps are done,
and is started again by the same code in a new process. Shown is what the second process ends with,
beside a training that went through:

- again: batches that were trained more than once, by both processes together;
- steps: the optimizer's iterations at the end, 40 where all is right;
- weights: whether their bits are the same, or the greatest difference;
- history: whether that of ``fit`` is the same, or how many of its epochs are there;
- best: whether ModelCheckpoint's file with the best weights, which here are those of the first
  epoch, is the same, or holds those of a worse one.

Then what a callback costs per batch while no save is due, as a ratio to ``fit`` without it: the
median over rounds in which all take turns, each time in another order, by the clock and by the
processor time of the process, which other work on the machine disturbs less. The second epoch of a
``fit`` is measured, so that what is done once, as training begins, does not count. ``fit`` against
itself shows the noise, an empty callback what Keras takes for calling any.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

FLAVOURS = ("keras", "tf_keras")
EPOCHS, STEPS, BATCH = 5, 8, 8
KILLED_AT = (1, 6)
EVERY = 4
SEED = 1
ROUNDS = 15
LONG = 500  # batches of an epoch in which overhead is measured


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


# Three ways to go on


def backup_and_restore(keras: Any, model: Any, path: str, every: Any) -> tuple[list[Any], int]:
    return [keras.callbacks.BackupAndRestore(path, save_freq=every)], 0


def checkpoint_manager(keras: Any, model: Any, path: str, every: Any) -> tuple[list[Any], int]:
    """As guides show it: the model and its optimizer, and the epoch by the optimizer's steps."""
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
    return [Save()], int(model.optimizer.iterations) // STEPS


def with_tfckpt(keras: Any, model: Any, path: str, every: Any) -> tuple[list[Any], int]:
    save = {"every_epochs": 1} if every == "epoch" else {"every_steps": every}
    config = {
        "version": 1,
        "manager": {"directory": path, "save": save, "keep": [{"latest": 2}]},
        "restore": {"directory": path, "if_none": "initialize"},
    }
    return [tfckpt.from_config(config, model=model).callback(verbose=0)], 0


WAYS: dict[str, Callable[..., tuple[list[Any], int]]] = {
    "BackupAndRestore": backup_and_restore,
    "CheckpointManager": checkpoint_manager,
    "tfckpt": with_tfckpt,
}


def train(flavour: str, way: str, every: Any, path: str, *, kill: bool) -> dict[str, Any]:
    """One process's part of a training: what it ends with."""
    keras = importlib.import_module(flavour)
    counted = Path(path, "batches")

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if kill and (self.epoch, batch) == KILLED_AT:
                os.kill(os.getpid(), signal.SIGKILL)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            with counted.open("a") as file:
                file.write(".")

    model = compiled(keras)
    best = str(Path(path, "best.weights.h5"))
    keeps_best = keras.callbacks.ModelCheckpoint(
        best, "val_loss", save_best_only=True, save_weights_only=True
    )
    goes_on, epoch = WAYS[way](keras, model, f"{path}/saves", every) if way else ([], 0)
    history = model.fit(
        examples(STEPS).shuffle(STEPS * BATCH).batch(BATCH),
        validation_data=validation(),
        epochs=EPOCHS,
        initial_epoch=epoch,
        callbacks=[*goes_on, keeps_best, Watch()],
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


def compare(one: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    pairs = list(zip(one["weights"], whole["weights"], strict=True))
    off = max(float(np.abs(np.subtract(*pair)).max()) for pair in pairs)
    same_history = all(one[key] == whole[key] for key in ("epochs", "history"))
    epochs = f"{len(one['epochs'])} of {len(whole['epochs'])} epochs"
    return [
        str(one["batches"] - whole["batches"]),
        str(one["steps"]),
        "equal" if one["weights"] == whole["weights"] else f"off by {off:.0e}",
        "equal" if same_history else "values" if one["epochs"] == whole["epochs"] else epochs,
        "kept" if one["best"] == whole["best"] else "overwritten",
    ]


def interruptions() -> None:
    row = "{:<10}{:<19}{:<15}{:>6}{:>7}   {:<14}{:<15}{}"
    print(row.format("flavour", "way", "saves", "again", "steps", "weights", "history", "best"))
    for flavour in FLAVOURS:
        with tempfile.TemporaryDirectory() as path:
            whole = in_child(train, flavour, "", None, path, kill=False)
        for way in WAYS:
            for every in ("epoch", EVERY):
                with tempfile.TemporaryDirectory() as path:
                    assert in_child(train, flavour, way, every, path, kill=True) is None
                    cells = compare(in_child(train, flavour, way, every, path, kill=False), whole)
                saves = "every epoch" if every == "epoch" else f"every {every} steps"
                print(row.format(flavour, way, saves, *cells), flush=True)


# What a callback costs while nothing is to be saved


def rounds(flavour: str, count: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of an epoch, by the clock and of processors, for each that stands among callbacks."""
    keras = importlib.import_module(flavour)
    model = compiled(keras)
    data = examples(LONG).batch(BATCH).cache()

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.begin = time.perf_counter(), time.process_time()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            now = time.perf_counter(), time.process_time()
            self.seconds = now[0] - self.begin[0], now[1] - self.begin[1]

    class Empty(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

    with tempfile.TemporaryDirectory() as path:

        def callback(save: dict[str, int]) -> Any:
            config = {"version": 1, "manager": {"directory": path, "save": save}}
            return tfckpt.from_config(config, model=model).callback(verbose=0)

        kinds: dict[str, Callable[[], list[Any]]] = {
            "nothing": list,
            "nothing, again": list,
            "an empty callback": lambda: [Empty()],
            "tfckpt, epochs": lambda: [callback({"every_epochs": 1 << 40})],
            "tfckpt, minutes": lambda: [callback({"every_minutes": 1 << 20})],
            "tfckpt, steps": lambda: [callback({"every_steps": 1 << 40})],
        }
        spent: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for number in range(-1, count):  # the first one traces, and does not count
            for kind in random.Random(number).sample(list(kinds), len(kinds)):
                clock = Clock()
                model.fit(data, epochs=2, verbose=0, callbacks=[clock, *kinds[kind]()])
                if number >= 0:
                    spent[kind].append(clock.seconds)
    return spent


def overhead(count: int) -> None:
    row = "{:<10}{:<20}{:>11}{:>8}{:>14}{:>8}"
    print()
    print(row.format("flavour", "callback", "µs a batch", "ratio", "µs processor", "ratio"))
    for flavour in FLAVOURS:
        spent = in_child(rounds, flavour, count)
        for kind, seconds in spent.items():
            cells = []
            for clock in range(2):
                ratios = [
                    a[clock] / b[clock] for a, b in zip(seconds, spent["nothing"], strict=True)
                ]
                each = 1e6 * statistics.median(pair[clock] for pair in seconds) / LONG
                cells += [f"{each:.0f}", f"{statistics.median(ratios):.3f}"]
            print(row.format(flavour, kind, *cells), flush=True)


def in_child(function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """What a function returns in a process of its own; None where that was killed.

    This process has imported TensorFlow and run nothing, so that it may fork.
    """
    sys.stdout.flush()
    with tempfile.TemporaryFile() as result:
        child = os.fork()
        if not child:
            try:
                result.write(json.dumps(function(*arguments, **more)).encode())
                result.flush()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, -signal.SIGKILL), f"a child ended with {status}"
        result.seek(0)
        return json.loads(result.read()) if status == 0 else None


def main() -> None:
    # Keras 3 says of every data set of TensorFlow's that it does not shuffle it.
    warnings.filterwarnings("ignore", message=".*shuffle=True.*")
    interruptions()
    overhead(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)


if __name__ == "__main__":
    main()
