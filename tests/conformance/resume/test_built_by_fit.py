"""Models whose variables the first step of ``fit`` makes: killed and started again, they go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
import tfckpt.callbacks
from tfckpt.live.inventory import collect

if TYPE_CHECKING:
    from collections.abc import Iterator

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.stack([X.sum(1), X.prod(1)], 1)
ARRAYS = {"x": X, "y": Y, "batch_size": 4}
SIDES = {"x": {"a": X, "b": 2 * X}, "y": {"out": Y, "more": X[:, :3]}, "batch_size": 4}


def sequential(keras: Any) -> tuple[Any, dict[str, Any]]:
    model = keras.Sequential(
        [keras.layers.Dense(5), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model, ARRAYS


def subclass(keras: Any) -> tuple[Any, dict[str, Any]]:
    class Noisy(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.bias = self.add_weight(name="bias", shape=(5,), initializer="random_normal")

        def call(self, inputs: Any) -> Any:
            return inputs + self.bias

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = keras.layers.Dense(5)
            self.noisy = Noisy()
            self.drop = keras.layers.Dropout(0.3, seed=5)
            self.out = keras.layers.Dense(2)

        def call(self, inputs: Any, training: bool = False) -> Any:
            return self.out(self.drop(self.noisy(self.hidden(inputs)), training=training))

    model = Net()
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model, {"x": tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12).batch(4)}


def of_mappings(keras: Any) -> tuple[Any, dict[str, Any]]:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.both, self.out = keras.layers.Dense(4), keras.layers.Dense(2)
            self.more = keras.layers.Dense(3)

        def call(self, inputs: Any) -> Any:
            both = self.both(inputs["a"]) + self.both(inputs["b"])
            return {"out": self.out(both), "more": self.more(both)}

    model = Net()
    model.compile(keras.optimizers.Adam(0.01), {"out": "mse", "more": "mae"})
    return model, SIDES


def of_a_generator(keras: Any) -> tuple[Any, dict[str, Any]]:
    def batches() -> Any:
        for number in range(100):
            yield X[number % 3 :: 3] + np.float32(number), Y[number % 3 :: 3]

    return sequential(keras)[0], {"x": batches(), "steps_per_epoch": 3}


def gan(keras: Any) -> tuple[Any, dict[str, Any]]:
    """As in Keras's own example: no ``call``, and ``compile`` takes two optimizers."""

    class GAN(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.discriminator = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
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
            if isinstance(real, tuple):
                (real,) = real
            for loss_of, model, optimizer in (
                (self.loss_of_discriminator, self.discriminator, self.d_optimizer),
                (self.loss_of_generator, self.generator, self.g_optimizer),
            ):
                with tf.GradientTape() as tape:
                    loss = loss_of(real, self.generator(self.noise.normal((4, 2))))
                variables = model.trainable_weights
                optimizer.apply_gradients(
                    zip(tape.gradient(loss, variables), variables, strict=True)
                )
                self.measured.update_state(loss)
            return {"d_loss": self.measured.result()}

        def loss_of_discriminator(self, real: Any, fake: Any) -> Any:
            told = self.discriminator(tf.concat([fake, real], 0))
            return self.loss_fn(tf.concat([tf.ones((4, 1)), tf.zeros((4, 1))], 0), told)

        def loss_of_generator(self, real: Any, fake: Any) -> Any:
            return self.loss_fn(tf.zeros((4, 1)), self.discriminator(fake))

    model = GAN()
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.02), loss)
    return model, {"x": X, "batch_size": 4}


def accumulating(keras: Any) -> tuple[Any, dict[str, Any]]:
    """It applies the gradients of two batches, by a Python ``if``: its optimizer counts half."""

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.out = keras.layers.Dense(2)
            self.batches = tf.Variable(0, trainable=False)

        def build(self, shape: Any) -> None:
            self.out.build(shape)
            zeros = [tf.zeros(v.shape) for v in self.out.trainable_variables]
            self.sums = [tf.Variable(value, trainable=False) for value in zeros]
            self.built = True

        def call(self, inputs: Any) -> Any:
            return self.out(inputs)

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True) - tf.cast(y, tf.float32)) ** 2)
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
    model.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    return model, ARRAYS


def divided(keras: Any) -> tuple[Any, dict[str, Any]]:
    """The optimizer of ``compile`` trains the last layer alone, another one the others."""

    class Net(keras.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True) - tf.cast(y, tf.float32)) ** 2)
            variables = self.trainable_variables
            found = list(zip(tape.gradient(loss, variables), variables, strict=True))
            self.optimizer.apply_gradients(found[-2:])
            self.second.apply_gradients(found[:-2])
            return {"loss": loss}

    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(3, activation="tanh")(inputs)
    model = Net(inputs, keras.layers.Dense(2)(hidden))
    model.second = keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    return model, ARRAYS


PROGRAMS = [sequential, subclass, of_mappings, of_a_generator, gan, accumulating, divided]


@pytest.fixture(autouse=True)
def as_before(flavour: Any) -> Iterator[None]:
    """tf_keras's random generators are for all that the process makes later."""
    yield
    tf.random.set_seed(None)
    if flavour.__name__ == "tf_keras":
        flavour.backend.experimental.disable_tf_random_generator()


def start(keras: Any, program: Any, directory: Any, *callbacks: Any, verbose: int = 0) -> Any:
    """Weights, optimizer state and History at the end of the program."""
    if keras.__name__ == "tf_keras":
        keras.backend.experimental.enable_tf_random_generator()
    keras.utils.set_random_seed(7)
    model, given = program(keras)
    callback = tfckpt.callbacks.resume(model, directory, save_freq=2, verbose=verbose)
    both = [callback, *callbacks]
    history = model.fit(**given, epochs=3, verbose=0, callbacks=both).history
    live = collect({"model": model})
    values = {n: v for n, v in live.variables.items() if not n.startswith("metrics/")}
    return {name: np.asarray(value) for name, value in values.items()}, history


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_ends_as_if_it_had_not_been_killed(flavour, tmp_path, stop, program) -> None:
    whole = start(flavour, program, tmp_path / "whole")
    for place in ((1, 1), (2, 0)):
        with pytest.raises(KeyboardInterrupt):
            start(flavour, program, tmp_path / "run", stop(*place))
    np.testing.assert_equal(start(flavour, program, tmp_path / "run"), whole)
    np.testing.assert_equal(start(flavour, program, tmp_path / "run"), whole)  # nothing to train


@pytest.mark.parametrize("program", [gan, accumulating])
def test_batches_are_counted_whichever_optimizer_steps(
    flavour, tmp_path, stop, program, capsys
) -> None:
    with pytest.raises(KeyboardInterrupt):
        start(flavour, program, tmp_path / "run", stop(1, 2), verbose=1)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("saved ")]
    assert said == ["saved ckpt-1", "saved ckpt-2", "saved ckpt-3"]  # of batches 2, 3 and 5
    records = sorted((tmp_path / "run").glob("*.tfckpt.json"))
    steps = [json.loads(record.read_text())["step"] for record in records]
    assert steps == ([2, 3, 5] if program is gan else [1, 1, 2])


def test_a_step_that_cannot_be_traced_is_named(flavour, tmp_path) -> None:
    def program(keras: Any) -> tuple[Any, dict[str, Any]]:
        class Net(keras.Model):
            def __init__(self) -> None:
                super().__init__(name="net")
                self.out = keras.layers.Dense(2)

            def call(self, inputs: Any) -> Any:
                return self.out(tf.constant(inputs.numpy()))

        model = Net()
        model.compile("sgd", "mse", run_eagerly=True)
        return model, ARRAYS

    start(flavour, program, tmp_path / "run")
    with pytest.raises(tfckpt.NotBuiltError, match="Net 'net' creates variables in its first") as e:
        start(flavour, program, tmp_path / "run")
    assert "before `fit`, call the model once on a batch" in str(e.value)


def test_a_callback_may_train_a_batch_of_its_own(flavour, tmp_path, stop) -> None:
    class Replays(flavour.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.train_on_batch(X[:4], Y[:4])

    whole = start(flavour, subclass, tmp_path / "whole", Replays())
    for place in ((1, 1), (2, 0)):
        with pytest.raises(KeyboardInterrupt):
            start(flavour, subclass, tmp_path / "run", Replays(), stop(*place))
    found = start(flavour, subclass, tmp_path / "run", Replays())
    np.testing.assert_equal(found, whole)
