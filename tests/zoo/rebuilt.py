"""Models as the programs built them that wrote some of the real checkpoints, in either flavour."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


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
