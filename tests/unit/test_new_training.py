"""A restore from elsewhere brings values, and a new training begins; the run's own is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.fits import STEPS, X, Y, fit

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


def test_a_directory_that_is_not_the_runs_begins_a_training_with_its_values(
    zoo, started, tmp_path, capsys
) -> None:
    model, run = started({"directory": zoo}, manager=tmp_path / "other")
    assert fit(model, 2, run.callback()) == [0, 1]
    assert int(model.optimizer.iterations.numpy()) == (6 + 2) * STEPS  # the policy takes it
    assert f"{VALUES}; to resume the old one, list `training_state`" in capsys.readouterr().out


@pytest.mark.parametrize("policy", [{"api": "read"}, {"training_state": []}])
def test_what_the_policy_leaves_out_of_the_runs_own_is_said(zoo, started, policy) -> None:
    _, run = started({"directory": zoo}, policy, manager=zoo)
    report = run.restore()
    assert report.training == VALUES
    assert report.plan.training_state == ()
    assert run.epoch == 0


def test_training_state_that_is_written_out_is_taken_from_anywhere(zoo, started) -> None:
    state = ["epoch", "batch", "iterator", "seeds", "callbacks"]
    model, run = started({"path": zoo / "ckpt-6"}, {"training_state": state})
    assert fit(model, 8, run.callback(verbose=0)) == list(range(8))
    assert run.report.training == RESUMED
    assert int(model.optimizer.iterations.numpy()) == 8 * STEPS


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


def test_another_name_in_the_same_directory_is_another_run(flavour, zoo, started) -> None:
    named = {"directory": str(zoo), "checkpoint_name": "tuned"}
    model = build(flavour)
    config = {"version": 1, "manager": named, "restore": {"directory": str(zoo)}}
    run = tfckpt.from_config(config, model=model)
    assert fit(model, 2, run.callback(verbose=0)) == [0, 1]
    assert run.report.training.startswith(VALUES)


def test_the_first_start_begins_and_every_later_one_resumes(flavour, zoo, tmp_path) -> None:
    own = str(tmp_path / "own")
    sources = [{"directory": own}, {"path": str(zoo / "ckpt-6")}]
    config = {
        "version": 1,
        "manager": {"directory": own, "save": {"every_epochs": 1}},
        "restore": {"first_of": sources},
    }
    said = []
    for epochs in (2, 3):
        model = build(flavour)
        run = tfckpt.from_config(config, model=model)
        assert fit(model, epochs, run.callback(verbose=0)) == list(range(epochs))
        said.append(run.report.training)
    assert said[0].startswith(VALUES)
    assert said[1] == "training resumes after 2 epochs, with its callbacks, iterator and seeds"


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


def test_the_drop_in_classes_know_of_no_training(flavour, zoo) -> None:
    report = tfckpt.Checkpoint(model=build(flavour)).restore(str(zoo / "ckpt-6")).report
    assert report.training == ""
    assert "training" not in str(report).replace("training/iterator", "")


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
