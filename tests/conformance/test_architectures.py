"""Architectures and attention in the other flavour, and averages of weights."""

from __future__ import annotations

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.graphs import dense, save, v1
from zoo.models import stack, wired
from zoo.optimizers import compiled
from zoo.values import fill, read

import tfckpt

LARGE = [
    *("ResNet50", "ResNet50V2", "MobileNetV2", "EfficientNetB0", "EfficientNetV2B0", "InceptionV3"),
    *("InceptionResNetV2", "Xception", "VGG16", "NASNetMobile", "ConvNeXtTiny", "DenseNet121"),
    *("MobileNetV3Small", "MobileNetV3Large"),
]
SIZES = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71, "NASNetMobile": 224}


@pytest.fixture
def _room():
    """Models of some hundred megabytes, one after the other."""
    yield
    keras.backend.clear_session()
    tf_keras.backend.clear_session()
    gc.collect()


def made(k, name, **more):
    size = SIZES.get(name, 32)
    arguments = {"classes": 7, "include_top": True, "input_shape": (size, size, 3), **more}
    return getattr(k.applications, name)(weights=None, **arguments)


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize(
    "name", ["MobileNet", *(pytest.param(name, marks=pytest.mark.long) for name in LARGE)]
)
def test_every_weight_arrives_in_the_other_flavour(name, tmp_path):
    """Layers of MobileNetV3 have other names in Keras 3, `conv_bn` for `Conv/BatchNorm`."""
    models = made(tf_keras, name), made(keras, name)
    policy = {"match": "structure"} if name.startswith("MobileNetV3") else {}
    for source, target in (models, models[::-1]):  # the layers' order is the same in both
        fill(1, source)
        fill(2, target)
        path = tf.train.Checkpoint(source).write(str(tmp_path / "ckpt"))
        tfckpt.restore(path, model=target, policy=policy)
        np.testing.assert_equal(target.get_weights(), source.get_weights())


@pytest.mark.usefixtures("_room")
def test_a_network_is_fine_tuned_with_another_head(tmp_path):
    """What tf_keras saved, with its optimizer's state, into a Keras 3 model of other classes."""
    more = {"alpha": 0.25}
    source = compiled(made(tf_keras, "MobileNet", **more), tf_keras.optimizers.SGD(momentum=0.9))
    path = tf.train.Checkpoint(model=source, optimizer=source.optimizer).save(str(tmp_path / "c"))
    base = made(keras, "MobileNet", include_top=False, pooling="avg", **more)
    target = keras.Model(base.input, keras.layers.Dense(3, name="flowers")(base.output))
    head = target.layers[-1].get_weights()
    tfckpt.restore(
        path,
        target,
        include=["model/**"],
        exclude=["model/flowers/**"],
        exclude_checkpoint=["model/conv_preds/**"],
    )
    np.testing.assert_equal(base.get_weights(), source.get_weights()[:-2])
    np.testing.assert_equal(target.layers[-1].get_weights(), head)


# Attention whose queries, keys and values one dense layer makes, or one each

WIDTH, HEADS, SIZE = 8, 2, 4
PARTS = [f"model/attention/{name}_dense/*" for name in ("query", "key", "value")]


def fused(k):
    class Fused(k.layers.Layer):
        def __init__(self, **more):
            super().__init__(**more)
            self.qkv = k.layers.Dense(3 * WIDTH)
            self.out = k.layers.Dense(WIDTH)

        def call(self, x):
            parts = tf.reshape(self.qkv(x), (-1, 5, 3, HEADS, SIZE))
            query, key, value = tf.unstack(parts, axis=2)
            scores = tf.einsum("bqhs,bkhs->bhqk", query, key) / np.sqrt(SIZE)
            answer = tf.einsum("bhqk,bkhs->bqhs", tf.nn.softmax(scores), value)
            return self.out(tf.reshape(answer, (-1, 5, WIDTH)))

    return wired(k, Fused(name="attention"), shape=(5, WIDTH))


def separate(k):
    layer = k.layers.MultiHeadAttention(HEADS, SIZE, name="attention")
    return wired(k, lambda x: layer(x, x), shape=(5, WIDTH))


QKV, OUT, DENSE = (f"model/attention/{name}/*" for name in ("qkv", "out", "output_dense"))
APART = {
    "adapt": [
        {"how": "split", "checkpoint": QKV, "model": PARTS, "axis": -1},
        {"how": "reshape", "model": "model/attention/*/*"},
    ],
    "rename": [{"checkpoint": OUT, "model": DENSE}],
}
TOGETHER = {
    "adapt": [
        {"how": "reshape", "model": f"{QKV[:-1]}kernel", "shape": [WIDTH, -1]},
        {"how": "reshape", "model": f"{QKV[:-1]}bias", "shape": [-1]},
        {"how": "concat", "checkpoint": PARTS, "model": QKV, "axis": -1},
        {"how": "reshape", "model": OUT},
    ],
    "rename": [{"checkpoint": DENSE, "model": OUT}],
}


@pytest.mark.parametrize(
    ("k", "old", "new", "policy"),
    [(keras, fused, separate, APART), (tf_keras, separate, fused, TOGETHER)],
    ids=["apart", "together"],
)
def test_the_answers_are_the_same(k, old, new, policy, tmp_path):
    source, target = fill(1, old(k)), new(k)
    path = tfckpt.Checkpoint(model=source).write(tmp_path / "ckpt")
    tfckpt.restore(path, model=target, policy=policy)
    x = np.random.default_rng(1).normal(size=(2, 5, WIDTH)).astype("float32")
    np.testing.assert_allclose(target(x), source(x), rtol=1e-5, atol=1e-5)


# Averages in the weights' place


def network(k):
    return stack(k, k.layers.Dense(2, name="out"))


def test_shadows_of_tf1(tmp_path, flavour):
    def build():
        dense(tf.ones((1, 3)), 2, "out")
        v1.train.ExponentialMovingAverage(0.9).apply([v1.trainable_variables()[0]])

    saved = save(tmp_path / "ckpt", build)
    keys = "out/kernel", "out/bias", "out/kernel/ExponentialMovingAverage"
    kernel, bias, shadow = (saved.values[key] for key in keys)
    model = network(flavour)
    tfckpt.restore(saved.path, model, include=["model/**"])
    np.testing.assert_equal(read(model), [kernel, bias])
    report = tfckpt.restore(saved.path, model, ema="prefer", include=["model/**"])
    np.testing.assert_equal(read(model), [shadow, bias])
    assert "ema: the moving average" in str(report)
    alone = {
        "include": ["model/**"],
        "exclude_checkpoint": ["model/**"],
        "rename": [{"checkpoint": "optimizer/moving_average/**", "model": "model/**"}],
    }
    with pytest.raises(tfckpt.RefusedError, match="model/out/bias"):
        tfckpt.restore(saved.path, model, policy=alone)
    model.get_layer("out").kernel.assign(kernel)
    tfckpt.restore(saved.path, model, policy={**alone, "expect_missing": ["model/out/bias"]})
    np.testing.assert_equal(read(model), [shadow, bias])


@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tf", "tfckpt"])
def test_averages_of_keras_optimizers(tmp_path, flavour, writer):
    model = network(flavour)
    adam = flavour.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5)
    model.compile(adam, "mse", run_eagerly=True)
    rng = np.random.default_rng(0)
    for _ in range(3):
        model.train_on_batch(rng.normal(size=(4, 3)), rng.normal(size=(4, 2)))
    path = writer.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    weights = model.get_weights()
    # what Keras itself puts in the weights' place at the end of a training
    model.optimizer.finalize_variable_values(model.trainable_variables)
    averages = model.get_weights()
    assert not np.array_equal(weights[0], averages[0])
    other = network(flavour)
    for keys, wanted in (({"ema": "prefer"}, averages), ({}, weights)):
        tfckpt.restore(path, other, **keys, include=["model/**"])
        np.testing.assert_equal(other.get_weights(), wanted)
