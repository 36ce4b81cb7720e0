"""Models that were edited between a save and a restore, and what becomes of the restore."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

CONSTANT = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)


def refused(path, model):
    """What is said, and the model is as it was."""
    before = [v.numpy() for v in model.variables]
    with pytest.raises(tfckpt.RefusedError) as caught:
        tfckpt.Checkpoint(model=model).restore(path)
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())
    return " ".join(str(caught.value).split())


def suspect(path, model):
    """The same, where a layer may be another one."""
    said = refused(path, model)
    assert "SUSPECT" in said
    return said


def alike(old, new):
    """Both models make the same of a sample."""
    for one, other in zip(
        tf.nest.flatten(old(CONSTANT)), tf.nest.flatten(new(CONSTANT)), strict=True
    ):
        np.testing.assert_allclose(np.array(one), np.array(other), rtol=1e-6)


def two_ways(keras, swapped):
    """Two unnamed layers, each before a named one, and a ReLU on one of the two ways."""
    first, second = keras.layers.Dense(3), keras.layers.Dense(3)
    left, right = (second, first) if swapped else (first, second)
    inputs = keras.Input((3,))
    ends = [left(inputs), right(inputs)]
    at = 0 if swapped else 1
    ends[at] = keras.layers.ReLU()(ends[at])
    outputs = [keras.layers.Dense(3, name=n)(x) for n, x in zip(("l", "r"), ends, strict=True)]
    return keras.Model(inputs, keras.layers.Subtract()(outputs))


def edited(keras, edit):
    """Two unnamed layers side by side, and a head: with a layer more, or another head."""
    inputs = keras.Input((3,))
    one, other = keras.layers.Dense(3), keras.layers.Dense(3)
    found = keras.layers.Add()([one(inputs), other(inputs)])
    if edit == "dropout":
        found = keras.layers.Dropout(0.5)(found)
    found = keras.layers.Dense(3)(found)
    found = keras.layers.Dense(3, name="new" if edit == "head" else "head")(found)
    if edit == "append":
        found = keras.layers.LayerNormalization(name="norm")(found)
    return keras.Model(inputs, found)
