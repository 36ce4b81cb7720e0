"""A restore from elsewhere begins a training; learning rates and late compiles are said."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.fits import STEPS, X, Y, fit, runs_of

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


WEIGHTS = "weights only: a new training begins"
VALUES = "weights and optimizer: a new training begins"
RESUMED = "training resumes after 6 epochs, with its callbacks, iterator and seeds"
BODY = {"include": ["model/**"], "exclude": ["model/head/**"]}
SKIP = {"include": ["model/**"], "on_shape_mismatch": "skip", "on_unexpected": "ignore"}


def build(keras: Any, classes: int = 2) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3, name="body"),
            keras.layers.Dense(classes, name="head"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.05), "mse")
    return model


@pytest.fixture
def zoo(flavour, tmp_path) -> Path:
    """A training of six epochs, in a directory of its own."""
    model = build(flavour)
    fit(model, 6, tfckpt.callbacks.resume(model, tmp_path / "zoo", verbose=0))
    return tmp_path / "zoo"


@pytest.fixture
def started(flavour) -> Callable[..., Any]:
    """``started(source, policy)``: a model, and a run that restores from there."""

    def start(
        source: dict[str, Any], policy: Any = None, classes: int = 2, manager: Any = None
    ) -> Any:
        model = build(flavour, classes)
        places = {key: str(place) for key, place in source.items()}
        config: dict[str, Any] = {"version": 1, "restore": {**places, "policy": policy or {}}}
        if manager is not None:
            config["manager"] = {"directory": str(manager), "save": {"every_epochs": 1}}
        return model, tfckpt.from_config(config, model=model)

    return start


@pytest.mark.parametrize("policy", [BODY, SKIP], ids=["exclude", "skip"])
@pytest.mark.parametrize("manager", [True, False], ids=["manager", "no manager"])
def test_a_fine_tune_trains_as_in_plain_keras(
    flavour, zoo, started, tmp_path, capsys, policy, manager
) -> None:
    pretrained = build(flavour)
    tfckpt.Checkpoint(model=pretrained).restore(str(zoo / "ckpt-6"))
    plain = build(flavour, 5)
    plain.get_layer("body").set_weights(pretrained.get_layer("body").get_weights())
    y = np.repeat(Y[:, :1], 5, 1)
    more = {"batch_size": 4, "shuffle": False, "verbose": 0, "epochs": 2}
    expected = plain.fit(X, y, **more)

    where = tmp_path / "tuned" if manager else None
    model, run = started({"path": zoo / "ckpt-6"}, policy, 5, where)
    history = model.fit(X, y, **more, callbacks=[run.callback()])
    assert history.epoch == [0, 1]
    assert history.history == expected.history
    assert int(model.optimizer.iterations.numpy()) == 2 * STEPS
    for one, other in zip(model.weights, plain.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    said = capsys.readouterr().out
    assert f"\n{WEIGHTS}\n" in said
    assert run.report.training == WEIGHTS


@pytest.mark.parametrize("policy", [{"api": "read"}, {"training_state": []}])
def test_what_the_policy_leaves_out_of_the_runs_own_is_said(zoo, started, policy) -> None:
    _, run = started({"directory": zoo}, policy, manager=zoo)
    report = run.restore()
    assert report.training == VALUES
    assert report.plan.training_state == ()
    assert run.epoch == 0


@pytest.mark.parametrize(
    "spelt",
    [
        lambda zoo: ({"directory": zoo}, f"{zoo}/"),
        lambda zoo: ({"directory": zoo.parent / "x" / ".." / "zoo"}, zoo),
        lambda zoo: ({"path": zoo / "ckpt-6"}, zoo),
        lambda zoo: ({"path": zoo / "ckpt-6"}, zoo.parent / "link"),
        lambda zoo: ({"directory": f"file://{zoo}"}, zoo),
    ],
    ids=["slash", "dots", "path", "link", "scheme"],
)
def test_the_runs_own_directory_is_resumed_however_it_is_spelt(zoo, started, spelt) -> None:
    (zoo.parent / "link").symlink_to(zoo)
    (zoo.parent / "x").mkdir()
    source, manager = spelt(zoo)
    model, run = started(source, manager=manager)
    assert fit(model, 8, run.callback(verbose=0)) == list(range(8))
    assert run.report.training == RESUMED


@pytest.mark.parametrize(
    ("at", "policy", "said"),
    [
        ((1, 2), {}, "after 1 epoch and 2 batches, with its callbacks, iterator and seeds"),
        ((0, 1), {}, "after 1 batch, with its callbacks, iterator and seeds"),
        (
            (1, 2),
            {"training_state": ["epoch", "seeds"]},
            "after 1 epoch and 2 batches; epoch 2 starts again, with its seeds",
        ),
        (
            (1, 2),
            {"training_state": ["epoch"]},
            "after 1 epoch and 2 batches; epoch 2 starts again",
        ),
    ],
)
def test_it_says_where_the_training_resumes(flavour, tmp_path, stop, at, policy, said) -> None:
    model = build(flavour)
    callback = tfckpt.callbacks.resume(model, tmp_path / "run", save_freq=1, verbose=0)
    with pytest.raises(KeyboardInterrupt):
        fit(model, 3, callback, stop(*at))
    config = {
        "version": 1,
        "manager": {"directory": str(tmp_path / "run")},
        "restore": {"directory": str(tmp_path / "run"), "policy": policy},
    }
    plan = tfckpt.plan(config, model=build(flavour))
    assert plan.training == f"training resumes {said}"


def test_plan_and_report_say_it_under_their_head_and_in_json(zoo, started) -> None:
    _, run = started({"path": zoo / "ckpt-6"}, BODY)
    plan = run.plan()
    above, line, _ = str(plan).partition(f"\n{WEIGHTS}\n\n")
    assert line
    assert "LOADED" not in above
    shown = plan.to_json()
    assert (shown["training"], shown["training_state"]) == (WEIGHTS, [])
    report = run.restore()
    assert f"\n{WEIGHTS}\n" in str(report)
    assert report.to_json()["training"] == WEIGHTS


def test_a_loop_is_told_which_of_its_objects_came_back(tmp_path) -> None:
    import tensorflow as tf

    def objects() -> dict[str, Any]:
        return {"weight": tf.Variable([1.0]), "step": tf.Variable(0)}

    config = {"version": 1, "manager": {"directory": str(tmp_path / "a")}}
    first = objects()
    first["step"].assign(40)
    tfckpt.from_config(config, **first).save()
    source = {"restore": {"directory": str(tmp_path / "a")}}
    own = tfckpt.restore({**config, **source}, **objects())
    assert own.training == "training resumes after step 40"
    second = objects()
    other = tfckpt.restore({"version": 1, **source}, **second)
    assert other.training == "step and weight only, no other training state"
    assert int(second["step"].numpy()) == 40


@pytest.mark.parametrize("flavour", ["keras3"], indirect=True)
def test_an_epoch_whose_loss_two_versions_count_is_said(
    flavour, stop, tmp_path, monkeypatch, caplog
) -> None:
    """Keras 3.1 takes the mean over batches, later versions over examples."""
    data = {"x": X, "y": Y, "batch_size": 4, "shuffle": False, "verbose": 0}
    model, again = build(flavour), build(flavour)
    callback = tfckpt.callbacks.resume(model, tmp_path, save_freq=1, verbose=0)
    with monkeypatch.context() as older:
        older.setattr(flavour, "__version__", "3.1.1")
        with pytest.raises(KeyboardInterrupt):
            model.fit(**data, epochs=2, callbacks=[stop(1, 1), callback])
    monkeypatch.setattr(flavour, "__version__", "3.15.0")
    callback = tfckpt.callbacks.resume(again, tmp_path, save_freq=1, verbose=0)
    again.fit(**data, epochs=2, callbacks=[callback])
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


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    """``run(rate)``: a model with that rate, and a run of a training of an epoch with 0.05."""
    build = runs_of(flavour, tmp_path / "run")
    model, first = build(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))

    def again(rate: Any, policy: Any = None) -> Any:
        model, run = build(policy)
        model.compile(flavour.optimizers.Adam(rate), "mse")
        return model, run

    return again


def rate_of(model: Any) -> float:
    return float(f"{float(model.optimizer.learning_rate.numpy()):.6g}")


def test_fit_says_it_among_its_lines(run, capsys, warnings) -> None:
    model, second = run(0.5)
    fit(model, 2, second.callback())
    assert f"\n{RATE}\n" in capsys.readouterr().out
    assert warnings() == []
    assert rate_of(model) == 0.05
    model, same = run(0.05)
    fit(model, 2, same.callback())
    assert "learning_rate" not in capsys.readouterr().out


def test_a_loop_is_warned_once_and_the_report_has_it(run, warnings) -> None:
    _, second = run(0.5)
    report = second.restore()
    assert warnings() == [f"{report.path}: {RATE}"]
    assert report.replaced == {"optimizer/learning_rate": (0.5, 0.05)}
    assert RATE in str(report)
    shown = {"name": "optimizer/learning_rate", "code": 0.5, "checkpoint": 0.05}
    assert report.to_json()["replaced"] == [shown]


def test_the_drop_in_classes_warn(run, tmp_path, warnings) -> None:
    path = str(tmp_path / "run" / "ckpt-1")
    model, _ = run(0.5)
    report = tfckpt.Checkpoint(model=model).restore(path).report
    policy = 'policy={"optimizer": {"hyperparameters": "config"}}'
    assert warnings() == [f"{path}: {RATE}: `tfckpt.restore({path!r}, model=…, {policy})`"]
    assert report.replacements == RATE
    model, _ = run(0.5)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), tmp_path / "run", 3)
    manager.restore_or_initialize()
    assert [RATE in line for line in warnings()] == [True]


@pytest.mark.parametrize("saved", [True, False], ids=["schedule saved", "rate saved"])
def test_a_schedule_against_a_rate_is_left_and_said(flavour, tmp_path, saved, warnings) -> None:
    def build(schedule: bool) -> Any:
        rate: Any = 0.05
        if schedule:
            rate = flavour.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
        model = flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(1, name="a")])
        model.compile(flavour.optimizers.SGD(rate), "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    path = tfckpt.Checkpoint(model=build(saved)).save(str(tmp_path / "ckpt"))
    model = build(not saved)
    report = tfckpt.restore(path, model=model)
    assert report.plan.ok
    rate = model.optimizer.learning_rate
    assert float(rate) == pytest.approx(0.05 if saved else 0.1)
    side = "the model, which keeps it" if saved else "the checkpoint, where it stays"
    assert any(f"only in {side}: optimizer/learning_rate" in line for line in warnings())

    policy: dict[str, Any] = {"on_missing": "error", "on_unexpected": "error"}
    config: dict[str, Any] = {"version": 1, "restore": {"path": path, "policy": policy}}
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(config, model=model)
    rates = [step for step in refused.value.plan.errors if "learning_rate" in step.entry.name]
    assert len(rates) == len(refused.value.plan.errors) > 0
    hint = "optimizer: {hyperparameters: config} keeps the value from your code, or its schedule"
    assert {step.hint for step in rates} == {hint}
    policy["optimizer"] = {"hyperparameters": "config"}
    assert tfckpt.restore(config, model=model).plan.ok
