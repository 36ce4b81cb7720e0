"""`run.callback()` in `fit`: restores at the start, saves when due and at a signal."""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
from zoo.fits import STEPS, X, Y, fit, runs_of, saved, state

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def runs(tmp_path) -> Callable[..., Any]:
    """``runs(keras)(every_epochs=1)``: a new model and a new run of one directory."""
    return lambda keras: runs_of(keras, tmp_path / "run")


@pytest.fixture
def run(runs) -> Callable[..., Any]:
    return runs(keras)


def test_it_saves_every_so_many_epochs_and_steps_and_what_it_ends_with(run) -> None:
    model, first = run(every_epochs=2)
    fit(model, 3, first.callback(verbose=0))
    assert saved(first) == ["ckpt-1", "ckpt-2"]
    model, second = run(every_steps=2)
    assert fit(model, 4, second.callback(verbose=0)) == [0, 1, 2, 3]
    assert int(model.optimizer.iterations.numpy()) == 4 * STEPS
    assert saved(second) == ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4"]
    _, third = run()
    report = third.restore()
    assert (report.epoch, report.step) == (4, 4 * STEPS)
    assert report.metrics["loss"] > 0


def test_a_save_that_fails_in_the_background_fails_the_fit(run, monkeypatch) -> None:
    model, first = run(every_epochs=1)

    def fail() -> None:
        raise tfckpt.SaveError("no space")

    monkeypatch.setattr(first.manager, "sync", fail)
    with pytest.raises(tfckpt.SaveError, match="no space"):
        fit(model, 1, first.callback(verbose=0))


def test_a_metric_per_class_does_not_end_the_training(run) -> None:
    model, first = run(every_epochs=1, every_steps=1)
    f1 = keras.metrics.F1Score(name="f1")
    model.compile("sgd", "categorical_crossentropy", metrics=[f1], run_eagerly=True)
    fit(model, 1, first.callback(verbose=0))
    record = json.loads(Path(f"{first.manager.latest_checkpoint}.tfckpt.json").read_bytes())
    assert set(record["metrics"]) == {"loss"}


def test_a_callback_that_the_config_names_goes_on(run, tmp_path) -> None:
    class Curriculum(keras.callbacks.Callback):
        level = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.level += 1
            if self.level == stop_at:
                raise KeyboardInterrupt

    def train() -> int:
        manager = {"directory": str(tmp_path), "save": {"every_steps": 1}}
        manager["callbacks"] = {"Curriculum": ["level"]}
        restore = {"directory": str(tmp_path), "if_none": "initialize"}
        model, _ = run()
        config = {"version": 1, "manager": manager, "restore": restore}
        ours = tfckpt.from_config(config, model=model).callback(verbose=0)
        fit(model, 2, curriculum := Curriculum(), ours)
        return curriculum.level

    stop_at = 5
    with pytest.raises(KeyboardInterrupt):
        train()
    stop_at = 0
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


def on(keras: Any, event: str, do: Callable[[], Any]) -> Any:
    """A callback that does this each time."""
    method = {event: lambda self, *arguments, **more: do() and None}
    return type("On", (keras.callbacks.Callback,), method)()


SIGNALS: dict[str, Any] = {"on_signal": ["SIGTERM", "SIGINT"], "grace_seconds": 1000}


@pytest.mark.parametrize(
    ("flavor", "number", "ended", "background"),
    [
        ("keras", signal.SIGTERM, SystemExit, True),
        ("keras", signal.SIGINT, KeyboardInterrupt, False),
        ("tf_keras", signal.SIGTERM, SystemExit, False),
    ],
)
def test_a_signal_saves_at_the_end_of_the_batch_and_the_run_is_resumed(
    runs, come, flavor, number, ended, background
) -> None:
    flavour = importlib.import_module(flavor)
    run, batches = runs(flavour), []
    model, first = run(every_epochs=1, enable_async=background, **SIGNALS)

    def in_the_second_batch_of_the_second_epoch() -> None:
        batches.append(1)
        if len(batches) == STEPS + 2:
            come(number)

    sends = on(flavour, "on_train_batch_begin", in_the_second_batch_of_the_second_epoch)
    with pytest.raises(ended) as error:
        fit(model, 2, first.callback(verbose=0), sends)
    assert len(batches) == STEPS + 2
    assert getattr(error.value, "code", 143) == 143
    assert saved(first) == ["ckpt-1", "ckpt-2"]
    again, second = run()
    report = second.restore()
    assert (report.step, report.epoch) == (STEPS + 2, 1)
    np.testing.assert_equal(state(again), state(model))
    assert fit(again, 2, second.callback(verbose=0)) == [0, 1]
    assert int(again.optimizer.iterations.numpy()) == 2 * STEPS
    del error


def test_a_signal_in_validation_saves_the_epoch_as_finished(run, come) -> None:
    model, first = run(every_steps=STEPS, **SIGNALS)
    callbacks = first.callback(verbose=0), on(keras, "on_test_begin", come)
    with pytest.raises(SystemExit):
        fit(model, 4, *callbacks, validation_data=(X, Y))
    # The same step is there before, saved by the batch in an epoch that was not finished.
    assert saved(first) == ["ckpt-1", "ckpt-2"]
    report = run()[1].restore()
    assert (report.step, report.epoch) == (STEPS, 1)
    assert "val_loss" in report.metrics


def test_a_fit_that_fails_has_put_the_handlers_back(run, come) -> None:
    model, first = run(**SIGNALS)
    with pytest.raises(ZeroDivisionError):
        fit(model, 1, first.callback(verbose=0), on(keras, "on_train_batch_begin", lambda: 1 / 0))
    gc.collect()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert fit(model, 1, first.callback(verbose=0)) == [0]


def test_after_an_eager_step_that_failed_another_fit_goes_on(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))
    model, second = run(every_epochs=1)
    model.train_step = lambda data: 1 / 0
    with pytest.raises(ZeroDivisionError) as failed:
        fit(model, 2, second.callback(verbose=0))
    model, third = run(every_epochs=1)
    assert fit(model, 3, third.callback(verbose=0), shuffle=True) == [0, 1, 2]
    assert failed.tb is not None  # it keeps the step, and what it watches, until here


def test_of_two_fits_one_inside_the_other_both_save(run, come, tmp_path) -> None:
    model, outer = run(**SIGNALS)
    other, inner = runs_of(keras, tmp_path / "other")(**SIGNALS)

    def train_the_other() -> None:
        assert fit(other, 1, inner.callback(verbose=0), on(keras, "on_epoch_begin", come)) == [0]

    with pytest.raises(SystemExit):
        fit(model, 4, outer.callback(verbose=0), on(keras, "on_train_batch_begin", train_the_other))
    assert (saved(inner), saved(outer)) == (["ckpt-1"], ["ckpt-1"])
    assert int(model.optimizer.iterations.numpy()) == 1
    assert int(other.optimizer.iterations.numpy()) == STEPS


def test_what_is_over_says_how_to_go_on(run, capsys) -> None:
    def early() -> Any:
        return keras.callbacks.EarlyStopping("loss", min_delta=100.0, patience=1)

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
    third.save(epoch=7)  # by a loop of one's own
    model, fourth = run()
    assert fit(model, 6, fourth.callback()) == []
    over = "nothing to train; raise `epochs`, or start over with start_over=True"
    assert f"\n7 of 6 epochs are done: {over}\n" in capsys.readouterr().out


def test_start_over_restores_nothing_and_saves_go_on(run, capsys) -> None:
    plain, _ = run()
    fit(plain, 1)
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run(every_epochs=1)
    callback = second.callback(start_over=True)
    assert fit(model, 1, callback) == [0]
    np.testing.assert_equal(state(model), state(plain))
    said = capsys.readouterr().out
    nothing = "start_over: nothing is restored; training starts from the model's current values"
    assert nothing in said
    assert f"saves continue after {first.manager.directory}/ckpt-2\n" in said
    assert "saved ckpt-3" in said
    assert str(second.report).startswith(nothing)
    assert fit(model, 1, callback) == [0]  # and is not restored now
    assert int(model.optimizer.iterations.numpy()) == 2 * STEPS
    model, third = run(every_epochs=1)
    assert third.restore().path.endswith("ckpt-4")
    # After a restore it is a contradiction.
    with pytest.raises(tfckpt.TfckptError, match=r"restores nothing, but .*ckpt-4 is restored"):
        fit(model, 1, third.callback(verbose=0, start_over=True))
    assert saved(third)[-1] == "ckpt-4"
    assert int(model.optimizer.iterations.numpy()) == 2 * STEPS


EARLIER: dict[str, Callable[[Any, Any, Any], Any]] = {
    "trained by the same model": lambda model, old, new: model,
    "restored into a new one": lambda model, old, new: tfckpt.restore(old, new) and new,
}


@pytest.mark.parametrize("earlier", EARLIER.values(), ids=EARLIER)
def test_start_over_deletes_nothing_of_another_run(runs, tmp_path, capsys, earlier) -> None:
    def resumed(model: Any, **more: Any) -> Any:
        where = {"directory": str(tmp_path / "run")}
        manager = {**where, "save": {"every_epochs": 1}, "keep": [{"latest": 2}]}
        config = {"version": 1, "restore": {**where, "if_none": "initialize"}, "manager": manager}
        return tfckpt.from_config(config, model=model).callback(**more)

    fit(model := runs(keras)()[0], 2, resumed(model))
    newest = tfckpt.list_checkpoints(tmp_path / "run")[0].prefix
    model = earlier(model, newest, runs(keras)()[0])
    assert fit(model, 3, resumed(model, start_over=True)) == [0, 1, 2]
    assert [one.number for one in tfckpt.list_checkpoints(tmp_path / "run")] == [5, 4, 2, 1]
    assert (
        "another run, which this run does not resume and never deletes" in capsys.readouterr().out
    )


def test_resume_saves_every_so_many_epochs_with_what_is_to_be_recorded(runs, tmp_path) -> None:
    model, _ = runs(keras)()
    place, note = tmp_path / "noted", {"commit": "a1b2", "seeds": (1, 2)}
    callback = tfckpt.callbacks.resume(model, place, every_n_epochs=2, metadata=note, verbose=0)
    fit(model, 3, callback)
    records = [tfckpt.inspect(row.prefix).record for row in tfckpt.list_checkpoints(place)]
    assert [record.epoch for record in records] == [3, 2]
    assert [record.metadata for record in records] == [{"commit": "a1b2", "seeds": [1, 2]}] * 2
    with pytest.raises(tfckpt.SaveError, match=r"metadata\['model'\] must be a string"):
        tfckpt.callbacks.resume(model, place, metadata={"model": object()})
    with pytest.raises(tfckpt.SaveError, match="metadata must be a dict"):
        tfckpt.callbacks.resume(model, place, metadata=["a1b2"])
    with pytest.raises(tfckpt.PolicyError, match="every_n_epochs: expected more than 0"):
        tfckpt.callbacks.resume(model, place, every_n_epochs=0)
