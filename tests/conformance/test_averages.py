"""``ema`` on what TF1, tf_keras and Keras 3 keep of moving averages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.graphs import dense, save, v1

import tfckpt


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
