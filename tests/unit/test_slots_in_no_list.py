"""Keras up to 3.6 stores the slots of its optimizers in no list but that of all its variables."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt


class Subclassed(keras.Model):
    """Its variables are `model/kernel` in a file, their slots `model_first_kernel_momentum`."""

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__(name="model")
        self.first, self.second = (keras.layers.Dense(3, name=name) for name in names)

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))


def trained(value: float, optimizer: Any, names: tuple[str, str] = ("first", "second")) -> Any:
    model = Subclassed(names)
    model(np.ones((1, 3), "float32"))
    optimizer.build(model.trainable_variables)
    for n, variable in enumerate(optimizer.variables[2:]):
        variable.assign(tf.fill(variable.shape, value + n))
    return model


def without_lists(optimizer: Any, path: str, model: Any) -> str:
    """Write a checkpoint as Keras 3.6 does."""
    for name in ("_momentums", "_velocities", "_velocity_hats", "_model_variables_moving_average"):
        if name in vars(optimizer):
            setattr(optimizer, name, [])
    return tf.train.Checkpoint(model=model, optimizer=optimizer).save(path)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"use_ema": True}])
def test_they_come_back_by_the_order_of_their_variables(options: Any, tmp_path: Any) -> None:
    old, new = keras.optimizers.Adam(**options), keras.optimizers.Adam(**options)
    source, target = trained(1.0, old), trained(100.0, new)
    stored = [variable.numpy() for variable in old.variables]
    path = without_lists(old, str(tmp_path / "ckpt"), source)
    tfckpt.Checkpoint(model=target, optimizer=new).restore(path).assert_consumed()
    np.testing.assert_equal([variable.numpy() for variable in new.variables], stored)


def test_names_that_two_variables_share_are_not_guessed(tmp_path: Any) -> None:
    old, new = keras.optimizers.Adam(), keras.optimizers.Adam()
    source, target = trained(1.0, old, ("same", "same")), trained(100.0, new, ("same", "same"))
    path = without_lists(old, str(tmp_path / "ckpt"), source)
    before = [variable.numpy() for variable in new.variables[2:]]
    with pytest.raises(AssertionError, match="no such slot"):
        tfckpt.Checkpoint(model=target, optimizer=new).restore(path).assert_consumed()
    np.testing.assert_equal([variable.numpy() for variable in new.variables[2:]], before)
