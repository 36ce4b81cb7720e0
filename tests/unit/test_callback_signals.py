"""``run.callback()`` in ``fit``: a signal saves, and the run is resumed."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.fits import STEPS, X, Y, fit, runs_of, saved, state

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    return runs_of(flavour, tmp_path / "run")


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
    assert int(model.optimizer.iterations.numpy()) == 1
    assert int(other.optimizer.iterations.numpy()) == STEPS
