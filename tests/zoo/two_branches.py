"""Two layers side by side, of which each is known by its values."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

WIDTH = 3


def branches(keras, names=(None, None), *, dropout=(False, False), head=False, last=False):
    """Two layers side by side, each with an output of its own, or one for both."""
    inputs = keras.Input((WIDTH,))
    layers = [keras.layers.Dense(WIDTH, name=name) for name in names]
    outputs = [layer(inputs) for layer in layers]
    outputs = [
        keras.layers.Dropout(0.5)(x) if each else x
        for x, each in zip(outputs, dropout, strict=True)
    ]
    if head:
        joined = keras.layers.Concatenate()(outputs)
        joined = keras.layers.Dropout(0.5)(joined) if last else joined
        outputs = keras.layers.Dense(1, name="head")(joined)
    model = keras.Model(inputs, outputs)
    for at, layer in enumerate(layers):
        layer.set_weights([np.full_like(each, at + 1) for each in layer.get_weights()])
    return model, layers


def is_suspect(path, model):
    before = [each.numpy() for each in model.weights]
    with pytest.raises(tfckpt.RefusedError, match="SUSPECT") as caught:
        tfckpt.Checkpoint(model=model).restore(path)
    for one, other in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)
    return " ".join(str(caught.value).split())


def as_made(layers):
    """Whether each layer has the weights of the one that was made in its turn."""
    return [float(layer.get_weights()[0].min()) for layer in layers] == [1.0, 2.0]


def emptied(model):
    for each in model.weights:
        each.assign(tf.zeros_like(each))
