"""Architectures and attention in the other flavour, and averages of weights."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.graphs import dense, save, v1
from zoo.variables import inner

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path


long = pytest.mark.long


# Its layers have other names in Keras 3 (`Conv/BatchNorm` is `conv_bn`), and stand in one order.
BY_POSITION = {"match": "structure"}
ARCHITECTURES: list[Any] = [
    pytest.param("ResNet50", 32, {}),
    pytest.param("MobileNetV2", 32, {}),
    pytest.param("ResNet50V2", 32, {}, marks=long),
    pytest.param("MobileNet", 32, {}, marks=long),
    pytest.param("MobileNetV3Small", 32, BY_POSITION, marks=long),
    pytest.param("MobileNetV3Large", 32, BY_POSITION, marks=long),
    pytest.param("EfficientNetB0", 32, {}, marks=long),
    pytest.param("EfficientNetV2B0", 32, {}, marks=long),
    pytest.param("DenseNet121", 32, {}, marks=long),  # `conv1/conv` in tf_keras
    pytest.param("InceptionV3", 75, {}, marks=long),
    pytest.param("InceptionResNetV2", 75, {}, marks=long),
    pytest.param("Xception", 71, {}, marks=long),
    pytest.param("VGG16", 32, {}, marks=long),
    pytest.param("NASNetMobile", 224, {}, marks=long),
    pytest.param("ConvNeXtTiny", 32, {}, marks=long),
]


@pytest.fixture(autouse=True)
def _room() -> Any:
    """Models of some hundred megabytes, one after the other."""
    yield
    keras.backend.clear_session()
    tf_keras.backend.clear_session()
    gc.collect()


def made(k: Any, name: str, size: int, **arguments: Any) -> Any:
    arguments = {"classes": 7, **arguments}
    return getattr(k.applications, name)(
        weights=None, input_shape=(size, size, 3), include_top=True, **arguments
    )


def numbers(model: Any) -> list[np.ndarray]:
    """Its weights, in the order of the layers, which is the same in both flavours."""
    return [inner(variable).numpy() for variable in model.weights]


def restore(path: str, policy: dict[str, Any], model: Any) -> Any:
    restore = {"path": path, "policy": {"api": "read", **policy}}
    return tfckpt.restore({"version": 1, "restore": restore}, model=model)


@pytest.mark.parametrize(("name", "size", "policy"), ARCHITECTURES)
def test_every_weight_arrives_in_the_other_flavour(name, size, policy, tmp_path) -> None:
    models = made(tf_keras, name, size), made(keras, name, size)
    for source, target in (models, models[::-1]):
        wanted = numbers(source)
        path = tf.train.Checkpoint(source).write(str(tmp_path / "ckpt"))
        for variable in target.weights:
            inner(variable).assign(tf.zeros_like(inner(variable)))
        restore(path, policy, target)
        for found, value in zip(numbers(target), wanted, strict=True):
            np.testing.assert_array_equal(found, value)
        for variable in source.weights:  # the other way round
            value = tf.random.stateless_normal(variable.shape, (1, 2))
            inner(variable).assign(tf.cast(value, inner(variable).dtype))


def test_a_resnet_is_fine_tuned_with_another_head(tmp_path) -> None:
    """What tf_keras saved, with its optimizer's state, into a Keras 3 model of other classes."""
    source = made(tf_keras, "ResNet50", 32)
    source.compile(tf_keras.optimizers.SGD(momentum=0.9), "mse")
    source.optimizer.build(source.trainable_variables)
    path = tf.train.Checkpoint(model=source, optimizer=source.optimizer).save(str(tmp_path / "c"))
    base = keras.applications.ResNet50(
        weights=None, include_top=False, input_shape=(32, 32, 3), pooling="avg"
    )
    target = keras.Model(base.input, keras.layers.Dense(3, name="flowers")(base.output))
    policy = {"include": ["model/**"], "exclude": ["model/flowers/**"]}
    policy |= {"exclude_checkpoint": ["model/predictions/**"]}
    head = [inner(variable).numpy() for variable in target.layers[-1].weights]
    restore(path, policy, target)
    for found, wanted in zip(numbers(base), numbers(source)[:-2], strict=True):
        np.testing.assert_array_equal(found, wanted)
    for variable, value in zip(target.layers[-1].weights, head, strict=True):
        np.testing.assert_array_equal(inner(variable), value)


WIDTH, HEADS, SIZE = 8, 2, 4
PARTS = [f"model/attention/{name}_dense" for name in ("query", "key", "value")]


def fused(keras: Any, positions: int) -> Any:
    """One dense layer makes queries, keys and values."""

    class Fused(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            self.qkv = keras.layers.Dense(3 * WIDTH)
            self.out = keras.layers.Dense(WIDTH)

        def call(self, x: Any) -> Any:
            parts = tf.reshape(self.qkv(x), (-1, positions, 3, HEADS, SIZE))
            query, key, value = tf.unstack(parts, axis=2)
            scores = tf.einsum("bqhs,bkhs->bhqk", query, key) / np.sqrt(SIZE)
            answer = tf.einsum("bhqk,bkhs->bqhs", tf.nn.softmax(scores), value)
            return self.out(tf.reshape(answer, (-1, positions, WIDTH)))

    return _model(keras, positions, Fused(name="attention"))


def separate(keras: Any, positions: int) -> Any:
    layer = keras.layers.MultiHeadAttention(HEADS, SIZE, name="attention")
    return _model(keras, positions, lambda x: layer(x, x))


def _model(keras: Any, positions: int, attention: Any) -> Any:
    class Positions(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(name="table", shape=(1, positions, WIDTH))

        def call(self, x: Any) -> Any:
            return x + self.table

    x = keras.Input((positions, WIDTH))
    return keras.Model(x, attention(Positions(name="positions")(x)))


def trained(model: Any) -> Any:
    random = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign(random.normal(size=variable.shape))
    return model


APART = [
    {
        "how": "split",
        "checkpoint": "model/attention/qkv/*",
        "model": [f"{part}/*" for part in PARTS],
        "axis": -1,
    },
    {"how": "reshape", "model": "model/attention/*/*"},
]
APART_RENAME = {"checkpoint": "model/attention/out/*", "model": "model/attention/output_dense/*"}
TOGETHER = [
    {"how": "reshape", "model": "model/attention/qkv/kernel", "shape": [WIDTH, -1]},
    {"how": "reshape", "model": "model/attention/qkv/bias", "shape": [-1]},
    {
        "how": "concat",
        "checkpoint": [f"{part}/*" for part in PARTS],
        "model": "model/attention/qkv/*",
        "axis": -1,
    },
    {"how": "reshape", "model": "model/attention/out/*"},
]
TOGETHER_RENAME = {
    "checkpoint": "model/attention/output_dense/*",
    "model": "model/attention/out/*",
}


@pytest.mark.parametrize(
    ("old", "new", "rules", "rename"),
    [
        (fused, separate, APART, APART_RENAME),
        (separate, fused, TOGETHER, TOGETHER_RENAME),
    ],
    ids=["apart", "together"],
)
def test_the_answers_are_the_same(
    old: Any, new: Any, rules: Any, rename: Any, flavour: Any, tmp_path: Path
) -> None:
    source, target = trained(old(flavour, 5)), new(flavour, 5)
    path = tfckpt.Checkpoint(model=source).write(tmp_path / "ckpt")
    policy = {"api": "read", "adapt": rules, "rename": [rename]}
    tfckpt.restore({"version": 1, "restore": {"path": path, "policy": policy}}, model=target)
    x = np.random.default_rng(1).normal(size=(2, 5, WIDTH)).astype("float32")
    np.testing.assert_allclose(target(x), source(x), rtol=1e-5, atol=1e-5)


def test_larger_images_have_more_positions(flavour: Any, tmp_path: Path) -> None:
    source, target = trained(separate(flavour, 10)), separate(flavour, 17)
    path = tfckpt.Checkpoint(model=source).write(tmp_path / "ckpt")
    rule = {"how": "resize", "model": "model/positions/table", "method": "bicubic"}
    policy = {"api": "read", "adapt": [{**rule, "grid": [3, 3], "prefix": 1}]}
    tfckpt.restore({"version": 1, "restore": {"path": path, "policy": policy}}, model=target)
    old, new = (model.get_layer("positions").table.numpy() for model in (source, target))
    grid = tf.image.resize(old[:, 1:].reshape(1, 3, 3, WIDTH), (4, 4), "bicubic").numpy()
    np.testing.assert_allclose(new, np.concatenate([old[:, :1], grid.reshape(1, 16, -1)], axis=1))


def restored(path: str, model: Any, ema: str, **policy: Any) -> Any:
    config = {
        "version": 1,
        "restore": {"path": path, "policy": {"ema": ema, "include": ["model/**"], **policy}},
    }
    return tfckpt.restore(config, model=model)


def network(keras: Any) -> Any:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])


def test_shadows_of_tf1(tmp_path, flavour) -> None:
    def build() -> None:
        dense(tf.ones((1, 3)), 2, "out")
        v1.train.ExponentialMovingAverage(0.9).apply([v1.trainable_variables()[0]])

    saved = save(tmp_path / "ckpt", build)
    kernel, bias, shadow = (
        saved.values[key]
        for key in ("out/kernel", "out/bias", "out/kernel/ExponentialMovingAverage")
    )
    model = network(flavour)
    restored(saved.path, model, "ignore")
    np.testing.assert_equal(model.get_weights(), [kernel, bias])
    report = restored(saved.path, model, "prefer")
    np.testing.assert_equal(model.get_weights(), [shadow, bias])
    assert "ema: the moving average" in str(report)
    with pytest.raises(tfckpt.RefusedError, match="no moving average of it"):
        restored(saved.path, model, "only")


@pytest.mark.parametrize("writer", [tf.train.Checkpoint, tfckpt.Checkpoint], ids=["tf", "tfckpt"])
def test_averages_of_keras_optimizers(tmp_path, flavour, writer) -> None:
    model = network(flavour)
    model.compile(flavour.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5), "mse")
    rng = np.random.default_rng(0)
    for _ in range(3):
        model.train_on_batch(rng.normal(size=(4, 3)), rng.normal(size=(4, 2)))
    path = writer(model=model).save(str(tmp_path / "ckpt"))
    weights = model.get_weights()
    # what Keras itself puts in the weights' place at the end of a training
    model.optimizer.finalize_variable_values(model.trainable_variables)
    averages = model.get_weights()
    assert not np.array_equal(weights[0], averages[0])
    other = network(flavour)
    restored(path, other, "only")
    np.testing.assert_equal(other.get_weights(), averages)
    restored(path, other, "ignore")
    np.testing.assert_equal(other.get_weights(), weights)
