"""Layers and their slots, from tf_keras to Keras 3 and back: the training goes on as it would have.

Where a layer is not equal to the last bit, the flavours compute it in another order; the greatest
difference after 20 steps is given, measured on a CPU without oneDNN. It is the same where weights
are copied by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.across import AFTER, BEFORE, batches, difference, forget, train, values
from zoo.variables import inner

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = 1e-6
EXACT = 0.0
SERIES, IMAGE, WORDS, SHORT = (4, 3), (6, 6, 3), (2,), (2, 3)


def chain(shape: tuple[int, ...], *names: str | tuple[str, dict[str, Any]]) -> Callable[[Any], Any]:
    """A functional model of layers, by their classes and arguments."""

    def build(k: Any) -> Any:
        x = y = k.Input(shape)
        for name in names:
            cls, arguments = (name, {}) if isinstance(name, str) else name
            y = getattr(k.layers, cls)(**arguments)(y)
        return k.Model(x, y)

    return build


def dense(units: int, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "Dense", {"units": units, **arguments}


def conv(cls: str, filters: int, size: int) -> tuple[str, dict[str, Any]]:
    return cls, {"filters": filters, "kernel_size": size}


def wrapped(k: Any) -> Any:
    layers = k.layers
    x = k.Input(SHORT)
    y = layers.Bidirectional(layers.LSTM(2, return_sequences=True))(x)
    y = layers.TimeDistributed(layers.Dense(3))(y)
    return k.Model(x, layers.RNN(layers.SimpleRNNCell(2))(y))


def stacked_cells(k: Any) -> Any:
    layers = k.layers
    x = k.Input(SHORT)
    y = layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)], return_sequences=True)(x)
    cells = layers.StackedRNNCells([layers.SimpleRNNCell(3), layers.SimpleRNNCell(2)])
    return k.Model(x, layers.RNN(cells, name="stacked")(y))


def attention(k: Any) -> Any:
    layers = k.layers
    x = k.Input((4, 6))
    y = layers.MultiHeadAttention(2, 3)(x, x)
    y = layers.Attention(use_scale=True)([y, x])
    y = layers.AdditiveAttention()([y, x])
    y = layers.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d")(y)
    return k.Model(x, layers.Dense(1)(y))


def normalized(k: Any) -> Any:
    layer = k.layers.Normalization()
    layer.adapt(np.random.default_rng(1).normal(size=(8, 4)).astype("float32"))
    x = k.Input((4,))
    return k.Model(x, k.layers.Dense(2)(layer(x)))


def spectral(k: Any) -> Any:
    x = k.Input((4,))
    y = k.layers.SpectralNormalization(k.layers.Dense(3))(x)
    return k.Model(x, k.layers.SpectralNormalization(k.layers.Dense(2, use_bias=False))(y))


def nested(k: Any) -> Any:
    """A functional, a sequential and a subclassed model, and a shared layer, in one another."""
    layers = k.layers

    class Block(k.layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.inner = layers.Dense(4)

        def build(self, shape: Any) -> None:
            self.inner.build(shape)
            self.scale = self.add_weight(name="s", shape=(4,), initializer="ones")
            super().build(shape)

        def call(self, x: Any) -> Any:
            return self.inner(x) * self.scale

    inside = k.Input((4,))
    encoder = k.Model(inside, layers.Dense(4)(layers.Dense(4, name="a")(inside)), name="encoder")
    head = k.Sequential([k.Input((4,)), layers.Dense(4), layers.Dense(2)], name="top")
    tied = layers.Dense(4, activation="tanh", name="tied")
    x = k.Input((4,))
    return k.Model(x, head(tied(Block(name="block")(tied(encoder(x))))))


def listed(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [k.layers.Dense(4, activation="tanh") for _ in range(3)]
            self.heads = {"left": k.layers.Dense(2), "right": k.layers.Dense(2)}

        def call(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return self.heads["left"](x) + self.heads["right"](x)

    model = Net()
    model(np.zeros((1, 4), "float32"))
    return model


SIGMOID = {"recurrent_activation": "sigmoid"}  # tf_keras's default is another one
GROUPS = {"groups": 2}
# Model, its input, the difference that 20 steps make.
CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], float]] = {
    "series": (
        chain(
            SERIES,
            conv("Conv1D", 4, 2),
            conv("Conv1DTranspose", 2, 2),
            conv("SeparableConv1D", 4, 2),
            ("DepthwiseConv1D", {"kernel_size": 2}),
        ),
        SERIES,
        EXACT,
    ),
    "images": (
        chain(
            IMAGE,
            conv("Conv2D", 4, 3),
            "PReLU",
            conv("Conv2DTranspose", 2, 2),
            conv("SeparableConv2D", 4, 2),
            ("DepthwiseConv2D", {"kernel_size": 2}),
        ),
        IMAGE,
        EXACT,
    ),
    "volumes": (
        chain((4, 4, 4, 2), conv("Conv3D", 2, 2), conv("Conv3DTranspose", 2, 2)),
        (4, 4, 4, 2),
        EXACT,
    ),
    # 2.4e-7: Keras 3 normalizes by TensorFlow's operations, tf_keras by a fused kernel of it
    "norms": (
        chain(
            (8,),
            dense(8),
            "BatchNormalization",
            ("BatchNormalization", {"synchronized": True}),
            dense(8),
            "LayerNormalization",
            dense(8),
            ("GroupNormalization", GROUPS),
            dense(8),
            "UnitNormalization",
        ),
        (8,),
        SMALL,
    ),
    # 7.5e-9 to 4.5e-8: tf_keras runs these in a function of their own, fused by its optimizer
    "recurrent": (
        chain(
            WORDS,
            ("Embedding", {"input_dim": 7, "output_dim": 3}),
            ("LSTM", {"units": 3, "return_sequences": True}),
            ("GRU", {"units": 3, "return_sequences": True}),
            ("SimpleRNN", {"units": 2}),
        ),
        WORDS,
        SMALL,
    ),
    "wrapped": (wrapped, SHORT, SMALL),  # 6e-8, likewise
    "stacked_cells": (stacked_cells, SHORT, EXACT),
    "conv_lstm": (
        chain(
            (2, 4, 4, 2),
            ("ConvLSTM2D", {"filters": 2, "kernel_size": 2, "return_sequences": True, **SIGMOID}),
        ),
        (2, 4, 4, 2),
        EXACT,
    ),
    # 1.2e-7: Keras 3 scales the query after the product, and contracts in another order
    "attention": (attention, (4, 6), SMALL),
    "normalized": (normalized, (4,), EXACT),
    "spectral": (spectral, (4,), SMALL),
    "nested": (nested, (4,), EXACT),
    "listed": (listed, (4,), EXACT),
}
# What Keras 3 keeps in lists, plain TensorFlow does not save; tfckpt does, and saves each cell's
# seed, which a cell of tf_keras has not.
LISTED = {"stacked_cells": {"exclude_checkpoint": ["seed/**"]}, "listed": {}}


@pytest.fixture(autouse=True)
def _own_input_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    """tf_keras's SpectralNormalization takes tf.keras's, which is Keras 3's here."""
    monkeypatch.setattr(tf.keras.layers, "InputSpec", tf_keras.layers.InputSpec)


def inputs(shape: tuple[int, ...]) -> list[np.ndarray]:
    draw = np.random.default_rng(3)
    if shape == WORDS:
        return [draw.integers(0, 7, size=(4, *shape)) for _ in range(4)]
    return [draw.normal(size=(4, *shape)).astype("float32") for _ in range(4)]


@pytest.mark.parametrize("name", CASES)
def test_a_training_goes_on_in_the_other_flavour_and_back(name, tmp_path) -> None:
    build, shape, tolerance = CASES[name]
    models = []
    for k in (tf_keras, keras):
        k.utils.set_random_seed(1)
        models.append(build(k))
    for k, model in zip((tf_keras, keras), models, strict=True):
        model.compile(k.optimizers.SGD(0.02, momentum=0.9), "mse")
    data = batches(inputs(shape), models[0])
    begin = 0
    for writer, reader, k in ((*models, tf_keras), (*reversed(models), keras)):
        train(writer, data, begin, BEFORE)
        package, policy = tf.train, {}
        if k is keras and name in LISTED:
            package, policy = tfckpt, LISTED[name]
        path = package.Checkpoint(model=writer).save(str(tmp_path / k.__name__))
        forget(reader)
        restore = {"path": path, "policy": policy}
        tfckpt.restore({"version": 1, "restore": restore}, model=reader)
        assert values(writer).keys() == values(reader).keys()
        assert difference(writer, reader) == 0.0
        begin += BEFORE
        for model in (writer, reader):
            train(model, data, begin, AFTER)
        assert difference(writer, reader) <= tolerance
        begin += AFTER


@pytest.mark.parametrize("reader", [tf_keras, keras])
def test_a_layers_name_with_a_slash(reader, tmp_path) -> None:
    """Keras 3 allows none, and has underscores there; as in DenseNet121 of either flavour."""

    def build(slash: str, k: Any) -> Any:
        names = [f"conv1{slash}conv", f"conv1{slash}bn", "bn", "head"]
        x = y = k.Input((3,))
        for name in names:
            y = k.layers.Dense(3, use_bias=False, name=name)(y)
        return k.Model(x, y)

    source = build("/", tf_keras)
    for target in (build("_", reader), *([build("/", tf_keras)] if reader is tf_keras else [])):
        for package in (tf.train, tfckpt):
            path = package.Checkpoint(source).write(str(tmp_path / f"{package.__name__}-ckpt"))
            tfckpt.Checkpoint(model=target).read(path).assert_consumed()
            for found, wanted in zip(target.weights, source.weights, strict=True):
                np.testing.assert_array_equal(inner(found), inner(wanted))


def test_a_layer_that_another_one_made_is_found_by_its_own_name(flavour, tmp_path) -> None:
    """In tf_keras it bears the other one's name as a scope, which looks like a slash."""

    def build(k: Any) -> Any:
        outer = k.Sequential([k.layers.Dense(3, name="a"), k.layers.Dense(3)], name="outer")
        outer(np.zeros((1, 3), "float32"))
        x = k.Input((3,))
        made = [outer.layers[0], k.layers.Dense(3, name="b"), k.layers.Dense(3, name="c")]
        return k.Sequential([x, *made])

    source, target = build(tf_keras), build(flavour)
    path = tf.train.Checkpoint(source).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=target).read(path).assert_consumed()
    for found, wanted in zip(target.weights, source.weights, strict=True):
        np.testing.assert_array_equal(inner(found), inner(wanted))
