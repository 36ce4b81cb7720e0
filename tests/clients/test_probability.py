"""TensorFlow Probability: layers with distributions as weights, a fitted surrogate."""

from __future__ import annotations

import numpy as np
import pytest

tfp = pytest.importorskip(
    "tensorflow_probability", reason="tensorflow-probability is not installed"
)

import tensorflow as tf
import tf_keras
from clients.exchange import WAYS, Program, assert_restored, exchanged, resumed, trained

pytestmark = pytest.mark.long


def network(seed: int) -> Program:
    """A network whose weights are distributions; each step has its own seed."""
    tf_keras.utils.set_random_seed(seed)
    model = tf_keras.Sequential(
        [
            tf_keras.layers.Input((4,)),
            tfp.layers.DenseFlipout(8, activation="relu", seed=3),
            tfp.layers.DenseReparameterization(1),
        ]
    )
    optimizer = tf_keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    x = tf.constant(np.random.default_rng(0).normal(size=(8, 4)), tf.float32)

    def train() -> None:
        tf.random.set_seed(int(optimizer.iterations))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x)[:, 0] - tf.reduce_sum(x, 1)) ** 2)
            loss += 0.01 * tf.add_n(model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    def output() -> tf.Tensor:
        tf.random.set_seed(0)
        return model(x)

    return Program(
        {"model": model, "optimizer": optimizer},
        lambda: [*model.variables, *optimizer.variables],
        train,
        output,
    )


def build(seed: int) -> Program:
    """A trainable distribution behind bijectors: a `tf.Module` with transformed variables."""
    draw = np.random.default_rng(seed)
    location = tf.Variable(draw.normal(size=3).astype("float32"))
    scale = tfp.util.TransformedVariable(
        draw.uniform(1, 2, 3).astype("float32"), tfp.bijectors.Softplus()
    )
    flow = tfp.bijectors.Shift(tf.Variable(draw.normal(size=3).astype("float32")))
    surrogate = tfp.distributions.TransformedDistribution(
        tfp.distributions.MultivariateNormalDiag(location, scale), flow
    )
    optimizer = tf_keras.optimizers.Adam(0.05)
    optimizer.build(surrogate.trainable_variables)
    target = tfp.distributions.MultivariateNormalDiag(tf.ones(3), 2 * tf.ones(3))

    def train() -> None:
        tfp.vi.fit_surrogate_posterior(
            target.log_prob, surrogate, optimizer, num_steps=1, seed=(0, int(optimizer.iterations))
        )

    return Program(
        {"surrogate": surrogate, "optimizer": optimizer},
        lambda: [*surrogate.variables, *optimizer.variables],
        train,
        output=lambda: surrogate.sample(2, seed=(1, 2)),
    )


def train(directory: str, stop: int | None) -> list[str]:
    return trained(build(1), directory, stop)


@WAYS
def test_a_network_is_exchanged_with_tensorflow(writer, reader, tmp_path) -> None:
    assert_restored(network, writer, reader, tmp_path)


test_a_surrogate_is_exchanged_with_tensorflow = exchanged(build)
test_a_killed_variational_fit_goes_on_exactly = resumed(__file__)
