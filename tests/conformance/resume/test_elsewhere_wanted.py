"""A training of another model than the run's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from zoo.fits import STEPS, X, Y

import tfckpt

SAID = "so a resumed training is not exact; pass the model to the run"


def network(keras: Any) -> Any:
    keras.utils.set_random_seed(7)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="a")], name="inner")


def subclass(keras: Any, inner: Any) -> Any:
    class Wrapper(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="wrapper")
            self.inner = inner

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs)

    return Wrapper()


def functional(keras: Any, inner: Any) -> Any:
    given = keras.Input((4,))
    return keras.Model(given, inner.layers[-1](given), name="shares")


def run_of(path: Path, **objects: Any) -> Any:
    where = {"directory": str(path / "run")}
    save = {"every_steps": 2} if "optimizer" in objects else {"every_minutes": 1e-9}
    config = {
        "version": 1,
        "manager": {**where, "save": {"every_epochs": 1, **save}},
        "restore": {**where, "if_none": "initialize"},
    }
    return tfckpt.from_config(config, **objects)


def fit(model: Any, *callbacks: Any) -> Any:
    arguments = {"batch_size": 4, "epochs": 3, "verbose": 0}
    return model.fit(X, Y, **arguments, callbacks=list(callbacks))


@pytest.mark.parametrize(
    ("flavour", "wrap"), [("keras3", subclass), ("tf_keras", functional)], indirect=["flavour"]
)
def test_a_model_around_the_runs_own_is_resumed_and_what_is_not_exact_is_said(
    flavour, tmp_path, wrap, capsys, stop
) -> None:
    def begin(path: Path) -> Any:
        inner, optimizer = network(flavour), flavour.optimizers.Adam(0.05)
        model = wrap(flavour, inner)
        model.compile(optimizer, "mse", run_eagerly=True)
        model(X[:4])
        return model, inner, run_of(path, model=inner, optimizer=optimizer).callback()

    whole, expected, callback = begin(tmp_path / "whole")
    history = fit(whole, callback).history["loss"]
    model, _, callback = begin(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(1, 2))
    assert SAID in capsys.readouterr().out
    model, inner, callback = begin(tmp_path)
    again = fit(model, callback).history["loss"]
    np.testing.assert_equal(inner.get_weights(), expected.get_weights())
    assert model.optimizer.iterations.numpy() == 3 * STEPS
    assert [again[0], again[2]] == [history[0], history[2]]  # the metric of epoch 1 is not saved


@pytest.mark.parametrize("flavour", ["keras3"], indirect=True)
def test_what_only_the_wrapper_has_is_not_trained_by_the_step_that_does_not_count(
    flavour, tmp_path, stop
) -> None:
    for _ in range(2):
        inner = network(flavour)
        model = flavour.Sequential([inner, flavour.layers.Dense(2, name="own")])
        model.compile("sgd", "mse")
        model(X[:4])
        initial = model.get_layer("own").get_weights()
        callback = run_of(tmp_path, model=inner).callback(verbose=0)
        with pytest.raises(KeyboardInterrupt):
            fit(model, callback, stop(1, 2))
    np.testing.assert_equal(model.get_layer("own").get_weights(), initial)


def test_steps_that_nothing_counts_are_refused(tmp_path) -> None:
    inner = network(keras)
    model = subclass(keras, inner)
    model.compile("sgd", "mse")
    manager = {"directory": str(tmp_path), "save": {"every_steps": 2}}
    run = tfckpt.from_config({"version": 1, "manager": manager}, model=inner)
    with pytest.raises(tfckpt.TfckptError, match="none of the objects counts steps"):
        fit(model, run.callback(verbose=0))
    with pytest.raises(tfckpt.TfckptError, match="none of the objects counts steps"):
        run.save_if_due()
