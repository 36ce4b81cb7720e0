"""``run.callback()`` in ``fit``: restores at the start, resumes the epoch, saves when due."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.fits import STEPS, X, Y, fit, runs_of, saved, state

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    return runs_of(flavour, tmp_path / "run")


def test_training_that_is_resumed_comes_to_the_same_as_training_through(run, flavour) -> None:
    whole, _ = run()
    fit(whole, 5)
    model, first = run(every_epochs=1)
    assert fit(model, 2, first.callback(verbose=0)) == [0, 1]
    model, second = run(every_epochs=1)
    assert fit(model, 5, second.callback(verbose=0)) == [0, 1, 2, 3, 4]
    np.testing.assert_equal(state(model), state(whole))
    assert (second.report.epoch, second.epoch) == (2, 5)
    assert saved(second) == [f"ckpt-{number}" for number in range(1, 6)]


def test_what_was_interrupted_resumes_at_the_epoch_that_was_saved(run, stop) -> None:
    whole, _ = run()
    fit(whole, 4)
    model, first = run(every_epochs=1)
    with pytest.raises(KeyboardInterrupt):
        fit(model, 4, first.callback(verbose=0), stop(2, 1))
    model, second = run(every_epochs=1)
    assert fit(model, 4, second.callback(verbose=0)) == [0, 1, 2, 3]
    np.testing.assert_equal(state(model), state(whole))


def test_another_fit_starts_where_its_caller_says(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 3, first.callback(verbose=0))
    model, second = run()
    callback = second.callback(verbose=0)
    assert fit(model, 4, callback) == [0, 1, 2, 3]
    assert int(model.optimizer.iterations.numpy()) == 4 * STEPS
    assert fit(model, 2, callback) == [0, 1]
    assert fit(model, 2, second.callback(verbose=0)) == [0, 1]
    assert fit(model, 2) == [0, 1]
    assert fit(model, 7, callback, initial_epoch=5) == [5, 6]


def test_another_fit_after_an_interrupted_one_goes_on_from_the_last_save(run, stop) -> None:
    model, first = run(every_epochs=1)
    fit(model, 3, first.callback(verbose=0))
    model, second = run()
    with pytest.raises(KeyboardInterrupt):
        fit(model, 6, second.callback(verbose=0), stop(4, 1))
    assert fit(model, 5, second.callback(verbose=0)) == [0, 1, 2, 3, 4]
    assert int(model.optimizer.iterations.numpy()) == 5 * STEPS


def test_a_run_that_is_over_has_nothing_left_to_train(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run(every_epochs=1)
    assert fit(model, 2, second.callback(verbose=0)) == [0, 1]
    assert int(model.optimizer.iterations.numpy()) == 2 * STEPS
    assert fit(model, 1) == [0]


def test_what_was_restored_before_is_not_restored_again(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run()
    report = second.restore()
    kernel = model.trainable_variables[0]
    kernel.assign(kernel * 0)
    assert fit(model, 3, second.callback(verbose=0)) == [0, 1, 2]
    assert int(model.optimizer.iterations.numpy()) == 3 * STEPS
    assert second.report is report
    assert np.abs(kernel.numpy()).max() < 0.5  # three steps of Adam away from zero


@pytest.mark.parametrize("policy", [{"api": "read"}, {"training_state": []}])
def test_what_is_no_resumption_begins_at_the_beginning(run, policy) -> None:
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run(policy)
    assert fit(model, 1, second.callback(verbose=0)) == [0]
    assert int(model.optimizer.iterations.numpy()) == 3 * STEPS


def test_it_saves_every_so_many_epochs_and_steps(run) -> None:
    model, first = run(every_epochs=2)
    fit(model, 5, first.callback(verbose=0))
    assert saved(first) == ["ckpt-1", "ckpt-2"]
    model, second = run(every_steps=2)
    assert fit(model, 6, second.callback(verbose=0)) == [0, 1, 2, 3, 4, 5]
    assert int(model.optimizer.iterations.numpy()) == 6 * STEPS
    assert saved(second) == ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4", "ckpt-5"]
    _, third = run()
    report = third.restore()
    assert (report.epoch, report.step) == (5, 6 * STEPS)
    assert report.metrics["loss"] > 0


def test_it_says_what_it_does_and_can_be_silent(run, capsys) -> None:
    model, first = run(every_epochs=1)
    fit(model, 1, first.callback())
    out = capsys.readouterr().out
    assert "no checkpoint yet" in out
    assert "saved ckpt-1" in out
    model, second = run(every_epochs=1)
    fit(model, 2, second.callback())
    assert "ckpt-1 (epoch 1)" in capsys.readouterr().out
    model, third = run(every_epochs=1)
    fit(model, 3, third.callback(verbose=0))
    assert capsys.readouterr().out == ""


def test_a_config_that_only_saves_restores_nothing_and_says_so(flavour, tmp_path, capsys) -> None:
    manager = {"directory": str(tmp_path / "run"), "save": {"every_epochs": 1}}
    for already in range(2):
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
        model.compile("sgd", "mse")
        only_saves = tfckpt.from_config({"version": 1, "manager": manager}, model=model)
        callback = only_saves.callback()
        assert fit(model, 2, callback) == [0, 1]
        assert "no `restore` section" in capsys.readouterr().out
        assert only_saves.report is None
        assert len(saved(only_saves)) == 2 * (already + 1)


def test_it_names_a_path_with_nothing_there(flavour, tmp_path, capsys) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
    model.compile("sgd", "mse")
    restore = {"path": str(tmp_path / "imagnet" / "ckpt-900"), "if_none": "initialize"}
    run = tfckpt.from_config({"version": 1, "restore": restore}, model=model)
    fit(model, 1, run.callback())
    out = capsys.readouterr().out
    assert f"no checkpoint at {restore['path']}" in out
    assert "no checkpoint yet" in out


def test_damage_stops_the_fit_before_it_trains(run, tmp_path) -> None:
    model, first = run(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))
    (tmp_path / "run" / "ckpt-1.index").write_bytes(b"torn")
    model, second = run(every_epochs=1)
    before = [variable.numpy() for variable in model.trainable_variables]
    with pytest.raises(tfckpt.DamagedCheckpointError):
        fit(model, 2, second.callback(verbose=0))
    np.testing.assert_equal([v.numpy() for v in model.trainable_variables], before)
    assert saved(second) == ["ckpt-1"]


# Saves in the background


def test_a_save_that_fails_in_the_background_fails_the_fit(run, monkeypatch) -> None:
    model, first = run(every_epochs=1)

    def fail() -> None:
        raise tfckpt.SaveError("no space")

    monkeypatch.setattr(first.manager, "sync", fail)
    with pytest.raises(tfckpt.SaveError, match="no space"):
        fit(model, 1, first.callback(verbose=0))


def test_it_says_that_a_save_goes_on_in_the_background(run, capsys) -> None:
    model, first = run(every_epochs=1, enable_async=True)
    fit(model, 2, first.callback())
    assert "saving ckpt-2 in the background" in capsys.readouterr().out
    assert saved(first) == ["ckpt-1", "ckpt-2"]
    assert run()[1].restore().epoch == 2


def test_a_metric_per_class_does_not_end_the_training(tmp_path) -> None:
    import json

    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", "categorical_crossentropy", metrics=[keras.metrics.F1Score(name="f1")])
    save = {"every_epochs": 1, "every_steps": 1}
    config = {"version": 1, "manager": {"directory": str(tmp_path), "save": save}}
    run = tfckpt.from_config(config, model=model)
    x, y = np.ones((4, 2)), np.eye(3)[[0, 1, 2, 0]]
    model.fit(x, y, epochs=1, verbose=0, callbacks=[run.callback(verbose=0)])
    record = json.loads(Path(f"{run.manager.latest_checkpoint}.tfckpt.json").read_bytes())
    assert set(record["metrics"]) == {"loss"}


def test_a_callback_that_the_config_names_goes_on(flavour, tmp_path) -> None:
    class Curriculum(flavour.callbacks.Callback):
        level = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.level += 1
            if self.level == self.stop_at:
                raise KeyboardInterrupt

        stop_at = 0

    def train(stop_at: int = 0) -> Any:
        flavour.utils.set_random_seed(1)
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2)])
        model.compile("sgd", "mse")
        manager = {"directory": str(tmp_path), "save": {"every_steps": 1}}
        manager["callbacks"] = {"Curriculum": ["level"]}
        restore = {"directory": str(tmp_path), "if_none": "initialize"}
        run = tfckpt.from_config(
            {"version": 1, "manager": manager, "restore": restore}, model=model
        )
        curriculum = Curriculum()
        curriculum.stop_at = stop_at
        callbacks = [curriculum, run.callback(verbose=0)]
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
        return curriculum.level

    with pytest.raises(KeyboardInterrupt):
        train(stop_at=5)
    assert train() == 2 * STEPS
