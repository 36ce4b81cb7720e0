"""What a ``fit`` does beside an earlier one of the same process: a cell, a phase, another model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.stack([X.sum(1), X.prod(1)], 1)
STEPS = 3
AGAIN = "the last `fit` of this model was interrupted: this one resumes from the last save"


@pytest.fixture
def build(flavour) -> Callable[[], Any]:
    def make() -> Any:
        flavour.utils.set_random_seed(3)
        layers = [flavour.layers.Dense(3, name="a"), flavour.layers.Dense(2, name="b")]
        model = flavour.Sequential([flavour.Input((4,)), *layers])
        compiled(flavour, model)
        return model

    return make


def compiled(keras: Any, model: Any, *, frozen: bool = False) -> None:
    model.get_layer("a").trainable = not frozen
    model.compile(keras.optimizers.Adam(0.05), "mse")


def fit(model: Any, *callbacks: Any, epochs: int = 5) -> Any:
    return model.fit(X, Y, batch_size=4, epochs=epochs, verbose=0, callbacks=list(callbacks))


def steps(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


@pytest.mark.parametrize("same", ["callback", "model", "compiled", "nothing"])
def test_a_cell_that_was_interrupted_goes_on_where_it_was(
    build, flavour, tmp_path, stop, capsys, same
) -> None:
    whole = build()
    history = fit(whole).history
    model, where = build(), tmp_path / "run"
    callback = tfckpt.callbacks.resume(model, where)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(2, 2))
    capsys.readouterr()
    if same == "nothing":
        model = build()
    if same == "compiled":
        compiled(flavour, model)
    if same != "callback":
        callback = tfckpt.callbacks.resume(model, where)
    assert fit(model, callback).history == history
    said = capsys.readouterr().out
    assert (AGAIN in said) == (same != "nothing")
    assert "training resumes after 2 epochs" in said
    assert steps(model) == 5 * STEPS
    np.testing.assert_equal(model.get_weights(), whole.get_weights())
    model = build()  # the program is started anew
    assert fit(model, tfckpt.callbacks.resume(model, where), epochs=6).epoch == [*range(6)]
    assert "training resumes after 5 epochs" in capsys.readouterr().out
    assert steps(model) == 6 * STEPS


def test_a_cell_that_was_interrupted_before_its_first_save_is_told(
    build, tmp_path, stop, capsys
) -> None:
    model = build()
    with pytest.raises(KeyboardInterrupt):
        fit(model, tfckpt.callbacks.resume(model, tmp_path / "run"), stop(0, 1))
    capsys.readouterr()
    fit(model, tfckpt.callbacks.resume(model, tmp_path / "run"))
    said = capsys.readouterr().out
    assert AGAIN not in said
    assert "was interrupted before its first save, and the model keeps what it learned" in said


def test_a_later_fit_that_was_interrupted_counts_once(build, flavour, tmp_path, stop) -> None:
    def program(*stops: Any) -> Any:
        model = build()
        callback = tfckpt.callbacks.resume(model, tmp_path / "run", verbose=0)
        first = fit(model, callback, epochs=1).history
        compiled(flavour, model)
        for each in stops:
            with pytest.raises(KeyboardInterrupt):
                fit(model, callback, each, epochs=4)
        return first, fit(model, callback, epochs=4).history, model.get_weights()

    ended = program(stop(1, 1), stop(2, 1), stop(2, 2))
    np.testing.assert_equal(program(), ended)  # started again, all is over
    model = build()
    expected = [fit(model, epochs=1).history]
    compiled(flavour, model)
    expected += [fit(model, epochs=4).history, model.get_weights()]
    np.testing.assert_equal(list(ended), expected)


def two_phases(keras: Any, model: Any, where: Any, *stops: Any) -> Any:
    """The head, then all, each with a callback of its own."""
    compiled(keras, model, frozen=True)
    at = iter(stops)
    first = fit(model, tfckpt.callbacks.resume(model, where), *filter(None, [next(at, None)]))
    compiled(keras, model)
    second = fit(model, tfckpt.callbacks.resume(model, where), *filter(None, [next(at, None)]))
    return first.history, second.history, model.get_weights()


def test_two_phases_may_each_have_a_callback(build, flavour, tmp_path, stop, capsys) -> None:
    whole = two_phases(flavour, build(), tmp_path / "whole")
    said = capsys.readouterr().out
    assert "nothing to train" not in said
    assert "does not resume" not in said
    for places in ([stop(3, 1)], [None, stop(0, 1)], [None, stop(3, 1)]):
        with pytest.raises(KeyboardInterrupt):
            two_phases(flavour, build(), tmp_path / "run", *places)
    np.testing.assert_equal(two_phases(flavour, build(), tmp_path / "run"), whole)
    np.testing.assert_equal(two_phases(flavour, build(), tmp_path / "run"), whole)


@pytest.mark.parametrize("own", [True, False])
def test_a_phase_after_one_that_was_ended_by_hand_is_another(
    build, flavour, tmp_path, stop, capsys, own
) -> None:
    model = build()
    compiled(flavour, model, frozen=True)
    callback = tfckpt.callbacks.resume(model, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(2, 2))
    compiled(flavour, model)
    capsys.readouterr()
    if own:
        callback = tfckpt.callbacks.resume(model, tmp_path / "run")
    assert fit(model, callback, epochs=2).epoch == [0, 1]
    assert "starts from the model's current values" in capsys.readouterr().out
    assert steps(model) == 2 * STEPS


def test_another_model_that_gets_what_the_last_one_learnt_is_told(build, tmp_path, capsys) -> None:
    histories = []
    for fold in range(2):
        model = build()
        model.get_layer("a").set_weights(
            [each + fold for each in model.get_layer("a").get_weights()]
        )
        histories.append(fit(model, tfckpt.callbacks.resume(model, tmp_path / "run")).history)
        said = capsys.readouterr().out
        assert (
            "has the checkpoints of another model that this process has trained" in said
        ) == fold
    assert "5 of 5 epochs are done: nothing to train; raise `epochs`, or start over" in said
    assert "use one directory per model, or start over with start_over=True" in said
    assert histories[0] == histories[1]
    assert "loss" in histories[1]
    again = fit(model, tfckpt.callbacks.resume(model, tmp_path / "run"), epochs=6)
    assert "another model" not in capsys.readouterr().out
    assert again.epoch == [*range(6)]


def test_models_in_directories_of_their_own_are_left_alone(build, tmp_path, capsys) -> None:
    for fold in range(2):
        model = build()
        fit(model, tfckpt.callbacks.resume(model, tmp_path / str(fold)), epochs=1)
        assert steps(model) == STEPS
    assert "another model" not in capsys.readouterr().out


def test_a_loop_of_ones_own_may_call_the_callback(build, flavour, tmp_path, capsys) -> None:
    """Keras has made no train function by then."""
    model = build()
    callback = tfckpt.callbacks.resume(model, tmp_path / "run")
    callbacks = flavour.callbacks.CallbackList([callback], model=model, epochs=1, steps=1)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    callbacks.on_epoch_end(0, {})
    callbacks.on_train_end()
    assert "saved ckpt-1" in capsys.readouterr().out
