"""Automatic layer names in TF1's checkpoints: which layer is meant, or that it cannot be told."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.graphs import assert_holds, dense, restore, save

import tfckpt


def test_numbers_of_automatic_layers_count_within_their_scope(tmp_path) -> None:
    def build() -> None:
        dense(dense(tf.ones((1, 3)), 4, "dense_4"), 2, "dense_5")

    saved = save(tmp_path / "ckpt", build)
    layers = [keras.layers.Dense(4), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((3,)), *layers])
    restore(tmp_path, saved, "assert: consumed", model=model)
    names = {layer.name: scope for layer, scope in zip(layers, ("dense_4", "dense_5"), strict=True)}
    assert_holds(model, saved, **names)


def test_automatic_layers_in_another_number_are_suspect(tmp_path) -> None:
    def build() -> None:
        dense(dense(dense(tf.ones((1, 3)), 3, "dense"), 3, "dense_1"), 3, "dense_2")

    saved = save(tmp_path / "ckpt", build)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), keras.layers.Dense(3)])
    before = model.get_weights()
    with pytest.raises(tfckpt.RefusedError, match="2 layers of that class"):
        restore(tmp_path, saved, "expect_partial: true", model=model)
    np.testing.assert_equal(model.get_weights(), before)
    policy = "expect_partial: true\nmatch: name"
    restore(tmp_path, saved, policy, model=model)
    np.testing.assert_array_equal(model.get_weights()[0], saved.values["dense/kernel"])


def test_another_models_own_names_prove_nothing(tmp_path) -> None:
    """The second model of a process has names that are other layers' in the file."""

    def build() -> None:
        x = tf.ones((1, 3))
        for number in range(4):
            x = dense(x, 3, f"dense_{number}" if number else "dense")

    saved = save(tmp_path / "ckpt", build)
    tf_keras.backend.clear_session()
    for _ in range(2):
        model = tf_keras.Sequential([tf_keras.layers.Dense(3), tf_keras.layers.Dense(3)])
        model(tf.ones((1, 3)))
    assert model.layers[0].name == "dense_2"
    before = model.get_weights()
    with pytest.raises(tfckpt.RefusedError, match="is an automatic name"):
        restore(tmp_path, saved, "expect_partial: true", model=model)
    np.testing.assert_equal(model.get_weights(), before)


def two_dense() -> None:
    x = dense(tf.ones((1, 3)), 3, "dense_1")
    dense(x, 3, "dense_2")


def test_layers_that_were_made_in_another_order_than_they_stand_in(tmp_path) -> None:
    """Keras and TF1 number layers as they are made; a functional model lists them by place."""
    saved = save(tmp_path / "ckpt", two_dense)
    first, second = keras.layers.Dense(3), keras.layers.Dense(3)
    inputs = keras.Input((3,))
    model = keras.Model(inputs, first(second(inputs)))
    assert [layer.name for layer in model.layers[1:]] == [second.name, first.name]
    restore(tmp_path, saved, "assert: consumed", model=model)
    np.testing.assert_array_equal(first.kernel.numpy(), saved.values["dense_1/kernel"])
    np.testing.assert_array_equal(second.kernel.numpy(), saved.values["dense_2/kernel"])


class Attributes(keras.Model):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.parts = names
        for name in names:
            setattr(self, name, keras.layers.Dense(3))

    def call(self, x: Any) -> Any:
        for name in self.parts:
            x = getattr(self, name)(x)
        return x


def test_attributes_whose_names_are_the_keys(tmp_path) -> None:
    saved = save(tmp_path / "ckpt", two_dense)
    model = Attributes("dense_1", "dense_2")
    model(tf.ones((1, 3)))
    restore(tmp_path, saved, "assert: consumed", model=model)
    for name in ("dense_1", "dense_2"):
        found = getattr(model, name).kernel.numpy()
        np.testing.assert_array_equal(found, saved.values[f"{name}/kernel"])


@pytest.mark.parametrize("names", [("dense", "dense_1"), ("dense_0", "dense_1")])
def test_attributes_of_other_names_are_not_guessed(tmp_path, names) -> None:
    saved = save(tmp_path / "ckpt", two_dense)
    model = Attributes(*names)
    model(tf.ones((1, 3)))
    before = model.get_weights()
    with pytest.raises(tfckpt.RefusedError):
        restore(tmp_path, saved, 'include: ["**"]', model=model)
    np.testing.assert_equal(model.get_weights(), before)
