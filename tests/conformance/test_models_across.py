"""Models of every kind, from tf_keras to Keras 3 and back: they answer as they did.

Subclassed, nested, with layers in lists and dicts, variables of their own, modules of TensorFlow:
what `zoo.models` has, given random weights, saved in one flavour and restored in the other.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.models import KERAS_3, MODELS
from zoo.shapes import BATCH
from zoo.variables import inner

import tfckpt
from tfckpt.live.inventory import collect

IMAGES = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype("float32")
INPUTS = {
    "recurrent": IMAGES[:, 0, :4],
    "attention": IMAGES[:, 0, :4],
    "convolutional": IMAGES,
    "seeded": IMAGES,
    "lookups": tf.constant(["a", "b"]),
}
# tf_keras's ConvLSTM2D has another sigmoid by default; Keras 3's RandomFlip flips always.
OTHER_ANSWER = {"convolutional", "seeded"}
# A table's file tells no layer's name, and a rename must: `text_vectorization`.
UNTOLD = {"text"}
# Weights that a plain Keras 3 checkpoint does not hold, or says not whose they are: lists, modules.
BY_TFCKPT = {
    "containers",
    "own_weights",
    "recurrent",
    "module_in_layer",
    "sequential_in_subclassed",
}


def randomize(model: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    live = collect({"model": model})
    for name, entry in live.inventory.entries.items():
        if entry.dtype.startswith("float"):
            inner(live.variables[name]).assign(draw.uniform(0.5, 1.5, entry.shape))
    for layer in model._flatten_layers():  # Normalization computes with constants made of them
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()


def weights(model: Any) -> set[str]:
    entries = collect({"model": model}).inventory.entries
    return {name for name, entry in entries.items() if entry.role == "weight"}


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(KERAS_3) - UNTOLD))
@pytest.mark.parametrize(("writer", "reader"), [(tf_keras, keras), (keras, tf_keras)])
def test_a_model_answers_as_it_did_in_the_other_flavour(writer, reader, name, tmp_path) -> None:
    source, target = MODELS[name](writer), MODELS[name](reader)
    randomize(source, 1)
    randomize(target, 2)
    package = tfckpt if writer is keras and name in BY_TFCKPT else tf.train
    path = package.Checkpoint(net=source).write(str(tmp_path / "ckpt"))
    policy = {"api": "read", "on_unexpected": "warn"}
    config = {"version": 1, "restore": {"path": path, "policy": policy}}
    report = tfckpt.restore(config, model=target)
    loaded = {step.name for step in report.plan.assignments}
    assert loaded >= weights(target)
    if name not in OTHER_ANSWER:
        x = INPUTS.get(name, BATCH)
        for found, wanted in zip(
            tf.nest.flatten(target(x)), tf.nest.flatten(source(x)), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


def test_the_newest_of_a_manager_of_tensorflows(flavour, tmp_path) -> None:
    source, target = MODELS["subclassed"](tf_keras), MODELS["subclassed"](flavour)
    step = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(net=source, step=step)
    manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    for number in range(3):
        randomize(source, number)
        step.assign(number)
        manager.save()
    restored = tf.Variable(-1)
    config = {"version": 1, "restore": {"directory": str(tmp_path)}}
    tfckpt.restore(config, model=target, step=restored)
    assert int(restored) == 2
    np.testing.assert_allclose(target(BATCH), source(BATCH), rtol=1e-5)
