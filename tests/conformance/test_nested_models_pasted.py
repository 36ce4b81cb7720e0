"""Suggestions for a model that is nested in another on one side, pasted as people would.

What must come out is known from the models that were saved.
"""

from __future__ import annotations

import random
import tempfile
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.branched import built, drawn, edited
from zoo.pasted import equal, pasted

import tfckpt

LAYERS = keras.layers


# --- keras.applications: the backbone goes on under another head

FEW = ["MobileNetV2", "ResNet50"]
MANY = [
    "ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionResNetV2",
    "InceptionV3", "MobileNet", "MobileNetV3Small", "NASNetMobile", "ResNet50V2", "VGG16", "VGG19",
    "Xception",
]  # fmt: skip


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(name, marks=pytest.mark.long) for name in MANY)]
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_backbone_into_a_classifier_of_ones_own(name: str, nested: bool, tmp_path: Any) -> None:
    make = getattr(keras.applications, name)
    shape = (224, 224, 3) if name == "NASNetMobile" else (96, 96, 3)
    whole = make(weights=None, input_shape=shape, classes=10)
    path = str(tmp_path / "whole.weights.h5")
    whole.save_weights(path)
    keras.backend.clear_session()
    backbone = make(weights=None, input_shape=shape, include_top=False, pooling="avg")
    inputs = keras.Input(shape) if nested else backbone.input
    features = backbone(inputs) if nested else backbone.output
    model = keras.Model(inputs, LAYERS.Dense(5, name="mine")(features))
    head = model.get_layer("mine").get_weights()
    pasted(path, model)
    equal(whole.weights[: len(backbone.weights)], backbone.weights)
    np.testing.assert_equal(model.get_layer("mine").get_weights(), head)


# --- models with branches and automatic names, edited, nested on one side or the other

HEADS = [None, ("logits", 10), ("mine", 5), (None, 7)]
MORE = [pytest.param(n, marks=pytest.mark.long) for n in range(1000, 5000, 1000)]


@pytest.mark.parametrize("seed", [0, *MORE])
def test_no_layer_of_a_nested_model_gets_the_weights_of_another(seed: int, flavour: Any) -> None:
    found = [word for n in range(30 if seed == 0 else 150) if (word := of_one(seed + n, flavour))]
    assert "right" in found
    assert "wrong" not in found, [seed + n for n, word in enumerate(found) if word == "wrong"]


def of_one(seed: int, flavour: Any) -> str:
    """What becomes of one pair of models; "" where nothing is suggested.

    "as Keras" where the edited model would write the same file, but for the values: a .weights.h5
    file of tf_keras has no names or connections, and nobody can tell that it is another model's.
    """
    draw = random.Random(seed)
    calls = drawn(draw)
    start_anew(draw, flavour)
    nested = draw.choice([(False, True), (True, False), (True, True), (False, False)])
    saved, old = built(flavour, calls, head=draw.choice(HEADS), nested=nested[0])
    values = np.random.default_rng(seed)
    saved.set_weights([values.standard_normal(w.shape) for w in saved.get_weights()])
    with tempfile.TemporaryDirectory() as place:
        path = write(draw, saved, f"{place}/saved")
        start_anew(draw, flavour)
        model, new = built(flavour, edited(draw, calls), head=draw.choice(HEADS), nested=nested[1])
        fresh = {key: layer.get_weights() for key, layer in new.items()}
        try:
            tfckpt.restore(path, model)
        except tfckpt.RefusedError as error:
            if error.suggestion is None:
                return ""
            tfckpt.restore(path, model, policy=error.suggestion)
        if all(is_right(new[key], old.get(key), fresh[key]) for key in new):
            return "right"
        return "as Keras" if is_own(path, model) else "wrong"


def start_anew(draw: random.Random, flavour: Any) -> None:
    """Automatic names begin at 0, or somewhere else, as in a notebook."""
    flavour.backend.clear_session()
    for _ in range(draw.choice([0, 0, 3])):
        flavour.layers.Dense(1)


def write(draw: random.Random, model: Any, path: str) -> str:
    how = draw.choice([".weights.h5", ".weights.h5", "TensorFlow", "tfckpt"])
    if how == "TensorFlow":
        return tf.train.Checkpoint(model=model).write(path)
    if how == "tfckpt":
        return tfckpt.Checkpoint(model=model).write(path)
    model.save_weights(path + how)
    return path + how


def is_own(path: str, model: Any) -> bool:
    """Whether a model would write the same .weights.h5 file, and Keras reads the same values."""
    if not path.endswith(".weights.h5"):
        return False
    restored = model.get_weights()
    model.save_weights(own := f"{path}.own.weights.h5")
    model.load_weights(path)
    return layout(own) == layout(path) and same(restored, model.get_weights())


def layout(path: str) -> dict[str, Any]:
    """The groups of a file, with what is written about them, and the shapes of its values."""
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: (getattr(item, "shape", ()), {**item.attrs})})
        )
    return found


def is_right(layer: Any, saved: Any, fresh: list[np.ndarray]) -> bool:
    """Whether a layer has its own saved weights, or none of them."""
    now = layer.get_weights()
    return same(now, fresh) or (saved is not None and same(now, saved.get_weights()))


def same(values: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return all(map(np.array_equal, values, others))
