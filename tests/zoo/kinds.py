"""Models by what is in them: recurrent layers, attention, seeds, tables, modules, precisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from zoo.shapes import BATCH, WIDTH, called


def recurrent(k: Any) -> Any:
    cells = [k.layers.LSTMCell(4), k.layers.GRUCell(4)]
    return k.Sequential(
        [
            k.Input((4, WIDTH)),
            k.layers.LSTM(4, return_sequences=True),
            k.layers.RNN(cells, return_sequences=True, name="stacked"),
            k.layers.RNN(k.layers.SimpleRNNCell(4), return_sequences=True),
            k.layers.Bidirectional(k.layers.GRU(4, return_sequences=True)),
            k.layers.TimeDistributed(k.layers.Dense(2)),
            k.layers.SimpleRNN(2),
        ]
    )


def attention(k: Any) -> Any:
    class Encoder(k.layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.attend = k.layers.MultiHeadAttention(2, 4)
            self.norm = k.layers.LayerNormalization()

        def call(self, x: Any) -> Any:
            return self.norm(x + self.attend(x, x))

    x = k.Input((4, WIDTH))
    y = k.layers.MultiHeadAttention(2, 4)(x, x)
    return k.Model(x, k.layers.Dense(1)(Encoder(name="encoder")(y)))


def convolutional(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((8, 8, WIDTH)),
            k.layers.Conv2D(4, 3, padding="same"),
            k.layers.SeparableConv2D(4, 3, padding="same"),
            k.layers.DepthwiseConv2D(3, padding="same"),
            k.layers.Conv2DTranspose(4, 3, padding="same"),
            k.layers.BatchNormalization(),
            k.layers.GroupNormalization(2),
            k.layers.PReLU(),
            k.layers.Reshape((1, 8, 8, 4)),
            k.layers.ConvLSTM2D(2, 3),
        ]
    )


def spectral(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = k.layers.SpectralNormalization(k.layers.Dense(WIDTH))
            self.last = k.layers.SpectralNormalization(k.layers.Dense(2, use_bias=False))

        def call(self, x: Any) -> Any:
            return self.last(self.first(x))

    return called(Net(), BATCH)


def low_rank(k: Any) -> Any:
    model = k.Sequential([k.Input((WIDTH,)), k.layers.Dense(WIDTH), k.layers.Dense(2, name="head")])
    model.get_layer("head").enable_lora(2)
    return model


def normalized(k: Any) -> Any:
    layer = k.layers.Normalization()
    layer.adapt(np.arange(12, dtype="float32").reshape(4, 3))
    return called(k.Sequential([layer, k.layers.Dense(1)]), BATCH)


def text(k: Any) -> Any:
    x = k.Input((), dtype="string")
    vectorize = k.layers.TextVectorization(output_sequence_length=4)
    vectorize.adapt(["a b c", "b c d"])
    return k.Model(x, k.layers.Dense(1)(k.layers.Embedding(9, 2)(vectorize(x))))


def lookups(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.lookup = k.layers.StringLookup(vocabulary=["a", "b"])
            self.embed = k.layers.Embedding(4, 2)

        def call(self, x: Any) -> Any:
            return self.embed(self.lookup(x))

    return called(Net(), tf.constant(["a", "b"]))


def seeded(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((8, 8, WIDTH)),
            k.layers.RandomFlip(seed=1),
            k.layers.RandomRotation(0.1, seed=1),
            k.layers.Flatten(),
            k.layers.Dense(2),
            k.layers.Dropout(0.5, seed=3),
            k.layers.GaussianNoise(0.5, seed=4, name="noise"),
            k.layers.Dense(2),
            k.layers.Dropout(0.5, seed=3),
        ]
    )


def module_in_layer(k: Any) -> Any:
    class Plain(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(tf.ones([WIDTH]))
            self.more = [tf.Variable(tf.ones([WIDTH])), tf.Variable(tf.ones([WIDTH]))]

    class Holder(k.layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.module = Plain()
            self.bare = tf.Variable(tf.ones([WIDTH]), name="bare_name")

        def call(self, x: Any) -> Any:
            return x * self.module.w + self.bare

    return called(
        k.Sequential([k.Input((WIDTH,)), Holder(name="holder"), k.layers.Dense(1)]), BATCH
    )


def mixed_precision(k: Any) -> Any:
    class Own(k.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(name="scale", shape=(WIDTH,))
            super().build(shape)

        def call(self, x: Any) -> Any:
            return x * tf.cast(self.scale, "float16")

    policy = {"dtype": "mixed_float16"}
    layers = [
        k.layers.Dense(WIDTH, **policy),
        k.layers.BatchNormalization(**policy),
        Own(name="own", **policy),
        k.layers.Dense(1),
    ]
    return called(k.Sequential([k.Input((WIDTH,)), *layers]), BATCH)
