"""What earlier releases have written is restored, to the values that were written.

``python -m golden.test_written NAME``, in the folder ``tests``, writes such files into
``written/NAME``, for a release to come; those that are there stay as they are.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfckpt

WRITTEN = Path(__file__).parent / "written"
FLAVORS = ("keras", "tf_keras")


def model_of(flavor: str) -> tuple[Any, list[np.ndarray]]:
    """A compiled model whose optimizer is built, and the values in these files, by their place."""
    keras = importlib.import_module(flavor)
    hidden = keras.layers.Dense(3, activation="relu", name="hidden")
    norm, out = keras.layers.BatchNormalization(name="norm"), keras.layers.Dense(2, name="out")
    model = keras.Sequential([keras.Input((4,)), hidden, norm, out])
    model.compile(keras.optimizers.Adam(0.5), "mse")
    model.optimizer.build(model.trainable_variables)
    values = [
        (100 * place + np.arange(one.size)).reshape(one.shape).astype(one.dtype)
        for place, one in enumerate(values_of(model), 1)
    ]
    return model, values


def values_of(model: Any) -> list[np.ndarray]:
    return [np.asarray(one) for one in (*model.variables, *model.optimizer.variables)]


def fill(model: Any, values: list[Any]) -> None:
    for variable, value in zip([*model.variables, *model.optimizer.variables], values, strict=True):
        variable.assign(value)


def assert_values(model: Any, values: list[np.ndarray]) -> None:
    """Of the model, or of it and its optimizer."""
    for one, value in zip(values_of(model), values, strict=False):
        np.testing.assert_array_equal(one, value)


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("release", sorted(path.name for path in WRITTEN.iterdir()))
def test_what_a_release_wrote_is_restored_and_goes_on(
    release: str, flavor: str, tmp_path: Path
) -> None:
    place = shutil.copytree(WRITTEN / release / flavor, tmp_path / flavor)
    model, values = model_of(flavor)
    zeros = [np.zeros_like(value) for value in values]
    fill(model, zeros)
    report = tfckpt.restore(str(place), model)
    assert (report.step, report.epoch, report.metrics) == (7, 2, {"val_loss": 0.25})
    assert_values(model, values)
    record = tfckpt.inspect(str(place / "ckpt-1")).record
    assert record is not None
    assert (record.step, record.metadata) == (7, {"by": "a test"})
    for name in ("model.weights.h5", "values.safetensors"):
        fill(model, zeros)
        tfckpt.restore(str(place / name), model, on_missing="ignore")
        assert_values(model, values[: len(model.variables)])
    fill(model, zeros)
    model.load_weights(place / "model.weights.h5")
    assert_values(model, values[: len(model.variables)])
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), place, 1)
    assert manager.restore_or_initialize() == str(place / "ckpt-1")
    manager.save()
    assert [path[-6:] for path in manager.checkpoints] == ["ckpt-2"]


def write(name: str) -> None:
    for flavor in FLAVORS:
        (model, values), place = model_of(flavor), WRITTEN / name / flavor
        fill(model, values)
        manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), place, 3)
        path = manager.save(step=7, epoch=2, metrics={"val_loss": 0.25}, metadata={"by": "a test"})
        assert path is not None
        tfckpt.export(path, place / "model.weights.h5", model)
        tfckpt.export(path, place / "values.safetensors")
        (place / ".tfckpt.lock").unlink()


if __name__ == "__main__":
    write(sys.argv[1])
