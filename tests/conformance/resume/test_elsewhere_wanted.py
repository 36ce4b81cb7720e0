"""A training of another model, or where something else is wanted than before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.stack([X.sum(1), X.prod(1)], 1)
STEPS, EPOCHS = 3, 3
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
    arguments = {"batch_size": 4, "epochs": EPOCHS, "verbose": 0}
    return model.fit(X, Y, **arguments, callbacks=list(callbacks))


@pytest.mark.parametrize("wrap", [subclass, functional])
def test_a_model_around_the_runs_own_is_resumed_and_what_is_not_exact_is_said(
    flavour, tmp_path, wrap, capsys, stop
) -> None:
    def begin(path: Path) -> Any:
        inner, optimizer = network(flavour), flavour.optimizers.Adam(0.05)
        model = wrap(flavour, inner)
        model.compile(optimizer, "mse")
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
    assert model.optimizer.iterations.numpy() == EPOCHS * STEPS
    assert [again[0], again[2]] == [history[0], history[2]]  # the metric of epoch 1 is not saved


def test_what_only_the_wrapper_has_is_not_trained_by_the_step_that_does_not_count(
    flavour, tmp_path, stop
) -> None:
    def begin() -> Any:
        inner = network(flavour)
        model = flavour.Sequential([inner, flavour.layers.Dense(2, name="own")])
        model.compile("sgd", "mse")
        model(X[:4])
        return model, run_of(tmp_path, model=inner).callback(verbose=0)

    model, callback = begin()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(1, 2))
    model, callback = begin()
    initial = model.get_layer("own").get_weights()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(1, 2))
    np.testing.assert_equal(model.get_layer("own").get_weights(), initial)


def test_steps_that_nothing_counts_are_refused(flavour, tmp_path) -> None:
    inner = network(flavour)
    model = subclass(flavour, inner)
    model.compile("sgd", "mse")
    manager = {"directory": str(tmp_path), "save": {"every_steps": 2}}
    run = tfckpt.from_config({"version": 1, "manager": manager}, model=inner)
    with pytest.raises(tfckpt.TfckptError, match="none of the objects counts steps"):
        fit(model, run.callback(verbose=0))
    with pytest.raises(tfckpt.TfckptError, match="none of the objects counts steps"):
        run.save_if_due()


@pytest.fixture
def begin(flavour, tmp_path) -> Callable[..., Any]:
    """``begin(optimizer)``: model and run of one directory; all layers have the same shapes."""

    def build(
        optimizer: Any, policy: Any = None, loss: Any = "mse", frozen: Any = "", **more: Any
    ) -> Any:
        flavour.utils.set_random_seed(7)
        model = flavour.Sequential([flavour.Input((4,))])
        for name, units in (("a", 4), ("b", 4), ("head", more.get("head", 4))):
            layer = flavour.layers.Dense(units, name=name, dtype=more.get("dtype"))
            model.add(layer)
            layer.trainable = name != frozen
        model.compile(optimizer, loss)
        where = {"directory": str(tmp_path / "run")}
        config = {
            "version": 1,
            "manager": {**where, "save": {"every_steps": 1, "every_epochs": 1}, "durable": False},
            "restore": {**where, "if_none": "initialize", "policy": policy or {}},
        }
        return model, tfckpt.from_config(config, model=model)

    return build
