"""SavedModels, given as directories: as their writers, tf_keras, Keras 3 and TF1, leave them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.graphs import dense, v1

import tfckpt
from tfckpt.errors import DamagedCheckpointError, RefusedError
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def nested(flavour: Any) -> Any:
    """A model in a model; nothing in the variables' names tells what the inner one is called."""
    layers = flavour.layers
    inner = flavour.Sequential(
        [flavour.Input((4,)), layers.Dense(4), layers.Dense(3)], name="tower"
    )
    inputs = flavour.Input((4,))
    outputs = layers.Dense(2, name="out")(layers.BatchNormalization()(inner(inputs)))
    return flavour.Model(inputs, outputs)


def fill(model: Any) -> None:
    random = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign(random.uniform(0.1, 1.0, variable.shape))


@pytest.fixture(scope="module")
def of_tf_keras(tmp_path_factory: Any) -> tuple[str, dict[str, Any]]:
    """Its directory, and its weights by their last names."""
    model = nested(tf_keras)
    model.compile("adam", "mse", metrics=["mae"])
    model.train_on_batch(np.ones((2, 4)), np.ones((2, 2)))
    fill(model)
    directory = str(tmp_path_factory.mktemp("saved") / "model")
    model.save(directory, save_format="tf")
    return directory, model.get_weights()


def test_layers_have_the_names_that_keras_gave_them(of_tf_keras) -> None:
    directory, _ = of_tf_keras
    with open_checkpoint(directory) as stored:
        names = set(stored.inventory.entries)
    assert {
        "model/tower/dense/kernel",
        "model/tower/dense_1/bias",
        "model/batch_normalization/moving_mean",
        "model/out/kernel",
        "optimizer/momentum/tower/dense/kernel",
        "metrics/mae/total",
    } <= names
    assert not [name for name in names if "layer_with_weights" in name]


def test_it_is_restored_into_both_flavours(of_tf_keras, flavour) -> None:
    directory, weights = of_tf_keras
    model = nested(flavour)
    config = {
        "version": 1,
        "restore": {"path": directory, "policy": {"include": ["model/**"]}},
    }
    tfckpt.restore(config, model=model)
    np.testing.assert_equal(model.get_weights(), weights)


@pytest.mark.parametrize("damage", [b"", b"\xff" * 100, b"\x0a\x05\x2a\xff\xff\xff\xff"])
def test_names_that_cannot_be_read_are_not_told(of_tf_keras, tmp_path, damage) -> None:
    directory, _ = of_tf_keras
    copy = shutil.copytree(directory, tmp_path / "copy")
    (copy / "keras_metadata.pb").write_bytes(damage)
    with open_checkpoint(directory) as whole, open_checkpoint(str(copy)) as stored:
        assert len(stored.inventory.entries) == len(whole.inventory.entries)
        keys = {e.key for e in stored.inventory.entries.values()}
        assert keys == {e.key for e in whole.inventory.entries.values()}


def test_what_keras_3_exports(tmp_path: Path) -> None:
    model = nested(keras)
    fill(model)
    model.export(str(tmp_path / "model"), verbose=False)
    with open_checkpoint(str(tmp_path / "model")) as stored:
        assert stored.kind == "saved_model"
        found = [stored.values.read(e.key) for e in stored.inventory.entries.values() if e.shape]
    for weight in model.get_weights():
        assert any(np.array_equal(weight, value) for value in found)


def sequential(flavour: Any, *names: str | None) -> Any:
    layers = flavour.layers
    inside = [layers.Dense(4, name=name) for name in names]
    return flavour.Sequential(
        [flavour.Input((4,)), *inside, layers.BatchNormalization(), layers.Dropout(0.5)]
    )


def functional(flavour: Any) -> Any:
    inputs = flavour.Input((None, 4))
    outputs = flavour.layers.Bidirectional(flavour.layers.LSTM(3))(inputs)
    return flavour.Model(inputs, flavour.layers.Dense(2, name="out")(outputs))


class Subclassed(keras.Model):
    """Its attributes are called as its layers, each as the other."""

    def __init__(self) -> None:
        super().__init__()
        self.b = keras.layers.Dense(4, name="a")
        self.a = keras.layers.Dense(4, name="b")

    def call(self, inputs: Any) -> Any:
        return self.a(self.b(inputs))


def restore_exported(directory: Path, model: Any) -> None:
    policy = {"include": ["model/**"]}
    tfckpt.restore(
        {"version": 1, "restore": {"path": str(directory), "policy": policy}}, model=model
    )


@pytest.mark.parametrize(
    "build", [functional, lambda k: sequential(k, None, None), lambda k: sequential(k, "b", "a")]
)
def test_an_exported_model_is_restored(flavour, build, tmp_path: Path) -> None:
    written = build(flavour)
    fill(written)
    written.export(str(tmp_path / "model"), **({"verbose": False} if flavour is keras else {}))
    model = build(flavour)
    restore_exported(tmp_path / "model", model)
    np.testing.assert_equal(model.get_weights(), written.get_weights())
    with open_checkpoint(str(tmp_path / "model")) as stored:
        weights = [name for name in stored.inventory.entries if name.startswith("model/")]
    assert len(weights) == len(written.get_weights())


def test_an_exported_model_does_not_go_into_one_with_another_layer(flavour, tmp_path) -> None:
    written = sequential(flavour, None, None)
    written.export(str(tmp_path / "model"), **({"verbose": False} if flavour is keras else {}))
    for names in ((None, None, None), (None, "new", None), ("new", None)):
        with pytest.raises(RefusedError):
            restore_exported(tmp_path / "model", sequential(flavour, *names))


def test_names_that_two_exported_values_share_are_no_names(tmp_path: Path) -> None:
    """In a subclassed model of Keras 3, each kernel is `subclassed/kernel`."""
    written, model = Subclassed(), Subclassed()
    for each in (written, model):
        each(np.ones((1, 4)))
    written.export(str(tmp_path / "model"), verbose=False)
    before = model.get_weights()
    with pytest.raises(RefusedError, match="MISSING"):
        restore_exported(tmp_path / "model", model)
    np.testing.assert_equal(model.get_weights(), before)


def test_what_tf1s_builder_wrote(tmp_path: Path) -> None:
    directory = str(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as session:
        dense(tf.ones((1, 3)), 2, "out")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(directory)
        builder.add_meta_graph_and_variables(session, ["serve"])
        builder.save()
        kernel, bias = session.run(v1.global_variables())
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    tfckpt.restore(
        {"version": 1, "restore": {"path": directory, "policy": {"assert": "consumed"}}},
        model=model,
    )
    np.testing.assert_equal(model.get_weights(), [kernel, bias])


def test_one_without_variables_says_so(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    with pytest.raises(DamagedCheckpointError, match="is a SavedModel without variables"):
        tfckpt.Checkpoint(model=model).restore(str(tmp_path))
