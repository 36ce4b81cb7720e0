"""The ways through the house: which files and functions a restore, a save and a `fit` run through.

``python tests/architecture/ways.py`` prints them as a table; ``--list WAY`` names the functions of
one way in the order in which they are entered.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = f"{PROJECT / 'tfckpt'}{os.sep}"


class Way(NamedTuple):
    """Lines are those of the files; calls are all, in every thread."""

    files: int
    lines: int
    functions: int
    calls: int


class Trace:
    """Every function of the package that is entered, with how often.

    A comprehension or lambda is part of the function around it: Python 3.12 calls most of them no
    more.
    """

    def __init__(self) -> None:
        self.entered: dict[tuple[str, str], int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        named = code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<"
        if event == "call" and named:
            function = code.co_filename, getattr(code, "co_qualname", code.co_name)
            self.entered[function] = self.entered.get(function, 0) + 1

    def run(self, way: Callable[[], Any]) -> None:
        threading.setprofile(self)
        sys.setprofile(self)
        way()
        sys.setprofile(None)
        threading.setprofile(None)

    def way(self) -> Way:
        files = {file for file, _ in self.entered}
        lines = sum(len(Path(file).read_text(encoding="utf-8").splitlines()) for file in files)
        return Way(len(files), lines, len(self.entered), sum(self.entered.values()))


class Stopped(Exception):
    """The process of a training that is resumed later."""


def traced() -> dict[str, Trace]:
    """Each way, gone once by a model of two layers: one process after the other's start."""
    import keras
    import numpy as np
    import tensorflow as tf

    import tfckpt
    import tfckpt.callbacks

    draw = np.random.default_rng(1)
    x, y = draw.random((32, 4), "float32"), draw.integers(0, 3, 32)

    def model() -> Any:
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(8, "relu", name="hidden"), keras.layers.Dense(3, name="head")]
        built = keras.Sequential([keras.Input((4,)), *layers])
        built.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return built

    def fit(directory: str, epochs: int, *callbacks: Any) -> None:
        trained = model()
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(32, seed=3).batch(8)
        resume = tfckpt.callbacks.resume(trained, directory, save_freq=2, verbose=0)
        trained.fit(data, epochs=epochs, verbose=0, callbacks=[resume, *callbacks])

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                raise Stopped

    ways: dict[str, Trace] = {}

    def go(name: str, way: Callable[[], Any]) -> None:
        ways[name] = Trace()
        ways[name].run(way)

    with tempfile.TemporaryDirectory() as alone:
        folder = f"{alone}/home/models/digits"  # a missing path is compared with what is near
        saved = model()
        saved.train_on_batch(x, y)
        path = tfckpt.Checkpoint(model=saved).save(f"{folder}/once/ckpt")
        target = model()
        go("restore", lambda: tfckpt.restore(path, target, include=["model/**"]))
        manager = tfckpt.CheckpointManager(
            tfckpt.Checkpoint(model=saved), f"{folder}/manager", max_to_keep=3
        )
        manager.save()
        go("second save", manager.save)
        go("fit", lambda: fit(f"{folder}/fresh", 1))
        with contextlib.suppress(Stopped):
            fit(f"{folder}/resumed", 2, Stop())
        go("fit resumed", lambda: fit(f"{folder}/resumed", 2))
    return ways


def counted() -> dict[str, dict[str, int]]:
    return {name: trace.way()._asdict() for name, trace in traced().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="WAY")
    arguments = parser.parse_args()
    ways = traced()
    if arguments.list:
        for file, function in ways[arguments.list].entered:
            print(f"{file.removeprefix(PACKAGE)}:{function}")
    else:
        print(f"{'':14}" + "".join(f"{field:>11}" for field in Way._fields))
        for name, trace in ways.items():
            print(f"{name:14}" + "".join(f"{number:11,}" for number in trace.way()))


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["KERAS_BACKEND"] = "tensorflow"
    sys.path.insert(0, str(PROJECT))
    main()
