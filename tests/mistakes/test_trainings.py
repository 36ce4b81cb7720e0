"""`fit` is started in another place, started again, or is not the `fit` that it was."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from mistakes.scene import (
    BATCH,
    STEPS,
    Case,
    Scene,
    X,
    Y,
    cases,
    compiled,
    each,
    fit,
    saved,
    written,
)
from mistakes.test_restores import LETTER_OFF

import tfckpt
import tfckpt.callbacks


def steps(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


def config(directory: str = "runs/a", **manager: Any) -> dict[str, Any]:
    where = {"directory": directory}
    manager = {**where, "save": {"every_epochs": 1}, **manager}
    return {"version": 1, "manager": manager, "restore": {**where, "if_none": "initialize"}}


def trains(
    directory: str = "runs/a", *, first: Any = None, epochs: int = 1, more: Any = None, **model: Any
) -> Any:
    """A ``fit`` with the line of ``resume``; before that, something is changed."""

    def do(scene: Scene) -> None:
        assert scene.run
        if first is not None:
            first()
        trained = scene.model(**model)
        callback = tfckpt.callbacks.resume(trained, directory)
        fit(trained, callback, epochs=epochs, **(more or {}))

    return do


def trains_by(source: Any, **more: Any) -> Any:
    """The same with the callback of a config."""

    def do(scene: Scene) -> None:
        assert scene.run
        given = written(source) if isinstance(source, str) else source
        model = scene.model()
        fit(model, tfckpt.from_config(given, model=model).callback(), **{"epochs": 1, **more})

    return do


def again(then: Any, at: tuple[int, int] | None = (1, 3)) -> Any:
    """A ``fit`` that ends before a batch, or after its first epoch; what is done after it."""

    def do(scene: Scene) -> None:
        model = scene.model()
        callback = tfckpt.callbacks.resume(model, "runs/a", save_freq=2, verbose=0)
        if at is None:
            fit(model, callback, epochs=1)
        else:
            scene.interrupted(model, callback, at)
        scene.keras.utils.set_random_seed(3)
        then(scene)

    return do


def resumes(model: Any = None, **more: Any) -> Any:
    def then(scene: Scene) -> None:
        made = scene.model() if model is None else scene.watch(model(scene))
        fit(made, tfckpt.callbacks.resume(made, "runs/a", save_freq=2), **more)

    return then


# Where it looks


def by_keras(scene: Scene, *, backup: bool) -> None:
    """What a callback of Keras has saved is no run."""
    kinds, model = scene.keras.callbacks, scene.model()
    keras = kinds.BackupAndRestore("kept", delete_checkpoint=False)
    fit(model, keras if backup else kinds.ModelCheckpoint("kept/{epoch:02d}.keras"), epochs=1)
    model = scene.model()
    fit(model, tfckpt.callbacks.resume(model, "kept"), epochs=1)


NAMED = """
version: 1
manager: {directory: runs/a, checkpoint_name: model, save: {every_epochs: 1}}
restore: {directory: runs/a, if_none: initialize}
"""


def twice(do: Any) -> Any:
    return lambda s: [do(s), do(s)][2:]


PLACES: dict[str, Case] = {
    "a letter off in restore": Case(
        trains_by(LETTER_OFF), r"project/runs/digit\b(?!s) & runs/digits & did you mean|differ"
    ),
    "of BackupAndRestore": Case(
        lambda s: by_keras(s, backup=True),
        "initial values|from scratch & project/kept & BackupAndRestore & path:|restore|load",
        both=True,
    ),
    "of ModelCheckpoint": Case(
        lambda s: by_keras(s, backup=False),
        r"initial values|from scratch & project/kept & 01\.keras & path:|restore|load",
        both=True,
    ),
    "another checkpoint_name": Case(twice(trains_by(NAMED)), "'model-1' & checkpoint_name: model"),
}


# What is called


def of_a_callback(scene: Scene) -> None:
    class Sampler(scene.keras.callbacks.Callback):
        def get_state(self) -> Any:
            return {"seen": object()}

        def set_state(self, state: Any) -> None: ...

    model = scene.model()
    fit(model, tfckpt.callbacks.resume(model, "runs/a"), Sampler(), epochs=1)


def in_a_thread(scene: Scene) -> None:
    model = scene.model()
    errors: list[Exception] = []

    def work() -> None:
        try:
            fit(model, tfckpt.callbacks.resume(model, "runs/a", on_signal=["SIGTERM"]), epochs=1)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    raise errors[0]


def beside_another(scene: Scene) -> None:
    """Another process holds the lock, by an open file of its own."""
    Path("runs/a").mkdir(parents=True)
    holder = {"pid": os.getpid(), "host": "far", "since": "2026-01-02T03:04:05+00:00"}
    with Path("runs/a/.tfckpt.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({**holder, "command": "train.py"}).encode() + b"\n")
        file.flush()
        trains()(scene)


def compiles_again(scene: Scene) -> None:
    model = scene.model()
    run = tfckpt.from_config(config(scene.run), model=model)
    run.restore()
    compiled(scene.keras, model)
    fit(model, run.callback(), epochs=4)


def generator() -> Any:
    while True:
        yield X[:BATCH], Y[:BATCH]


def loop(counted: bool) -> Any:
    def do(scene: Scene) -> Any:
        step = tf.Variable(0)
        run = tfckpt.from_config(config(save={"every_steps": 2}), step=step)
        for call in range(300):
            step.assign_add(int(counted and call % 50 == 49))  # gradients of so many batches
            run.save_if_due()
        run.sync()
        assert saved() == (["ckpt-1", "ckpt-2", "ckpt-3"] if counted else [])

    return do


RULE = [{"latest": 1}, {"best": 1, "monitor": "val_los", "mode": "min"}]
ONLY = {"version": 1, "restore": {"directory": "runs/digits", "policy": {"api": "read"}}}
CALLS: dict[str, Case] = {
    "a second process": Case(
        beside_another,
        f"another process & {os.getpid()} & train.py & directory of its own|end that",
        tfckpt.InUseError,
    ),
    "without manager": Case(trains_by(ONLY), "nothing (is|will be) saved & `?manager & directory"),
    "nothing is due": Case(
        trains_by({"version": 1, "manager": {"directory": "runs/a"}, "restore": "none"}),
        "the callback would do nothing & restores nothing, and nothing is & every_epochs: 1",
        tfckpt.TfckptError,
    ),
    "a manager without save": Case(
        trains_by(config(save={})), "nothing (is|will be) saved|no save|never & every_epochs: 1"
    ),
    "steps that never come": Case(
        trains_by(config(save={"every_steps": 1000})), "every 1,?000 steps|every_steps: 1000"
    ),
    "a metric that no save has": Case(
        trains_by(config(keep=RULE, save={"every_steps": 2})),
        "no checkpoint will have 'val_los', which `best` compares & add `every_epochs: 1`",
    ),
    "a loop without steps": Case(
        loop(counted=False), r"`step` is 0 after 100 calls & step\.assign_add\(1\)"
    ),
    "a loop with few steps": Case(loop(counted=True), "", never="assign_add"),
    "a generator of Python": Case(
        trains(more={"x": generator(), "y": None, "batch_size": None, "steps_per_epoch": 2}),
        "state that cannot be saved & in the same order",
    ),
    "compiled again": Case(compiles_again, "optimizer & compile & before|again"),
    "a state that is no JSON": Case(
        of_a_callback,
        "Sampler & 'seen' & object & numbers, strings, arrays, lists, dicts and sets",
        tfckpt.TfckptError,
    ),
    "signals in a thread": Case(
        in_a_thread, "on_signal & main thread & remove on_signal", tfckpt.TfckptError
    ),
}


# Started again


def schedule(scene: Scene) -> Any:
    return scene.keras.optimizers.schedules.CosineDecay(0.1, 100)


def unfreezes(scene: Scene) -> None:
    frozen = scene.model(optimizer=None)
    frozen.layers[0].trainable = False
    compiled(scene.keras, frozen)
    fit(frozen, tfckpt.callbacks.resume(frozen, "runs/a", verbose=0), epochs=1)
    trains(epochs=2)(scene)


def mixed(scene: Scene) -> None:
    scene.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = scene.model()
    finally:
        scene.keras.mixed_precision.set_global_policy("float32")
    fit(model, tfckpt.callbacks.resume(model, scene.run), epochs=4)


def optimized(make: Any, epochs: int = 4) -> Any:
    def do(scene: Scene) -> None:
        model = scene.model(optimizer=make(scene.keras.optimizers, scene))
        fit(model, tfckpt.callbacks.resume(model, scene.run), epochs=epochs)

    return do


def a_cell_twice(scene: Scene) -> None:
    """A cell was run twice, and the kernel is restarted."""
    model = scene.model()
    callback = tfckpt.callbacks.resume(model, "runs/a")
    for _ in range(2):
        fit(model, callback, epochs=2)
    assert "another `fit` of this model" in scene.text
    assert "create the model in that cell" in scene.text
    model = scene.model()
    assert fit(model, tfckpt.callbacks.resume(model, "runs/a"), epochs=10).epoch == [0, 1]


def by_two_steps(scene: Scene) -> Any:
    model = scene.model(optimizer=None)
    return compiled(scene.keras, model, "adam", run_eagerly=False, steps_per_execution=2)


AGAIN: dict[str, Case] = {
    "a cell run twice": Case(
        a_cell_twice, "nothing to train & `fit` 2 & 2 of 2 epochs & run it again & start over"
    ),
    "another batch size between epochs": Case(
        again(resumes(epochs=2, batch_size=2 * BATCH), at=None),
        f"{STEPS}.*{STEPS // 2} & epoch 2 starts at the beginning of the dataset",
    ),
    **cases(
        tfckpt.RefusedError,
        {
            "unfrozen": (unfreezes, "optimizer/.*body/kernel & optimizer: reset"),
            "another optimizer": (
                optimized(lambda of, s: of.Nadam(0.001)),
                "adam.*optimizer: reset",
            ),
            "a schedule": (
                optimized(lambda of, s: of.Adam(schedule(s))),
                "optimizer/learning_rate & exclude_checkpoint|hyperparameters: config",
            ),
            "mixed precision": (mixed, r'loss_scale & exclude: \["optimizer/loss_scale/\*\*"\]'),
        },
        last=20,
    ),
    "steps_per_execution": Case(
        again(resumes(by_two_steps)),
        "steps_per_execution changed from 1 to 2 & training_state",
        tfckpt.RestoreError,
    ),
}
TABLES = {**PLACES, **CALLS, **{f"again: {name}": case for name, case in AGAIN.items()}}


@each(TABLES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_training(name, flavor, scenes) -> None:
    TABLES[name].check(scenes(flavor))


# What goes on


def test_a_layer_of_another_width_is_told_the_line_that_starts_over(scenes) -> None:
    scene = scenes()
    namespace = {"tfckpt": tfckpt, "model": scene.model(units=9)}
    case = Case(trains(scene.run, units=9), "another directory", tfckpt.RefusedError)
    case.check(scene)
    line = str(scene.error).splitlines()[-1].strip()
    assert line == "tfckpt.callbacks.resume(model, 'runs/digits', start_over=True)"
    assert len(fit(namespace["model"], eval(line, namespace), epochs=1).epoch) == 1
