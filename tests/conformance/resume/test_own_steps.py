"""A ``train_step`` of one's own, with two optimizers: stopped in mid-epoch, it goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)


def network(keras: Any, inputs: int, outputs: int) -> Any:
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            keras.layers.Dense(5, name="hidden"),
            keras.layers.Dense(outputs, name="out"),
        ]
    )


def gan(keras: Any) -> Any:
    """As Keras's guides write it: ``compile`` leaves the model an optimizer that no step uses.

    It runs eagerly: as a graph, TensorFlow 2.21 does not repeat this training by itself (11 of 40
    runs of plain Keras differed from the first, 8 of 40 with ``enable_op_determinism``).
    """

    class GAN(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="gan")
            self.generator = network(keras, 3, 4)
            self.discriminator = network(keras, 4, 1)
            self.loss_of_generator = keras.metrics.Mean(name="g")
            self.loss_of_discriminator = keras.metrics.Mean(name="d")
            self.noise = tf.random.Generator.from_seed(5)

        @property
        def metrics(self) -> list[Any]:
            return [self.loss_of_generator, self.loss_of_discriminator]

        def call(self, inputs: Any) -> Any:
            return self.discriminator(inputs)

        def compile(self, first: Any, second: Any) -> None:
            super().compile(run_eagerly=True)
            self.optimizer_of_generator, self.optimizer_of_discriminator = first, second
            first.build(self.generator.trainable_variables)
            second.build(self.discriminator.trainable_variables)

        def train_step(self, data: Any) -> Any:
            noise = self.noise.normal((4, 3))
            with tf.GradientTape() as tape:
                fake = self.discriminator(self.generator(noise))
                loss = tf.reduce_mean(self.discriminator(data) ** 2 - fake)
            variables = self.discriminator.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer_of_discriminator.apply_gradients(zip(gradients, variables, strict=True))
            self.loss_of_discriminator.update_state(loss)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.discriminator(self.generator(noise)))
            variables = self.generator.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer_of_generator.apply_gradients(zip(gradients, variables, strict=True))
            self.loss_of_generator.update_state(loss)
            return {metric.name: metric.result() for metric in self.metrics}

    keras.utils.set_random_seed(7)
    model = GAN()
    model(X)
    model.compile(keras.optimizers.Adam(0.05), keras.optimizers.Adam(0.02))
    return model


def state(model: Any) -> list[np.ndarray]:
    optimizers = (model.optimizer_of_generator, model.optimizer_of_discriminator)
    slots = [variable for optimizer in optimizers for variable in optimizer.variables]
    values = [value.numpy() for value in (*model.weights, *slots, model.noise.state)]
    return [np.asarray(value) for value in values]


@pytest.mark.parametrize("place", [(0, 2), (1, 1), (2, 0)], ids=str)
def test_a_gan_in_one_model_goes_on_although_it_never_used_what_it_was_compiled_with(
    flavour, tmp_path, stop, place
) -> None:
    arguments = {"batch_size": 4, "epochs": 3, "verbose": 0}
    whole = gan(flavour)
    history = whole.fit(X, **arguments).history
    model = gan(flavour)
    where = {"directory": str(tmp_path / "run")}
    config = {
        "version": 1,
        "manager": {**where, "save": {"every_minutes": 1e-9}},
        "restore": {**where, "if_none": "initialize"},
    }
    callback = tfckpt.from_config(config, model=model).callback(verbose=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, **arguments, callbacks=[callback, stop(*place)])
    model = gan(flavour)
    callback = tfckpt.from_config(config, model=model).callback(verbose=0)
    assert model.fit(X, **arguments, callbacks=[callback]).history == history
    for value, expected in zip(state(model), state(whole), strict=True):
        np.testing.assert_array_equal(value, expected)
