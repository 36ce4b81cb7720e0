"""``run.callback()`` in ``fit``: restores at the start, resumes the epoch, saves when due."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.stack([X.sum(1), X.prod(1)], 1)
STEPS = 3  # of an epoch


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    """``run(every_epochs=1)``: a new model and a new run of one directory, as after a restart."""

    def build(
        policy: dict[str, Any] | None = None, *, enable_async: bool = False, **save: Any
    ) -> Any:
        flavour.utils.set_random_seed(1)
        model = flavour.Sequential(
            [flavour.Input((4,)), flavour.layers.Dense(3, name="a"), flavour.layers.Dense(2)]
        )
        model.compile(flavour.optimizers.Adam(0.05), "mse")
        config = {
            "version": 1,
            "manager": {
                "directory": str(tmp_path / "run"),
                "save": save,
                "enable_async": enable_async,
            },
            "restore": {
                "directory": str(tmp_path / "run"),
                "if_none": "initialize",
                "policy": policy or {},
            },
        }
        return model, tfckpt.from_config(config, model=model)

    return build


def fit(model: Any, epochs: int, *callbacks: Any, **more: Any) -> list[int]:
    """The epochs of which History knows."""
    more = {"batch_size": 4, "shuffle": False, "verbose": 0, **more}
    return list(model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **more).epoch)


def state(model: Any) -> list[np.ndarray]:
    return [v.numpy() for v in (*model.trainable_variables, *model.optimizer.variables)]


def saved(run: Any) -> list[str]:
    return [Path(path).name for path in run.manager.checkpoints]


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
    assert int(model.optimizer.iterations) == 4 * STEPS
    assert fit(model, 2, callback) == [0, 1]
    assert fit(model, 2, second.callback(verbose=0)) == [0, 1]
    assert fit(model, 2) == [0, 1]
    assert fit(model, 7, callback, initial_epoch=5) == [5, 6]


def test_another_fit_after_an_interrupted_one_starts_where_its_caller_says(run, stop) -> None:
    model, first = run(every_epochs=1)
    fit(model, 3, first.callback(verbose=0))
    model, second = run()
    with pytest.raises(KeyboardInterrupt):
        fit(model, 6, second.callback(verbose=0), stop(4, 1))
    before = int(model.optimizer.iterations)
    assert fit(model, 1, second.callback(verbose=0)) == [0]
    assert int(model.optimizer.iterations) == before + STEPS  # and it was not restored again


def test_a_run_that_is_over_has_nothing_left_to_train(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run(every_epochs=1)
    assert fit(model, 2, second.callback(verbose=0)) == [0, 1]
    assert int(model.optimizer.iterations) == 2 * STEPS
    assert fit(model, 1) == [0]


def test_what_was_restored_before_is_not_restored_again(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run()
    report = second.restore()
    kernel = model.trainable_variables[0]
    kernel.assign(kernel * 0)
    assert fit(model, 3, second.callback(verbose=0)) == [0, 1, 2]
    assert int(model.optimizer.iterations) == 3 * STEPS
    assert second.report is report
    assert np.abs(kernel.numpy()).max() < 0.5  # three steps of Adam away from zero


@pytest.mark.parametrize("policy", [{"api": "read"}, {"training_state": []}])
def test_what_is_no_resumption_begins_at_the_beginning(run, policy) -> None:
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run(policy)
    assert fit(model, 1, second.callback(verbose=0)) == [0]
    assert int(model.optimizer.iterations) == 3 * STEPS


def test_it_saves_every_so_many_epochs_and_steps(run) -> None:
    model, first = run(every_epochs=2)
    fit(model, 5, first.callback(verbose=0))
    assert saved(first) == ["ckpt-1", "ckpt-2"]
    model, second = run(every_steps=2)
    assert fit(model, 6, second.callback(verbose=0)) == [0, 1, 2, 3, 4, 5]
    assert int(model.optimizer.iterations) == 6 * STEPS
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
    assert f"nothing at {restore['path']}" in out
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


# Signals


@pytest.fixture
def come() -> Iterator[Callable[..., None]]:
    """``come(number)``: a signal comes, to a handler that is watching; all are put back."""
    meant = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in meant.items()}

    def to_this_process(number: int = signal.SIGTERM) -> None:
        assert signal.getsignal(number) != meant[number], "it would end the tests"
        os.kill(os.getpid(), number)

    yield to_this_process
    gc.collect()
    assert signal.set_wakeup_fd(-1) == -1
    for number, handler in meant.items():
        assert signal.signal(number, before[number]) == handler


@pytest.fixture
def on(flavour) -> Callable[..., Any]:
    """``on("on_epoch_end", do)``: a callback that does this each time."""

    def build(event: str, do: Callable[[], None]) -> Any:
        method = {event: lambda self, *arguments, **more: do()}
        return type("On", (flavour.callbacks.Callback,), method)()

    return build


SIGNALS: dict[str, Any] = {"on_signal": ["SIGTERM", "SIGINT"], "grace_seconds": 1000}


@pytest.mark.parametrize(
    ("number", "ended", "background"),
    [
        (signal.SIGTERM, SystemExit, False),
        (signal.SIGTERM, SystemExit, True),
        (signal.SIGINT, KeyboardInterrupt, False),
    ],
)
def test_a_signal_saves_at_the_end_of_the_batch_and_the_run_is_resumed(
    run, on, come, number, ended, background
) -> None:
    model, first = run(every_epochs=1, enable_async=background, **SIGNALS)
    batches = []

    def in_the_second_batch_of_the_second_epoch() -> None:
        batches.append(1)
        if len(batches) == STEPS + 2:
            come(number)

    with pytest.raises(ended) as error:
        fit(
            model,
            4,
            first.callback(verbose=0),
            on("on_train_batch_begin", in_the_second_batch_of_the_second_epoch),
        )
    assert len(batches) == STEPS + 2
    assert getattr(error.value, "code", 143) == 143
    assert saved(first) == ["ckpt-1", "ckpt-2"]
    again, second = run()
    report = second.restore()
    assert (report.step, report.epoch) == (STEPS + 2, 1)
    np.testing.assert_equal(state(again), state(model))
    assert fit(again, 4, second.callback(verbose=0)) == [0, 1, 2, 3]
    assert int(again.optimizer.iterations) == 4 * STEPS
    whole, _ = run()
    fit(whole, 4)
    np.testing.assert_equal(state(again), state(whole))
    del error


def test_a_signal_in_validation_saves_the_epoch_as_finished(run, on, come) -> None:
    model, first = run(every_steps=STEPS, **SIGNALS)
    callbacks = first.callback(verbose=0), on("on_test_begin", come)
    with pytest.raises(SystemExit):
        fit(model, 4, *callbacks, validation_data=(X, Y))
    # The same step is there before, saved by the batch in an epoch that was not finished.
    assert saved(first) == ["ckpt-1", "ckpt-2"]
    report = run()[1].restore()
    assert (report.step, report.epoch) == (STEPS, 1)
    assert "val_loss" in report.metrics


def test_a_signal_after_the_last_epoch_saves(run, on, come) -> None:
    model, first = run(**SIGNALS)
    with pytest.raises(SystemExit):
        fit(model, 1, first.callback(verbose=0), on("on_epoch_end", come))
    assert saved(first) == ["ckpt-1"]
    assert run()[1].restore().epoch == 1


def test_signals_are_watched_while_it_trains_and_not_otherwise(run, on, come) -> None:
    model, first = run(**SIGNALS)
    watched = []

    def look() -> None:
        watched.append(signal.getsignal(signal.SIGTERM) != signal.SIG_DFL)

    callback = first.callback(verbose=0)
    fit(model, 1, callback, on("on_train_batch_begin", look))
    look()
    model.evaluate(X, Y, verbose=0, callbacks=[callback, on("on_test_batch_begin", look)])
    model.predict(X, verbose=0, callbacks=[callback, on("on_predict_batch_begin", look)])
    assert watched == [True] * STEPS + [False] * 3


def test_a_fit_that_fails_has_put_the_handlers_back(run, on, come) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    model, first = run(**SIGNALS)
    with pytest.raises(ZeroDivisionError):
        fit(model, 1, first.callback(verbose=0), on("on_train_batch_begin", fail))
    gc.collect()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert fit(model, 1, first.callback(verbose=0)) == [0]


def test_of_two_fits_one_inside_the_other_both_save(run, on, come, flavour, tmp_path) -> None:
    model, outer = run(**SIGNALS)
    other = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
    other.compile("sgd", "mse")
    manager = {"directory": str(tmp_path / "other"), "save": SIGNALS}
    inner = tfckpt.from_config({"version": 1, "manager": manager}, model=other)

    def train_the_other() -> None:
        assert fit(other, 1, inner.callback(verbose=0), on("on_epoch_begin", come)) == [0]

    with pytest.raises(SystemExit):
        fit(model, 4, outer.callback(verbose=0), on("on_train_batch_begin", train_the_other))
    assert (saved(inner), saved(outer)) == (["ckpt-1"], ["ckpt-1"])
    assert int(model.optimizer.iterations) == 1
    assert int(other.optimizer.iterations) == STEPS


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
