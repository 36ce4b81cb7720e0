"""What Keras's OrbaxCheckpoint wrote is restored, to the values that were written.

The samples are of Keras 3.15 and Orbax 0.12; with these installed, ``python -m golden.test_orbax``,
in the folder ``tests``, writes ``orbax/tensorflow/3`` with ``KERAS_BACKEND=tensorflow``, and the
weights alone, ``orbax/jax/3``, with ``KERAS_BACKEND=jax``.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore

import tfckpt
from tfckpt.cli.main import main

WRITTEN = Path(__file__).parent / "orbax"
KERNEL = "trainable_variables.sequential.first.kernel/"


def model_of() -> tuple[Any, list[np.ndarray]]:
    """A model with its optimizer, and the values in the samples, by their place."""
    import keras

    layers = keras.layers
    hidden = [layers.Dense(4, name="first"), layers.BatchNormalization(), layers.Dropout(0.5)]
    model = keras.Sequential([keras.Input((3,)), *hidden, layers.Dense(4), layers.Dense(4)])
    model.compile(keras.optimizers.Adam(0.5), "mse")
    model.optimizer.build(model.trainable_variables)
    values = [
        ((100 * place + np.arange(np.prod(one.shape, dtype=int))) / 10).reshape(one.shape)
        for place, one in enumerate(variables_of(model), 1)
    ]
    return model, [
        value.astype(one.dtype) for value, one in zip(values, variables_of(model), strict=True)
    ]


def variables_of(model: Any) -> list[Any]:
    """Those of the model without its seed, then those of the optimizer."""
    return [one for one in model.variables if "seed" not in one.path] + model.optimizer.variables


def equal(model: Any, values: list[np.ndarray]) -> list[bool]:
    pairs = zip(variables_of(model), values, strict=True)
    return [np.array_equal(np.asarray(one), value) for one, value in pairs]


@pytest.mark.parametrize("path", ["tensorflow", "tensorflow/3", "tensorflow/3/"])
def test_a_step_and_the_newest_step_are_restored_with_the_optimizer(path: str, tmp_path) -> None:
    place = shutil.copytree(WRITTEN, tmp_path / "steps")
    shutil.copytree(WRITTEN / "jax/3", place / "tensorflow/2")
    model, values = model_of()
    report = tfckpt.restore(f"{place}/{path}", model)
    assert all(equal(model, values))
    assert f"from {place}/tensorflow/3 " in " ".join(str(report.plan).split())
    assert [one.name for one in report.plan.steps if one.status == "MISSING"] == ["seed/dropout"]


def test_weights_alone_are_restored_and_exported(tmp_path) -> None:
    copy = tmp_path / "copy.safetensors"
    assert main(["tfckpt", "export", str(WRITTEN / "jax/3"), str(copy)]) == 0
    for source in (WRITTEN / "jax/3", copy):
        model, values = model_of()
        assert tfckpt.plan(source, model).ok
        tfckpt.restore(source, model)
        assert equal(model, values).count(True) == len(model.weights)


def test_without_tensorstore_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(tfckpt.NotInstalledError, match=r"pip install 'tfckpt\[orbax\]'"):
        tfckpt.restore(WRITTEN / "jax", model_of()[0])


def too_large(store: Any) -> None:
    document = json.loads(store.read(KERNEL + "zarr.json").result().value)
    document["shape"] = [3, 1 << 40]
    store.write(KERNEL + "zarr.json", json.dumps(document)).result()


def of_other_chunks(store: Any) -> None:
    document = json.loads(store.read(KERNEL + "zarr.json").result().value)
    document["chunk_grid"]["configuration"]["chunk_shape"] = [1 << 40, 4]
    document["codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    store.write(KERNEL + "zarr.json", json.dumps(document)).result()


def without_a_chunk(store: Any) -> None:
    store.delete_range(tensorstore.KvStore.KeyRange(KERNEL + "c", KERNEL + "d")).result()


def without_an_array(store: Any) -> None:
    store.delete_range(tensorstore.KvStore.KeyRange(KERNEL, KERNEL + "~")).result()


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (too_large, tfckpt.UnsupportedCheckpointError),
        (of_other_chunks, tfckpt.UnsupportedCheckpointError),
        (without_a_chunk, tfckpt.DamagedCheckpointError),
        (without_an_array, tfckpt.DamagedCheckpointError),
    ],
)
def test_a_damaged_store_is_refused_and_nothing_is_restored(harm: Any, error, tmp_path) -> None:
    place = shutil.copytree(WRITTEN / "jax/3", tmp_path / "3")
    base = {"driver": "file", "path": f"{place}/pytree/"}
    harm(tensorstore.KvStore.open({"driver": "ocdbt", "base": base}).result())
    model, values = model_of()
    with pytest.raises(error, match=re.escape(str(place))):
        tfckpt.restore(place, model)
    assert not any(equal(model, values)[:2])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("{", "{{", "Expecting property name"),
        ('"tree_metadata"', '"metadata"', "tree_metadata"),
        ('"trainable_variables"', '"params"', "not written by Keras's OrbaxCheckpoint"),
        ('"key": "dense_1"', '"key": "dense"', "is in the tree twice"),
        ('"key": "moving_mean"', '"key": "gamma"', "two variables have this name"),
        ('"use_ocdbt": true', '"use_ocdbt": false', "OCDBT"),
    ],
)
def test_a_tree_that_keras_does_not_write_is_refused(old, new, says, tmp_path) -> None:
    tree = shutil.copytree(WRITTEN / "jax/3", tmp_path / "3") / "pytree/_METADATA"
    tree.write_text(tree.read_text().replace(old, new))
    with pytest.raises(tfckpt.CheckpointError, match=says) as refused:
        tfckpt.restore(tmp_path / "3", model_of()[0])
    assert str(tmp_path / "3") in str(refused.value)


if __name__ == "__main__":
    import keras

    written, numbers = model_of()
    for variable, number in zip(variables_of(written), numbers, strict=True):
        variable.assign(number)
    backend = keras.backend.backend()
    callback = keras.callbacks.OrbaxCheckpoint(
        str(WRITTEN / backend), save_on_background=False, save_weights_only=backend == "jax"
    )
    callback.set_model(written)
    callback.on_epoch_end(3)
    callback.on_train_end()
    sys.exit()
