"""From the start of a program that was killed within an epoch to the end of its first new step.

Each turn is a process of its own, forked from one that has imported TensorFlow and Keras, and
nothing else: what a way imports beside them is its own time. It imports, builds the model, and
calls ``fit``, which ends with the first new step. Nobody's batches are slow to load.

- import: of what the way needs beside Keras;
- to first step: that, and from the compiled model to the end of the first new step;
- overhead: how much more that is than of Keras alone, which trains from the beginning, where its
  optimizer is built: else ``fit`` traces the first step twice, and BackupAndRestore builds it;
- overhead without import: the same of what comes after the imports;
- process start: all of it, with the imports of Python, TensorFlow and Keras and the model.

A bare restore is ``tfckpt.restore`` of what the training saved, into a model that is built, and
whose optimizer is. ``fit`` compiles nothing by XLA, which would take more time than all the rest.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Result, Settings, clock, in_child, in_turns
from benchmarks.restarts import RESTARTS, killed_at

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCKS, INPUTS = 8, 16
SMALL, LARGE = "30 MiB with Adam", "1.2 GiB with Adam"
WIDTHS = {SMALL: 570, LARGE: 3_600}
ROUNDS = {SMALL: 5, LARGE: 4}
STEPS, BATCH, EVERY = 10, 8, 15
KILLED_AT = (1, 7)
SEED = 1

# Contestant → its way to go on, if any, and whether the position in its data can be saved.
KERAS, BUILT = "Keras alone", "Keras alone, optimizer built"
BACKUP, OURS = "BackupAndRestore", "tfckpt, iterator saved"
WAYS = {
    KERAS: ("", True),
    BUILT: ("", True),
    BACKUP: ("BackupAndRestore", True),
    "tf.train.CheckpointManager": ("CheckpointManager", True),
    OURS: ("tfckpt", True),
    "tfckpt, batches read again": ("tfckpt", False),
}
BARE = "tfckpt.restore"
IMPORT, FIRST_STEP, BARE_RESTORE = "import ms", "to first step ms", "restore ms"
OVERHEAD, IN_FIT = "overhead ms", "overhead without import ms"


class FirstStepError(Exception):
    """Ends ``fit`` where the clock stops."""


def run(settings: Settings) -> list[Result]:
    """In an interpreter of its own, which imports no tfckpt."""
    command = [sys.executable, "-m", "benchmarks.going_on"]
    command += [json.dumps(dataclasses.asdict(settings)), str(time.time())]
    project = Path(__file__).parents[1]
    done = subprocess.run(command, check=True, cwd=project, stdout=subprocess.PIPE)
    return [Result(**one) for one in json.loads(done.stdout)]


def compiled(width: int) -> Any:
    """Layers of that width; of no width, the least that can be trained."""
    import keras

    keras.utils.set_random_seed(SEED)
    names = [f"wide_{n}" for n in range(BLOCKS)] if width else []
    layers = [keras.layers.Dense(width, activation="relu", name=name) for name in names]
    model = keras.Sequential([keras.Input((INPUTS,)), *layers, keras.layers.Dense(1, name="out")])
    model.compile(keras.optimizers.Adam(1e-4), "mse", jit_compile=False)
    return model


def examples(saved: bool) -> Any:
    """Shuffled in a way that can be saved, or by a generator, which is read again."""
    import numpy as np
    import tensorflow as tf

    x = np.random.default_rng(SEED).normal(size=(STEPS * BATCH, INPUTS)).astype("float32")
    y = x.sum(1, keepdims=True)
    if saved:
        return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(BATCH)

    def rows() -> Iterator[Any]:
        yield from zip(x, y, strict=True)

    spec = tuple(tf.TensorSpec(one.shape[1:], one.dtype) for one in (x, y))
    data = tf.data.Dataset.from_generator(rows, output_signature=spec).batch(BATCH)
    # Of unknown length, the step that finds the end of an epoch counts as one of the optimizer's.
    return data.apply(tf.data.experimental.assert_cardinality(STEPS))


def trained(name: str, width: int, path: str, kill: bool) -> dict[str, Any]:
    """One process of a training: until it is killed, or until the first step that it takes."""
    import keras

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if not kill:
                self.ended = time.perf_counter()
                raise FirstStepError

    warnings.filterwarnings("ignore", message=".*shuffle=True.*")
    way, saved = WAYS[name]
    times = [time.perf_counter()]
    if way == "tfckpt":
        import tfckpt.callbacks  # noqa: F401  its time is counted
    times.append(time.perf_counter())
    model, data, watch = compiled(width), examples(saved), Watch()
    if name == BUILT:
        model.optimizer.build(model.trainable_variables)
    times.append(time.perf_counter())
    goes_on, epoch = RESTARTS[way](keras, model, path, EVERY, STEPS) if way else ([], 0)
    try:
        callbacks = [*goes_on, watch, *([killed_at(keras, KILLED_AT)] if kill else [])]
        model.fit(data, epochs=3, initial_epoch=epoch, callbacks=callbacks, verbose=0)
    except FirstStepError:
        times.append(watch.ended)
    spent = [1000 * (end - start) for start, end in itertools.pairwise(times)]
    return {"spent": spent, "steps": int(model.optimizer.iterations)}


def gone_on(name: str, width: int, path: str, started: float) -> dict[str, float]:
    """One turn.

    Args:
        name: of ``WAYS``.
        width: of the model.
        path: of what the killed process saved.
        started: milliseconds from the start of a process until it has imported Keras.
    """
    found = in_child(trained, name, width, path, False)
    steps = EVERY + 1 if WAYS[name][0] else 1
    if found["steps"] != steps:
        raise RuntimeError(f"the first new step was step {found['steps']}, expected {steps}")
    imports, build, to_step = found["spent"]
    return {
        IMPORT: imports,
        FIRST_STEP: imports + to_step,
        "process start ms": started + imports + build + to_step,
    }


def bare(width: int, path: str) -> dict[str, float]:
    import tfckpt.callbacks

    model = compiled(width)
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    spent = clock(partial(tfckpt.restore, path, model=model, optimizer=optimizer))
    if int(optimizer.iterations) != EVERY:
        raise RuntimeError("the bare restore restored something else")
    return {BARE_RESTORE: spent}


def measured(case: str, settings: Settings, started: float) -> list[Result]:
    width = 0 if settings.quick else WIDTHS[case]
    ways = [BUILT, BACKUP, OURS] if settings.quick else list(WAYS)
    turns = {}
    for name in ways:
        way, path = WAYS[name][0], str(Path(settings.disk, f"{case}-{name}".replace(" ", "_")))
        if way and in_child(trained, name, width, path, True) is not None:
            raise RuntimeError(f"{name} was not killed")
        turns[name] = partial(gone_on, name, width, path, started)
        if name == OURS:
            turns[BARE] = partial(in_child, bare, width, path)
    rounds = dict.fromkeys(turns, settings.rounds(ROUNDS[case]))
    found = in_turns("going_on", f"{case}, disk", turns, rounds, settings)
    by = {(one.contestant, one.measure): one.values for one in found}
    for name in ways:
        if not WAYS[name][0] or (name, FIRST_STEP) not in by:
            continue
        pairs = zip(by[name, FIRST_STEP], by[BUILT, FIRST_STEP], by[name, IMPORT], strict=False)
        more = [(ours - theirs, ours - theirs - imports) for ours, theirs, imports in pairs]
        for what, values in zip((OVERHEAD, IN_FIT), zip(*more, strict=True), strict=True):
            found.append(Result("going_on", f"{case}, disk", name, what, values))
    return found


def main() -> None:
    settings, began = Settings(**json.loads(sys.argv[1])), float(sys.argv[2])
    import keras  # noqa: F401  TensorFlow with it, before the first fork

    started = 1000 * (time.time() - began)
    gc.collect()
    gc.freeze()
    results = [one for case in WIDTHS for one in measured(case, settings, started)]
    print(json.dumps([dataclasses.asdict(one) for one in results]))


if __name__ == "__main__":
    main()
