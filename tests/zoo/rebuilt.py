"""Models as the programs built them that wrote some of the real checkpoints, in either flavour."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def dense(k: Any, width: int, *units: int, names: tuple[str | None, ...] = ()) -> Any:
    names = names or (None,) * len(units)
    layers = [k.layers.Dense(n, name=name) for n, name in zip(units, names, strict=True)]
    return k.Sequential([k.Input((width,)), *layers])


def music(k: Any) -> Any:
    inputs = {"batch_shape": (64, None)} if k is keras else {"batch_size": 64, "shape": (None,)}
    lstm = {"return_sequences": True, "stateful": True, "recurrent_activation": "sigmoid"}
    layers = [k.layers.Embedding(4, 8), k.layers.LSTM(64, **lstm), k.layers.Dense(4)]
    return k.Sequential([k.Input(**inputs), *layers])


def autoencoder(k: Any) -> Any:
    layers = k.layers

    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = k.Sequential(
                [
                    k.Input((28, 28, 1)),
                    *(layers.Conv2D(units, 3, 2, activation="relu") for units in (32, 64)),
                    layers.Flatten(),
                    layers.Dense(4),
                ]
            )
            upwards = ((64, 2), (32, 2), (1, 1))
            self.decoder = k.Sequential(
                [
                    k.Input((2,)),
                    layers.Dense(7 * 7 * 32, activation="relu"),
                    layers.Reshape((7, 7, 32)),
                    *(layers.Conv2DTranspose(units, 3, step, "same") for units, step in upwards),
                ]
            )

        def call(self, x: Any) -> Any:
            return self.decoder(self.encoder(x)[:, :2])

    model = Net()
    model(np.zeros((1, 28, 28, 1), "float32"))
    return model


def deepconsensus(k: Any) -> Any:
    x = k.Input((100, 150, 1))
    y = k.layers.Flatten()(x)
    for units in (4, 4, 600):
        y = k.layers.Dense(units)(y)
    return k.Model(x, k.layers.Softmax()(k.layers.Reshape((120, 5))(y)))


def basic_pitch(k: Any) -> Any:
    """As in basic_pitch/models.py, but for what lies between the layers and has no weights."""
    layers = k.layers
    x = k.Input((None, 24, 1))
    stacked = layers.Concatenate()([layers.BatchNormalization()(x)] * 8)
    y = layers.Conv2D(8, (3, 39), padding="same")(stacked)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    contours = layers.Conv2D(1, 5, padding="same", name="contours-reduced")(y)
    y = layers.ReLU()(layers.Conv2D(32, 7, padding="same", strides=(1, 3))(contours))
    notes = layers.Conv2D(1, (7, 3), padding="same")(y)
    y = layers.Conv2D(32, 5, padding="same", strides=(1, 3))(stacked)
    y = layers.Concatenate()([notes, layers.ReLU()(layers.BatchNormalization()(y))])
    return k.Model(x, [contours, notes, layers.Conv2D(1, 3, padding="same")(y)])


_WIDTHS = (400, 400, 300, 150, 67)
BARE: dict[str, dict[str, tuple[int, ...]]] = {
    "tf2_makemore": {
        "C": (67, 50),
        **{f"W{n}": both for n, both in enumerate(itertools.pairwise(_WIDTHS), 1)},
        **{f"b{n}": (width,) for n, width in enumerate(_WIDTHS[1:], 1)},
    },
    "sm_serving_tf2": dict.fromkeys("abc", ()),
    "sm_tfjs_uint8": {"v1": (), "v2": ()},
}


class Module(tf.Module):
    """A tf.Module with these attributes, as Sonnet's are: numbers are shapes of variables."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for attribute, part in parts.items():
            setattr(self, attribute, self._made(part))

    def _made(self, part: Any) -> Any:
        if isinstance(part, dict):
            return Module(**part)
        if isinstance(part, list):
            return [self._made(each) for each in part]
        counter = part == ()
        return tf.Variable(tf.zeros(part, tf.int64 if counter else tf.float32))


def _average(*shape: int) -> dict[str, Any]:
    return {"average": shape, "_hidden": shape, "_counter": ()}


def _normed(width: int) -> dict[str, Any]:
    moving = _average(1, 1, 1, width)
    both = {"moving_mean": moving, "moving_variance": moving}
    return {"scale": (width,), "offset": (width,), **both}


_LSTM = {"_w_i": (128, 32), "_w_h": (1, 32), "b": (32,), "projection": (8, 1)}
SONNET: dict[str, dict[str, Any]] = {
    "sonnet_ema_2": _average(2),
    "sonnet_embed_100_100": {"embeddings": (100, 100)},
    "sonnet_mean_2x2": {"sum": (2, 2), "count": ()},
    "sonnet_lstm_8_projected_1": _LSTM,
    "sonnet_cifar10_convnet_2x3_2x2_1x3x3x2": {
        "_conv_modules": [{"w": (3, 3, 2, 2), "b": (2,)}, {"w": (3, 3, 2, 3), "b": (3,)}],
        "_bn_modules": [_normed(2), _normed(3)],
        "_logits_module": {"w": (3, 10), "b": (10,)},
    },
}


def _nlf(k: Any) -> list[Any]:
    layers = k.layers
    hidden = [layers.Dense(256), layers.Dropout(0.5), layers.Dense(256), layers.Dropout(0.5)]
    return [*hidden, layers.Flatten(), layers.Dense(1)]


# The name of the file, the shape of the input, the layers.
KERAS_FILES: dict[str, tuple[str, tuple[int | None, ...], Any]] = {
    "h5_rl_deep_sarsa": (
        "deep_sarsa_trained.h5",
        (15,),
        lambda k: [k.layers.Dense(units) for units in (30, 30, 5)],
    ),
    "h5_rl_drqn": (
        "cartpole_drqn.h5",
        (None, 2),
        lambda k: [k.layers.LSTM(32), k.layers.Dense(2)],
    ),
    "k3_nlf": ("model.keras", (40,), _nlf),
}
