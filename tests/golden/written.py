"""What this release has written, checked in: every later one must restore it.

``python -m golden.written NAME``, in the folder ``tests``, writes such files into ``written/NAME``,
for a release to come; those that are there stay as they are.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

WRITTEN = Path(__file__).parent / "written"
FLAVORS = ("keras", "tf_keras")


def model_of(flavor: str) -> Any:
    """A compiled model whose optimizer is built."""
    keras = importlib.import_module(flavor)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(3, activation="relu", name="hidden"),
            layers.BatchNormalization(name="norm"),
            layers.Dense(2, name="out"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.5), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def values_of(model: Any) -> list[np.ndarray]:
    """The values of the variables of a model and its optimizer in these files, by their place."""
    variables = [np.asarray(one) for one in (*model.variables, *model.optimizer.variables)]
    return [
        (100 * place + np.arange(one.size)).reshape(one.shape).astype(one.dtype)
        for place, one in enumerate(variables, 1)
    ]


def fill(model: Any, values: list[np.ndarray]) -> None:
    for variable, value in zip([*model.variables, *model.optimizer.variables], values, strict=True):
        variable.assign(value)


def write(name: str) -> None:
    import tfckpt

    for flavor in FLAVORS:
        model, place = model_of(flavor), WRITTEN / name / flavor
        fill(model, values_of(model))
        manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), place, 3)
        path = manager.save(step=7, epoch=2, metrics={"val_loss": 0.25}, metadata={"by": "a test"})
        assert path is not None
        tfckpt.convert(path, place / "model.weights.h5", model)
        tfckpt.convert(path, place / "values.safetensors")
        (place / ".tfckpt.lock").unlink()


if __name__ == "__main__":
    write(sys.argv[1])
