"""Architectures of `keras.applications`, from tf_keras to Keras 3 and back, with random weights.

The layers have the same names in both flavours, so that strict policies do; where they have not,
the policy stands beside the architecture.
"""

from __future__ import annotations

import gc
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.variables import inner

import tfckpt

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


def test_a_resnet_as_a_backbone_of_a_larger_model(tmp_path) -> None:
    source = made(tf_keras, "ResNet50", 32)
    source.save_weights(str(tmp_path / "weights"))
    base = keras.applications.ResNet50(
        weights=None, include_top=False, input_shape=(32, 32, 3), pooling="avg", name="backbone"
    )
    x = keras.Input((32, 32, 3))
    target = keras.Model(x, keras.layers.Dense(3, name="flowers")(base(x)))
    policy = {
        "rename": [{"checkpoint": "model/**", "model": "model/backbone/**"}],
        "exclude": ["model/flowers/**"],
        "exclude_checkpoint": ["model/predictions/**"],
    }
    restore(str(tmp_path / "weights"), policy, target)
    for found, wanted in zip(numbers(base), numbers(source)[:-2], strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_same_head_of_other_classes_is_skipped(tmp_path) -> None:
    source, target = made(tf_keras, "MobileNetV2", 32), made(keras, "MobileNetV2", 32, classes=3)
    path = tf.train.Checkpoint(source).write(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.RefusedError, match="incompatible tensor with shape"):
        restore(path, {}, target)
    restore(path, {"on_shape_mismatch": "skip"}, target)
    for found, wanted in zip(numbers(target)[:-2], numbers(source)[:-2], strict=True):
        np.testing.assert_array_equal(found, wanted)
