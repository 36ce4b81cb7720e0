"""`run.callback()` in `fit`: restores at the start, saves when due and at a signal."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.fits import STEPS, X, Y, fit, runs_of, saved, state

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    return runs_of(flavour, tmp_path / "run")


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


def test_a_save_that_fails_in_the_background_fails_the_fit(run, monkeypatch) -> None:
    model, first = run(every_epochs=1)

    def fail() -> None:
        raise tfckpt.SaveError("no space")

    monkeypatch.setattr(first.manager, "sync", fail)
    with pytest.raises(tfckpt.SaveError, match="no space"):
        fit(model, 1, first.callback(verbose=0))


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
    assert int(again.optimizer.iterations.numpy()) == 4 * STEPS
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
    assert int(model.optimizer.iterations.numpy()) == 1
    assert int(other.optimizer.iterations.numpy()) == STEPS


OVER = "nothing to train; raise `epochs`, or start over with start_over=True"


def whole(model: Any, epochs: int, *callbacks: Any) -> Any:
    more = {"batch_size": 4, "shuffle": False, "verbose": 0, "epochs": epochs}
    return model.fit(X, Y, callbacks=list(callbacks), **more)


def test_epochs_that_a_loop_has_done_are_counted(run, capsys) -> None:
    _, first = run()
    first.save(epoch=3)
    model, second = run()
    assert fit(model, 2, second.callback()) == []
    assert f"\n3 of 2 epochs are done: {OVER}\n" in capsys.readouterr().out


def test_a_training_that_a_callback_has_ended_says_how_to_go_on(run, flavour, capsys) -> None:
    def early() -> Any:
        return flavour.callbacks.EarlyStopping("loss", min_delta=100.0, patience=1)

    model, first = run(every_epochs=1)
    assert fit(model, 9, early(), first.callback(verbose=0)) == [0, 1]
    model, second = run(every_epochs=1)
    assert fit(model, 9, early(), second.callback()) == [0, 1]
    said = capsys.readouterr().out
    assert "a callback stopped the training after 2 of 9 epochs: nothing to train; to" in said
    assert "set `training_state: [epoch, batch, iterator, seeds]` in the policy" in said
    policy = {"training_state": ["epoch", "batch", "iterator", "seeds"]}
    model, third = run(policy, every_epochs=1)
    assert fit(model, 9, early(), third.callback(verbose=0)) == [2, 3]
    assert int(model.optimizer.iterations.numpy()) == 4 * STEPS


def test_an_interrupted_fit_before_another_has_its_history_again(run, stop) -> None:
    model, first = run(every_epochs=1)
    callback = first.callback(verbose=0)
    with pytest.raises(KeyboardInterrupt):
        fit(model, 3, callback, stop(1, 1))
    losses = model.history.history["loss"]
    model.layers[-1].trainable = False
    model.compile(model.optimizer, "mse")
    fit(model, 2, callback)
    model, second = run(every_epochs=1)
    assert whole(model, 3, second.callback(verbose=0)).history["loss"] == losses


def test_start_over_restores_nothing_and_saves_go_on(run, capsys) -> None:
    plain, _ = run()
    fit(plain, 2)
    model, first = run(every_epochs=1)
    fit(model, 3, first.callback(verbose=0))
    model, second = run(every_epochs=1)
    callback = second.callback(start_over=True)
    assert fit(model, 2, callback) == [0, 1]
    np.testing.assert_equal(state(model), state(plain))
    said = capsys.readouterr().out
    assert (
        "start_over: nothing is restored; training starts from the model's current values" in said
    )
    assert f"saves continue after {first.manager.directory}/ckpt-3\n" in said
    assert "saved ckpt-4" in said
    assert str(second.report).startswith("start_over: nothing is restored; training starts from")
    assert fit(model, 1, callback) == [0]  # and is not restored now
    assert int(model.optimizer.iterations.numpy()) == 3 * STEPS
    model, third = run(every_epochs=1)
    assert third.restore().path.endswith("ckpt-6")


def test_start_over_after_a_restore_is_a_contradiction(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))
    model, second = run(every_epochs=1)
    second.restore()
    with pytest.raises(tfckpt.TfckptError, match=r"restores nothing, but .*ckpt-1 is restored"):
        fit(model, 1, second.callback(verbose=0, start_over=True))
    assert saved(second) == ["ckpt-1"]
    assert int(model.optimizer.iterations.numpy()) == STEPS
