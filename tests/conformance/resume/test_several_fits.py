"""Programs of several `fit`: cells, phases, freezing between them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.stopped import stopped_twice

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.stack([X.sum(1), X.prod(1)], 1)
EPOCHS = 2, 3


def network(keras: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3, name="a"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(2, name="b"),
        ]
    )


def freeze(model: Any, *, frozen: bool) -> None:
    model.get_layer("a").trainable = not frozen


def unfreezes(keras: Any, model: Any, number: int) -> None:
    freeze(model, frozen=number == 0)
    model.compile(keras.optimizers.Adam([0.05, 0.01][number]), "mse", metrics=["mae"])


def freezes_with_the_same_optimizer(keras: Any, model: Any, number: int) -> None:
    freeze(model, frozen=number == 1)
    optimizer = model.optimizer if number else keras.optimizers.Adam(0.05)
    model.compile(optimizer, ["mse", "mae"][number])


def takes_another_optimizer(keras: Any, model: Any, number: int) -> None:
    momentum = keras.optimizers.SGD(0.02, momentum=0.9)
    model.compile(momentum if number else keras.optimizers.Adam(0.05), "mse")


def averages(keras: Any, model: Any, number: int) -> None:
    """As Keras ends a ``fit`` with ``use_ema``, the averages become the weights."""
    freeze(model, frozen=number == 0)
    model.compile(keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5), "mse")


class Program:
    """A program of two ``fit``, which can be started again and again.

    Args:
        data: makes what both ``fit`` are given.

    Attributes:
        between: the weights that it saw between the two.
    """

    def __init__(
        self,
        keras: Any,
        prepare: Callable[..., None],
        directory: Path,
        data: Callable[[], dict[str, Any]] = lambda: {"x": X, "y": Y, "batch_size": 4},
    ) -> None:
        self._keras = keras
        self._prepare = prepare
        self._data = data
        where = {"directory": str(directory)}
        save = {"every_steps": 1, "every_epochs": 1}
        self.config = {
            "version": 1,
            "manager": {**where, "save": save, "durable": False},
            "restore": {**where, "if_none": "initialize"},
        }

    def start(self, kill: tuple[int, int, int] | None = None, verbose: int = 0) -> Any:
        """Weights, optimizer state and History of its end; killed before a batch of a ``fit``."""
        keras = self._keras
        keras.utils.set_random_seed(3)
        self.model = model = network(keras)
        self.run = run = tfckpt.from_config(self.config, model=model)
        callback, data = run.callback(verbose), self._data()
        for number, epochs in enumerate(EPOCHS):

            class Kill(keras.callbacks.Callback):
                def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                    self.epoch = epoch

                def on_train_batch_begin(
                    self, batch: int, logs: Any = None, at: int = number
                ) -> None:
                    if (at, self.epoch, batch) == kill:
                        raise KeyboardInterrupt

            self._prepare(keras, model, number)
            if number:
                self.between = model.get_weights()
            callbacks = [callback, Kill()]
            fitted = model.fit(**data, epochs=epochs, verbose=0, callbacks=callbacks)
        variables = model.optimizer.variables
        variables = variables() if callable(variables) else variables
        state = [np.asarray(variable) for variable in variables]
        return model.get_weights(), state, fitted.epoch, fitted.history

    def killed(self, *place: int, verbose: int = 0) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.start(place, verbose)


@pytest.fixture
def program(flavour, tmp_path) -> Callable[..., Program]:
    return lambda prepare: Program(flavour, prepare, tmp_path / "run")


CHANGES = [unfreezes, freezes_with_the_same_optimizer, takes_another_optimizer, averages]


@pytest.mark.parametrize("change", CHANGES)
def test_it_ends_as_if_it_had_not_been_killed(program, flavour, tmp_path, change) -> None:
    whole = Program(flavour, change, tmp_path / "whole").start()
    killed = program(change)
    for place in ((0, 1, 1), (1, 0, 0), (1, 1, 1), (1, 2, 0)):
        killed.killed(*place)
    np.testing.assert_equal(killed.start(), whole)


def shuffled() -> dict[str, Any]:
    return {"x": tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12).batch(4)}


def shuffled_and_filtered() -> dict[str, Any]:
    """Of no known size."""
    kept = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12).filter(lambda x, y: x[0] > -2)
    return {"x": kept.batch(4)}


def by_steps() -> dict[str, Any]:
    return {**shuffled(), "steps_per_epoch": 3}


@pytest.mark.parametrize("data", [shuffled, shuffled_and_filtered, by_steps])
def test_the_shuffles_of_what_two_fits_are_given_go_on(flavour, tmp_path, data) -> None:
    """A dataset counts its passes: those of a ``fit`` that is passed over too."""
    if data is by_steps and flavour.__name__ == "tf_keras":
        pytest.skip("tf_keras trains one epoch of such data")
    if data is by_steps and flavour.__version__.startswith("3.1."):
        pytest.skip("Keras 3.1 trains every other epoch of such data")
    whole = Program(flavour, unfreezes, tmp_path / "whole", data).start()
    killed = Program(flavour, unfreezes, tmp_path / "run", data)
    for place in ((1, 0, 0), (1, 1, 1), (1, 2, 0)):
        killed.killed(*place)
    np.testing.assert_equal(killed.start(), whole)


def noisy() -> dict[str, Any]:
    generator = tf.random.Generator.from_seed(3)
    drawn = tf.data.Dataset.from_tensor_slices((X, Y)).map(
        lambda x, y: (x + generator.normal([4]), y)
    )
    return {"x": drawn.batch(4)}


def shuffled_again() -> dict[str, Any]:
    return {"x": tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12).repeat(2).batch(8)}


@pytest.mark.parametrize("data", [noisy, shuffled_again, shuffled])
def test_data_that_begins_anew_after_a_fit_that_was_over_is_said(
    flavour, tmp_path, data, capsys
) -> None:
    """Its own variables, and passes that are not its iterators."""
    program = Program(flavour, unfreezes, tmp_path / "run", data)
    program.killed(1, 0, 0)
    capsys.readouterr()
    program.killed(1, 0, 1, verbose=1)
    told = "give each `fit` its own dataset" in capsys.readouterr().out
    assert told == (data is not shuffled)


def test_a_fit_that_was_over_is_skipped_and_said(program, tmp_path, capsys) -> None:
    killed = program(unfreezes)
    killed.killed(1, 1, 1)
    at_its_end = killed.between
    latest = killed.run.manager.latest_checkpoint
    initial = [np.array(each) for each in network_of(killed)]
    capsys.readouterr()
    killed.killed(1, 1, 1, verbose=1)
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith(
        "`fit` 1 of this program was finished, nothing to train: the checkpoint is of"
    )
    assert "is of `fit` 2, 1 of 3 epochs done, which resumes when it is called" in first
    assert "(until then, the weights are as they were at its end)" in first
    assert second.startswith(f"restored {latest} (epoch 1)")
    np.testing.assert_equal(killed.between, at_its_end)
    assert any((one != other).any() for one, other in zip(killed.between, initial, strict=True))


def network_of(program: Program) -> list[np.ndarray]:
    program._keras.utils.set_random_seed(3)
    return network(program._keras).get_weights()


def test_what_does_not_fit_the_later_fit_is_refused_there(program, flavour) -> None:
    program(unfreezes).killed(1, 1, 1)

    def unfreezes_no_more(keras: Any, model: Any, number: int) -> None:
        unfreezes(keras, model, number)
        freeze(model, frozen=True)
        model.compile(model.optimizer, "mse")

    changed = program(unfreezes_no_more)
    with pytest.raises(tfckpt.RefusedError, match="optimizer/momentum/a/kernel"):
        changed.start()
    np.testing.assert_equal(changed.model.get_weights(), changed.between)
    assert int(changed.model.optimizer.iterations.numpy()) == 0
    assert changed.run.report is None


def test_what_is_saved_between_two_fits_hides_no_later_checkpoint(program, flavour, caplog) -> None:
    def saves(keras: Any, model: Any, number: int) -> None:
        unfreezes(keras, model, number)
        if number:
            paths.append(killed.run.save())

    paths: list[str] = []
    killed = program(saves)
    killed.killed(1, 1, 1)
    latest = killed.run.manager.latest_checkpoint
    killed.killed(1, 1, 1)
    assert paths[1] == latest
    assert killed.run.manager.latest_checkpoint == latest
    assert f"not saved: the next `fit` resumes from {latest}" in caplog.text


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


# State that nobody saves: what holds it is named, so that it can be passed.
NAMED = {
    "in_loss": "calls of the loss is not saved: if training changes it, pass it by keyword: "
    "resume(model, directory, calls=calls)",
    "in_schedule": "calls of the schedule is not saved",
    "by_mapping": "weight of the loss is not saved",
    "teacher": "teacher of Averaging is not saved: if training changes it, pass it by keyword: "
    "resume(model, directory, teacher=teacher)",
}


@pytest.mark.parametrize("state", NAMED)
def test_what_is_not_saved_is_named(flavour, tmp_path, state) -> None:
    words = ("arrays", state, "dense", "adam", "alone")
    _, said = stopped_twice(flavour, words, str(tmp_path / "run"), random.Random(1))
    assert NAMED[state] in said


def test_logs_that_depend_on_a_validation_before_are_exact(flavour, tmp_path) -> None:
    words = ("dataset", "counted", "norm", "adam", "alone", "validated_by_dataset", "twice")
    draw = random.Random(2)  # stops after a validation, within an epoch
    verdict, said = stopped_twice(flavour, words, str(tmp_path / "run"), draw)
    assert verdict == "exact", said


def test_functions_that_draw_for_several_elements_at_once_are_no_secret(flavour, tmp_path) -> None:
    words = ("at_once", "nothing", "dense", "adam", "alone")
    _, said = stopped_twice(flavour, words, str(tmp_path / "run"), random.Random(1))
    assert (
        "a function of the dataset draws random numbers or counts, and num_parallel_calls runs it "
        "for several elements at once, in an order that changes from run to run: neither a "
        "resumed nor a repeated training is exact; remove num_parallel_calls, or call "
        "tf.config.experimental.enable_op_determinism()"
    ) in said
