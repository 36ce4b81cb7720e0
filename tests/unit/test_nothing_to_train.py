"""A ``fit`` that has nothing to train says so, and returns the ``History`` that it had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.fits import STEPS, X, Y, fit, runs_of, saved, state

import tfckpt
import tfckpt.callbacks
from tfckpt.training.fits import Fits

if TYPE_CHECKING:
    from collections.abc import Callable

OVER = "nothing to train; raise `epochs`, or start over with start_over=True"


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    return runs_of(flavour, tmp_path / "run")


def whole(model: Any, epochs: int, *callbacks: Any) -> Any:
    more = {"batch_size": 4, "shuffle": False, "verbose": 0, "epochs": epochs}
    return model.fit(X, Y, callbacks=list(callbacks), **more)


@pytest.mark.parametrize("epochs", [3, 2])
def test_epochs_that_are_done_are_counted(run, capsys, epochs) -> None:
    model, first = run(every_epochs=1)
    before = whole(model, 3, first.callback(verbose=0)).history
    model, second = run(every_epochs=1)
    history = whole(model, epochs, second.callback())
    assert f"\n3 of {epochs} epochs are done: {OVER}\n" in capsys.readouterr().out
    assert history.history == before
    assert int(model.optimizer.iterations.numpy()) == 3 * STEPS
    model, third = run(every_epochs=1)
    assert fit(model, 4, third.callback()) == [0, 1, 2, 3]
    assert "nothing to train" not in capsys.readouterr().out


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


def test_a_cell_that_was_run_twice_resumes_when_it_is_run_twice_again(run, capsys) -> None:
    """In one process it trains on, as in Keras; the history of each call comes back."""
    model, first = run(every_epochs=1)
    callback = first.callback(verbose=0)
    histories = [whole(model, 2, callback).history for _ in range(2)]
    model, second = run(every_epochs=1)
    callback = second.callback()
    again = whole(model, 5, callback)
    said = capsys.readouterr().out
    assert "`fit` 1 of this program was finished, nothing to train" in said
    assert "the checkpoint is of `fit` 2, 2 of 2 epochs done, which resumes when it is" in said
    assert "run it again, or start over with start_over=True" in said
    assert (again.history, again.epoch) == (histories[0], [0, 1])
    more = whole(model, 5, callback)
    assert "training resumes in `fit` 2 after 2 epochs" in capsys.readouterr().out
    assert more.epoch == [0, 1, 2, 3, 4]
    assert more.history["loss"][:2] == histories[1]["loss"]
    assert int(model.optimizer.iterations.numpy()) == (4 + 3) * STEPS
    model, third = run(every_epochs=1)  # saved by what was itself resumed
    assert whole(model, 2, third.callback(verbose=0)).history == histories[0]


def test_a_new_callback_in_the_cell_resumes_at_once(run, capsys) -> None:
    for epochs in (2, 2, 4):
        model, each = run(every_epochs=1)
        assert fit(model, epochs, each.callback()) == list(range(epochs))
    assert capsys.readouterr().out.count("nothing to train") == 1


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


@pytest.mark.parametrize("saved", [None, 7, [], [7], [{"History": 7}], [{"Other": {}}]])
def test_histories_that_no_program_wrote_are_left_alone(flavour, saved) -> None:
    history = flavour.callbacks.History()
    history.history, history.epoch = {"loss": [1.0]}, [0]
    fits = Fits()
    assert fits.begin([history]) == 0
    fits.count(saved)
    fits.end()
    assert (history.history, history.epoch) == ({"loss": [1.0]}, [0])


# Starting over


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


def test_start_over_in_an_empty_directory_and_without_a_manager(flavour, tmp_path, capsys) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2)])
    model.compile("sgd", "mse")
    callback = tfckpt.callbacks.resume(model, tmp_path / "run", start_over=True)
    assert fit(model, 1, callback) == [0]
    assert "training starts from the model's current values\n" in capsys.readouterr().out
    restore = {"directory": str(tmp_path / "run")}
    run = tfckpt.from_config({"version": 1, "restore": restore}, model=model)
    assert fit(model, 1, run.callback(verbose=0, start_over=True)) == [0]
    assert int(model.optimizer.iterations.numpy()) == 2 * STEPS


def test_start_over_after_a_restore_is_a_contradiction(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))
    model, second = run(every_epochs=1)
    second.restore()
    with pytest.raises(tfckpt.TfckptError, match=r"restores nothing, but .*ckpt-1 is restored"):
        fit(model, 1, second.callback(verbose=0, start_over=True))
    assert saved(second) == ["ckpt-1"]
    assert int(model.optimizer.iterations.numpy()) == STEPS
