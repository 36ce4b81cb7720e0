"""From a start to its end: a command, a ``fit``, and a training that was killed within an epoch.

A killed training is started again in a process that has imported TensorFlow, Keras and tfckpt, and
is measured from the compiled model to the end of its first new step; what Keras alone takes for its
very first step, with an optimizer that is built, is taken off.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfckpt
from benchmarks import subjects
from benchmarks.measure import Row, Settings, clock, in_child, medians

PROJECT = Path(__file__).resolve().parents[1]
COMMAND = "import sys; from tfckpt.cli.main import main; sys.exit(main())"
ROUNDS = 5
INPUTS, WIDTH, DEPTH = 16, 3_600, 8
STEPS, BATCH, EVERY, KILLED_AT = 10, 8, 15, (1, 7)


def run(settings: Settings) -> list[Row]:
    return [*_inspected(settings), *_fit(), *_going_on(settings)]


def _inspected(settings: Settings) -> list[Row]:
    prefix = f"{settings.directory}/values/ckpt"
    in_child(_saved, prefix)

    def spent(code: str, *arguments: str) -> dict[str, float]:
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-c", code, *arguments]
        return {
            "ms": clock(partial(subprocess.run, command, check=True, capture_output=True, env=env))
        }

    turns = {
        "inspect": partial(spent, COMMAND, "inspect", prefix),
        "import": partial(spent, "import tensorflow"),
    }
    found = medians(turns, ROUNDS, settings)
    what = "`tfckpt inspect`, 1,000 values, ms"
    theirs = found["import"]["ms"]
    return [Row(what, found["inspect"]["ms"], theirs, "its import", goal="≥ 25 ×")]


def _saved(prefix: str) -> str:
    return tfckpt.Checkpoint(**subjects.values(1_000, 1 << 10).objects).write(prefix)


def _fit() -> list[Row]:
    """What runs in a `fit` of four batches and three saves: calls and files, not a time."""
    command = [sys.executable, "tests/architecture/ways.py", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=PROJECT)
    way = json.loads(done.stdout.splitlines()[-1])["fit"]
    return [
        Row("calls of tfckpt in a `fit` of four batches", way["calls"], goal="≤ 20,000"),
        Row("files of tfckpt in it", way["files"], goal="≤ 55"),
    ]


class FirstStepError(Exception):
    """Ends ``fit`` where the clock stops."""


class Watch(keras.callbacks.Callback):  # type: ignore[misc]
    """Kills its process at a place, or ends at the first step."""

    def __init__(self, *, kill: bool) -> None:
        super().__init__()
        self.kill = kill

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.kill and (self.epoch, batch) == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.kill:
            self.ended = time.perf_counter()
            raise FirstStepError


def _config(path: str) -> dict[str, Any]:
    """Saves where BackupAndRestore does, and nowhere else."""
    return {
        "version": 1,
        "manager": {"directory": path, "save": {"every_steps": EVERY}},
        "restore": {"directory": path, "if_none": "initialize"},
    }


def _trained(way: str, width: int, path: str, kill: bool) -> list[float]:
    """One process of a training: milliseconds to the end of its first step, and its number."""
    warnings.filterwarnings("ignore", message=".*shuffle=True.*")
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(width, "relu", name=f"wide_{n}") for n in range(DEPTH)]
    model = keras.Sequential([keras.Input((INPUTS,)), *layers, keras.layers.Dense(1, name="out")])
    model.compile(keras.optimizers.Adam(1e-4), "mse", jit_compile=False)
    if way == "Keras":
        model.optimizer.build(model.trainable_variables)
    x = np.random.default_rng(1).normal(size=(STEPS * BATCH, INPUTS)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    data = data.shuffle(len(x)).batch(BATCH)
    goes_on = {
        "Keras": list,
        "BackupAndRestore": lambda: [keras.callbacks.BackupAndRestore(path, save_freq=EVERY)],
        "tfckpt": lambda: [tfckpt.from_config(_config(path), model=model).callback(verbose=0)],
    }
    watch = Watch(kill=kill)
    start = time.perf_counter()
    try:
        model.fit(data, epochs=3, callbacks=[*goes_on[way](), watch], verbose=0)
    except FirstStepError:
        return [1000 * (watch.ended - start), int(model.optimizer.iterations)]
    raise RuntimeError(f"{way}: neither killed nor ended")


def _going_on(settings: Settings) -> list[Row]:
    width = 8 if settings.quick else WIDTH

    def turn(way: str) -> dict[str, float]:
        path = f"{settings.directory}/{way}"
        if way != "Keras" and not Path(path).exists():
            in_child(_trained, way, width, path, True)
        spent, step = in_child(_trained, way, width, path, False)
        if step != (1 if way == "Keras" else EVERY + 1):
            raise RuntimeError(f"{way}: the first new step was step {step}")
        return {"ms": spent}

    ways = ("Keras", "BackupAndRestore", "tfckpt")
    found = medians({way: partial(turn, way) for way in ways}, ROUNDS, settings)
    alone = found["Keras"]["ms"]
    ours, theirs = (found[way]["ms"] - alone for way in ("tfckpt", "BackupAndRestore"))
    what = "resumed within an epoch, 1.2 GiB: to the first new step, over Keras alone, ms"
    return [Row(what, ours, theirs, "BackupAndRestore", goal="≥ 1 ×")]
