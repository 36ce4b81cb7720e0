"""Programs that train with ``tfckpt.callbacks.resume()``, as a person would write them.

Their data, models and steps; ``zoo/programs_around`` has what stands around a `fit`. Which there
are, where they are killed, and what comes of it, says ``zoo/resumed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.start import (
    ARRAYS,
    BATCH,
    SAMPLES,
    STEPS,
    VALIDATION,
    Program,
    Start,
    X,
    Y,
    digest,
    variables_of,
)

# Kinds of data


def arrays(run: Start) -> None:
    run.fit(run.compiled(metrics=["mae"]), **ARRAYS)


def split(run: Start) -> None:
    x, y = np.concatenate([X, X[:6]]), np.concatenate([Y, Y[:6]])
    run.fit(run.compiled(), x=x, y=y, batch_size=BATCH, validation_split=0.3)


def samples() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def shuffled(**more: Any) -> Any:
    return samples().shuffle(SAMPLES, **more)


def fed(make: Callable[[Start], Any], **more: Any) -> Program:
    """A program that trains on a dataset."""

    def program(run: Start) -> None:
        run.fit(run.compiled(), x=make(run), **more)

    return program


def replicated(run: Start) -> None:
    """Nobody sees what is in the datasets of a strategy."""
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = run.compiled()
    run.fit(model, x=shuffled().batch(BATCH))


def augmented(run: Start) -> Any:
    flip = run.keras.layers.RandomFlip(seed=1)

    def augment(x: Any, y: Any) -> Any:
        return tf.reshape(flip(tf.reshape(x, (-1, 2, 2, 1)), training=True), (-1, 4)), y

    return shuffled().batch(BATCH).map(augment).prefetch(2)


def noisy(run: Start) -> Any:
    generator = tf.random.Generator.from_seed(3)
    return samples().map(lambda x, y: (x + 0.3 * generator.normal([4]), y)).batch(BATCH)


def drawn(run: Start) -> Any:
    return shuffled().batch(BATCH).map(lambda x, y: (x + 0.3 * tf.random.normal([4]), y))


def from_generator(run: Start) -> Any:
    def batches() -> Iterator[Any]:
        for first in range(0, SAMPLES, BATCH):
            yield X[first : first + BATCH], Y[first : first + BATCH]

    spec = tf.TensorSpec((None, 4), tf.float32), tf.TensorSpec((None, 1), tf.float32)
    return tf.data.Dataset.from_generator(batches, output_signature=spec)


def sequence(run: Start) -> Any:
    """It shuffles by NumPy's generator, and draws noise by one of its own."""
    utils = run.keras.utils
    base = utils.Sequence if run.keras.__name__ == "tf_keras" else utils.PyDataset

    class Noisy(base):
        def __init__(self) -> None:
            if base.__name__ == "PyDataset":
                super().__init__()
            self.order, self.draw = np.arange(SAMPLES), np.random.default_rng(5)
            self.noise = np.zeros_like(X)

        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, index: int) -> Any:
            chosen = self.order[index * BATCH : (index + 1) * BATCH]
            return X[chosen] + self.noise[chosen], Y[chosen]

        def on_epoch_end(self) -> None:
            np.random.shuffle(self.order)
            self.noise = self.draw.normal(size=X.shape)

    return Noisy()


def generator(run: Start) -> Any:
    draw = np.random.default_rng(3)
    while True:
        chosen = draw.permutation(SAMPLES)[:BATCH]
        yield X[chosen], Y[chosen]


def shuffled_validation(run: Start) -> None:
    """What is left for the validation is drawn anew at each evaluation."""
    given = {"x": shuffled().skip(4).batch(2), "validation_data": shuffled().take(4).batch(2)}
    run.fit(run.compiled(), **given)


def endless_validation(make: Callable[[], Any]) -> Program:
    """Of an endless dataset each evaluation reads three batches."""

    def program(run: Start) -> None:
        drawn = make().repeat().batch(BATCH)
        run.fit(run.compiled(), **ARRAYS, validation_data=drawn, validation_steps=3)

    return program


# Steps that draw, that make something at their first call, that are made anew


def draws_in_a_layer(run: Start) -> None:
    class Noise(run.keras.layers.Layer):
        def call(self, inputs: Any, training: Any = None) -> Any:
            drawn = tf.random.normal(tf.shape(inputs))
            return inputs + 0.3 * drawn if training else inputs

    run.fit(run.compiled(Noise()), **ARRAYS)


def draws_by_seed(run: Start) -> None:
    """What the pages say to use in place of it."""
    keras = run.keras

    class Noise(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            keras3 = keras.__name__ == "keras"
            self.state = keras.random.SeedGenerator(3) if keras3 else None
            self.generator = None if keras3 else tf.random.Generator.from_seed(3)

        def call(self, inputs: Any, training: Any = None) -> Any:
            if not training:
                return inputs
            if self.state is None:
                return inputs + 0.3 * self.generator.normal(tf.shape(inputs))
            return inputs + 0.3 * keras.random.normal(tf.shape(inputs), seed=self.state)

    run.fit(run.compiled(Noise()), **ARRAYS)


def drops_in_a_step(run: Start) -> None:
    class Dropping(run.keras.Sequential):
        def train_step(self, data: Any) -> Any:
            return super().train_step((tf.nn.dropout(data[0], 0.3), data[1]))

    run.fit(run.compiled(kind=Dropping), **ARRAYS)


def variable_in_a_step(run: Start) -> None:
    class Growing(run.keras.Sequential):
        scale = None

        def train_step(self, data: Any) -> Any:
            if self.scale is None:
                self.scale = tf.Variable(1.0, trainable=False)
            self.scale.assign_add(0.1)
            return super().train_step((data[0] * self.scale, data[1]))

    run.fit(run.compiled(kind=Growing), **ARRAYS)


def frozen_at_an_epoch(run: Start) -> None:
    """Keras's recipe: a layer is frozen in the middle of a training."""

    def freeze(self: Any, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            self.model.layers[0].trainable = False
            self.model.make_train_function(force=True)

    run.fit(run.compiled(), run.callback("Freeze", on_epoch_begin=freeze), **ARRAYS)


# Models whose variables the first step makes


def unbuilt(run: Start) -> None:
    norm = run.keras.layers.BatchNormalization()
    run.fit(run.compiled(norm, built=False, optimizer="adam", metrics=["mae"]), **ARRAYS)


def gan(run: Start) -> None:
    """As in Keras's own example: no ``call``, and ``compile`` takes two optimizers."""
    keras = run.keras

    class GAN(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.discriminator = keras.Sequential([keras.layers.Dense(1)])
            self.generator = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(4)])
            self.noise = tf.random.Generator.from_seed(5)

        def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
            super().compile(run_eagerly=True)  # as a graph, TensorFlow does not repeat it
            self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
            self.loss_fn = loss_fn
            self.measured = keras.metrics.Mean(name="d_loss")

        @property
        def metrics(self) -> list[Any]:
            return [self.measured]

        def train_step(self, real: Any) -> Any:
            real = real[0] if isinstance(real, tuple) else real
            for of_real, model, optimizer in (
                (True, self.discriminator, self.d_optimizer),
                (False, self.generator, self.g_optimizer),
            ):
                with tf.GradientTape() as tape:
                    told = self.discriminator(self.generator(self.noise.normal((4, 2))))
                    loss = self.loss_fn(tf.cast(of_real, tf.float32) * tf.ones((4, 1)), told)
                    if of_real:
                        told = self.discriminator(real)
                        loss += self.loss_fn(tf.zeros_like(told), told)
                variables = model.trainable_weights
                gradients = tape.gradient(loss, variables)
                optimizer.apply_gradients(zip(gradients, variables, strict=True))
                self.measured.update_state(loss)
            return {"d_loss": self.measured.result()}

    model = GAN()
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.02), loss)
    run.fit(model, x=X, batch_size=BATCH)
    run.sees("slots", digest(variables_of(model.g_optimizer)))


def accumulates_by_itself(run: Start) -> None:
    """It applies the gradients of two batches, by a Python ``if``: its optimizer counts half."""
    keras = run.keras

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.out = keras.layers.Dense(1)
            self.batches = tf.Variable(0, trainable=False)

        def build(self, shape: Any) -> None:
            self.out.build(shape)
            zeros = [tf.zeros(v.shape) for v in self.out.trainable_variables]
            self.sums = [tf.Variable(value, trainable=False) for value in zeros]
            self.built = True

        def call(self, inputs: Any) -> Any:
            return self.out(inputs)

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(data[0], training=True) - data[1]) ** 2)
            variables = self.out.trainable_variables
            for one, gradient in zip(self.sums, tape.gradient(loss, variables), strict=True):
                one.assign_add(gradient)
            self.batches.assign_add(1)
            if self.batches % 2 == 0:
                self.optimizer.apply_gradients(zip(self.sums, variables, strict=True))
                for one in self.sums:
                    one.assign(tf.zeros_like(one))
            return {"loss": loss}

    model = Net()
    model.compile("adam", run_eagerly=True)
    run.fit(model, **ARRAYS)


# Layers and optimizers


def with_layers(run: Start) -> None:
    layers = run.keras.layers
    model = run.compiled(layers.BatchNormalization(), layers.Dropout(0.4), optimizer="adam")
    run.fit(model, **ARRAYS, **VALIDATION)


def several_steps_a_call(run: Start) -> None:
    run.fit(run.compiled(steps_per_execution=2), x=X, y=Y, batch_size=2)


def lstm(**more: Any) -> Program:
    """As tf_keras makes layers that draw, unless it is told otherwise."""

    def program(run: Start) -> None:
        if run.keras.__name__ == "tf_keras":
            run.keras.backend.experimental.disable_tf_random_generator()
        layers = run.keras.layers
        run.fit(run.compiled(layers.Reshape((3, 1)), layers.LSTM(2, **more)), **ARRAYS)

    return program


def optimized(make: Callable[[Any], Any], *, policy: str = "float32", **more: Any) -> Program:
    """A program with another optimizer."""

    def program(run: Start) -> None:
        run.keras.mixed_precision.set_global_policy(policy)
        run.fit(run.compiled(optimizer=make(run.keras), **more), **ARRAYS)

    return program


def adam(**more: Any) -> Program:
    return optimized(lambda keras: keras.optimizers.Adam(0.05, **more))


def scaled(keras: Any) -> Any:
    package = keras.mixed_precision if keras.__name__ == "tf_keras" else keras.optimizers
    return package.LossScaleOptimizer(
        keras.optimizers.Adam(0.05), initial_scale=8.0, dynamic_growth_steps=5
    )
