"""The data and the model: handwritten digits of 8 x 8 pixels, and a small convolutional net.

Every layer has a name of its own, so that ``configs/finetune.yaml`` can say which ones it means.
"""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
Examples = tuple[np.ndarray, np.ndarray]


def data(classes: int) -> tuple[Examples, Examples]:
    """Images of the first so many classes, for training and for testing, by different writers."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).reshape(-1, 8, 8, 1).astype("float32")
    wanted = labels < classes
    train = np.arange(len(labels)) < 1297
    return (
        (images[wanted & train], labels[wanted & train]),
        (images[wanted & ~train], labels[wanted & ~train]),
    )


def build_model(classes: int) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu", name="conv_1"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="conv_2"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu", name="features"),
            keras.layers.Dense(classes, name="classes"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model
