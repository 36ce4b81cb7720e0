"""A program of several ``fit``, between which it freezes layers, unfreezes them, compiles again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

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


# What the program does before the first `fit`, and before the second.


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


def test_between_two_fits_the_model_has_the_averages_of_the_first(program) -> None:
    """Keras puts them in place of the weights as a ``fit`` ends."""
    killed = program(averages)
    killed.killed(1, 1, 1)
    weights = killed.between
    killed.killed(1, 1, 1)
    np.testing.assert_equal(killed.between, weights)


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


def test_weights_that_do_not_fit_are_refused_at_once(program, flavour) -> None:
    program(unfreezes).killed(1, 1, 1)

    def has_another_head(keras: Any, model: Any, number: int) -> None:
        if not number:
            model.pop()
            model.add(keras.layers.Dense(1, name="b"))
        unfreezes(keras, model, number)

    changed = program(has_another_head)
    with pytest.raises(tfckpt.RefusedError, match="model/b/kernel"):
        changed.start()


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
