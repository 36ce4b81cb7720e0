"""A restore from elsewhere begins a training; learning rates and late compiles are said."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import STEPS, X, Y, fit, runs_of, stop

import tfckpt
import tfckpt.callbacks

WEIGHTS = "weights only: a new training begins"
VALUES = "weights and optimizer: a new training begins"
RESUMED = "training resumes after 2 epochs, with its callbacks, iterator and seeds"
BODY = {"include": ["model/**"], "exclude": ["model/head/**"]}
SKIP = {"include": ["model/**"], "on_shape_mismatch": "skip", "on_unexpected": "ignore"}


def build(classes: int = 2) -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(3, name="body"), keras.layers.Dense(classes, name="head")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(keras.optimizers.Adam(0.05), "mse", run_eagerly=True)
    return model


def start(source: dict[str, Any], policy: Any = None, classes: int = 2, manager: Any = None) -> Any:
    """A model, and a run that restores from there."""
    places = {key: str(place) for key, place in source.items()}
    config: dict[str, Any] = {"version": 1, "restore": {**places, "policy": policy or {}}}
    if manager is not None:
        config["manager"] = {"directory": str(manager), "save": {"every_epochs": 1}}
    model = build(classes)
    return model, tfckpt.from_config(config, model=model)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    fit(model := build(), 2, tfckpt.callbacks.resume(model, place, verbose=0))
    return place


@pytest.fixture
def zoo(trained, tmp_path) -> Path:
    """A training of two epochs, in a directory of its own."""
    return shutil.copytree(trained, tmp_path / "zoo")


@pytest.mark.parametrize(("policy", "managed"), [(BODY, True), (SKIP, False)])
def test_a_fine_tune_trains_as_in_plain_keras(zoo, tmp_path, capsys, policy, managed) -> None:
    pretrained, plain = build(), build(5)
    tfckpt.Checkpoint(model=pretrained).restore(str(zoo / "ckpt-2"))
    plain.get_layer("body").set_weights(pretrained.get_layer("body").get_weights())
    more = {"batch_size": 4, "shuffle": False, "verbose": 0, "epochs": 1}
    y = np.repeat(Y[:, :1], 5, 1)
    expected = plain.fit(X, y, **more)
    where = tmp_path / "tuned" if managed else None
    model, run = start({"path": zoo / "ckpt-2"}, policy, 5, where)
    history = model.fit(X, y, **more, callbacks=[run.callback()])
    assert history.epoch == [0]
    assert history.history == expected.history
    assert int(model.optimizer.iterations.numpy()) == STEPS
    np.testing.assert_equal(model.get_weights(), plain.get_weights())
    assert f"\n{WEIGHTS}\n" in capsys.readouterr().out
    assert run.report.training == WEIGHTS


def test_plan_and_report_say_it_under_their_head_and_in_json(zoo) -> None:
    for policy in ({"api": "read"}, {"training_state": []}):
        _, run = start({"directory": zoo}, policy, manager=zoo)
        report = run.restore()
        assert (report.training, report.plan.training_state, run.epoch) == (VALUES, (), 0)
    _, run = start({"path": zoo / "ckpt-2"}, BODY)
    plan = run.plan()
    above, line, _ = str(plan).partition(f"\n{WEIGHTS}\n\n")
    assert line
    assert "LOADED" not in above
    shown = plan.to_json()
    assert (shown["training"], shown["training_state"]) == (WEIGHTS, [])
    report = run.restore()
    assert f"\n{WEIGHTS}\n" in str(report)
    assert report.to_json()["training"] == WEIGHTS


# How the run's own directory is spelt: as source, and as that of the manager.
SPELT: dict[str, Callable[[Any], Any]] = {
    "slash": lambda zoo: ({"directory": zoo}, f"{zoo}/"),
    "dots": lambda zoo: ({"directory": zoo.parent / "x" / ".." / "zoo"}, zoo),
    "path": lambda zoo: ({"path": zoo / "ckpt-2"}, zoo),
    "link": lambda zoo: ({"path": zoo / "ckpt-2"}, zoo.parent / "link"),
    "scheme": lambda zoo: ({"directory": f"file://{zoo}"}, zoo),
}


def test_the_runs_own_directory_is_resumed_however_it_is_spelt(zoo) -> None:
    (zoo.parent / "link").symlink_to(zoo)
    (zoo.parent / "x").mkdir()
    for name, spelt in SPELT.items():
        source, manager = spelt(zoo)
        _, run = start(source, manager=manager)
        assert run.plan().training == RESUMED, name
    model, run = start(source, manager=manager)
    assert fit(model, 3, run.callback(verbose=0)) == list(range(3))
    assert run.report.training == RESUMED


def test_it_says_where_the_training_resumes(tmp_path) -> None:
    def said(where: Path, **policy: Any) -> str:
        source = {"directory": where}
        return start(source, policy, manager=where)[1].plan().training

    for place in ((0, 1), (1, 2)):
        model, where = build(), tmp_path / str(place)
        callback = tfckpt.callbacks.resume(model, where, save_freq=1, verbose=0)
        with pytest.raises(KeyboardInterrupt):
            fit(model, 3, callback, stop(keras, *place))
    all_of_it, after = ", with its callbacks, iterator and seeds", "after 1 epoch and 2 batches"
    assert said(tmp_path / "(0, 1)") == f"training resumes after 1 batch{all_of_it}"
    assert said(where) == f"training resumes {after}{all_of_it}"
    again = f"training resumes {after}; epoch 2 starts again"
    assert said(where, training_state=["epoch"]) == again
    assert said(where, training_state=["epoch", "seeds"]) == f"{again}, with its seeds"


def test_a_loop_is_told_which_of_its_objects_came_back(tmp_path) -> None:
    config = {"version": 1, "manager": {"directory": str(tmp_path / "a")}}
    source = {"restore": {"directory": str(tmp_path / "a")}}
    tfckpt.from_config(config, weight=tf.Variable([1.0]), step=tf.Variable(40)).save()
    objects = {"weight": tf.Variable([1.0]), "step": tf.Variable(0)}
    assert tfckpt.restore({**config, **source}, **objects).training == (
        "training resumes after step 40"
    )
    objects["step"].assign(0)
    other = tfckpt.restore({"version": 1, **source}, **objects)
    assert other.training == "step and weight only, no other training state"
    assert int(objects["step"]) == 40


def test_an_epoch_whose_loss_two_versions_count_is_said(tmp_path, monkeypatch, caplog) -> None:
    """Keras 3.1 takes the mean over batches, later versions over examples."""
    for version in ("3.1.1", "3.15.0"):
        monkeypatch.setattr(keras, "__version__", version)
        callback = tfckpt.callbacks.resume(model := build(), tmp_path, save_freq=1, verbose=0)
        if version == "3.1.1":
            with pytest.raises(KeyboardInterrupt):
                fit(model, 2, callback, stop(keras, 1, 1))
    fit(model, 2, callback)
    (said,) = [text for text in caplog.messages if "counts the loss" in text]
    assert "saved within an epoch by Keras 3.1.1" in said


KEY = "a policy with `optimizer: {hyperparameters: config}` keeps the values from your code"
RATE = f"optimizer/learning_rate was 0.5 and is 0.05, as in the checkpoint; {KEY}"


@pytest.fixture
def warnings(caplog) -> Callable[[], list[str]]:
    """What was warned of since the last call."""

    def since() -> list[str]:
        found = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        caplog.clear()
        return found

    return since


def test_a_rate_of_the_code_that_is_replaced_is_said(flavour, tmp_path, capsys, warnings) -> None:
    runs = runs_of(flavour, tmp_path / "run")
    model, first = runs(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))

    def again(rate: float) -> Any:
        model, run = runs()
        model.compile(flavour.optimizers.Adam(rate), "mse", run_eagerly=True)
        return model, run

    model, second = again(0.5)  # by `fit`, among its lines
    fit(model, 2, second.callback())
    assert f"\n{RATE}\n" in capsys.readouterr().out
    assert warnings() == []
    assert float(model.optimizer.learning_rate) == np.float32(0.05)
    model, same = again(0.05)
    fit(model, 2, same.callback())
    assert "learning_rate" not in capsys.readouterr().out
    report = again(0.5)[1].restore()  # a loop is warned once
    assert warnings() == [f"{report.path}: {RATE}"]
    assert report.replaced == {"optimizer/learning_rate": (0.5, 0.05)}
    assert RATE in str(report)
    shown = {"name": "optimizer/learning_rate", "code": 0.5, "checkpoint": 0.05}
    assert report.to_json()["replaced"] == [shown]
    path, (model, _) = str(tmp_path / "run" / "ckpt-1"), again(0.5)  # the drop-in classes warn
    report = tfckpt.Checkpoint(model=model).restore(path).report
    keys = 'optimizer={"hyperparameters": "config"}'
    assert warnings() == [f"{path}: {RATE}: `tfckpt.restore({path!r}, model=model, {keys})`"]
    assert report.replacements == RATE
    checkpoint = tfckpt.Checkpoint(model=again(0.5)[0])
    tfckpt.CheckpointManager(checkpoint, tmp_path / "run", 3).restore_or_initialize()
    assert [RATE in line for line in warnings()] == [True]
