"""Models whose `metrics` names what `compile` makes, as in Keras's examples of GAN and SimCLR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

X = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(8, 3)


@pytest.fixture
def gan(flavour) -> Any:
    class GAN(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.generator = flavour.Sequential(
                [flavour.Input((3,)), flavour.layers.Dense(3, name="g")]
            )
            self.discriminator = flavour.Sequential(
                [flavour.Input((3,)), flavour.layers.Dense(1, name="d")]
            )
            self.built = True

        def compile(self, rate: float = 0.01) -> None:
            super().compile()
            self.d_optimizer = flavour.optimizers.Adam(rate)
            self.g_loss_metric = flavour.metrics.Mean(name="g_loss")

        @property
        def metrics(self) -> list[Any]:
            return [self.g_loss_metric]

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.discriminator(self.generator(data)) ** 2)
            variables = self.discriminator.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.d_optimizer.apply_gradients(zip(gradients, variables, strict=True))
            self.g_loss_metric.update_state(loss)
            return {"g_loss": self.g_loss_metric.result()}

    return GAN


def trained(model: Any) -> Any:
    model.compile()
    model.fit(X, batch_size=4, verbose=0)
    return model


def weights(model: Any) -> list[np.ndarray]:
    return [v.numpy() for part in (model.generator, model.discriminator) for v in part.weights]


@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
def test_its_weights_are_restored_before_it_is_compiled(gan, writer, tmp_path) -> None:
    saved = trained(gan())
    path = writer.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    parts = ["model/generator/**", "model/discriminator/**"]
    for restore in (
        lambda model: tfckpt.restore(path, model, include=parts),
        lambda model: tfckpt.Checkpoint(model=model).restore(path).expect_partial(),
    ):
        model = gan()
        restore(model)
        for old, new in zip(weights(saved), weights(model), strict=True):
            np.testing.assert_array_equal(old, new)


def test_it_is_saved_before_it_is_compiled(gan, tmp_path) -> None:
    saved, model = gan(), gan()
    path = tfckpt.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    assert tfckpt.restore(path, model).counts["LOADED"] == 4
    for old, new in zip(weights(saved), weights(model), strict=True):
        np.testing.assert_array_equal(old, new)


def test_compiled_its_metrics_and_optimizer_are_restored_too(gan, tmp_path) -> None:
    saved, model = trained(gan()), gan()
    path = tfckpt.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    model.compile()
    model.d_optimizer.build(model.discriminator.trainable_variables)
    tfckpt.restore(path, model)
    assert model.g_loss_metric.result() == saved.g_loss_metric.result()
    assert int(model.d_optimizer.iterations) == 2


def test_another_error_of_the_property_is_raised(flavour) -> None:
    class Net(flavour.Model):
        @property
        def metrics(self) -> list[Any]:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tfckpt.inventory(model=Net())
