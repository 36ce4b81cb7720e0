"""Programs with state outside of variables that Keras or TensorFlow reads (``zoo/programs``).

The loss or the learning rate depends on it. Of values of any kind in any place see ``zoo/placed``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.programs import shuffled
from zoo.start import ARRAYS, BATCH, Program, Start, X, Y
from zoo.stopped import in_loss, in_schedule

EAGER = {"run_eagerly": True}


def rate(callback: Any, number: Any) -> None:
    callback.model.optimizer.learning_rate.assign(0.05 / (1 + number))


# In the model, its loss, optimizer, schedule


def number_on_a_layer(
    event: str = "on_epoch_begin", *, remade: bool = False, **compiled: Any
) -> Program:
    def program(run: Start) -> None:
        class Scaled(run.keras.layers.Layer):
            scale = 1.0

            def call(self, inputs: Any) -> Any:
                return inputs * self.scale

        def step(self: Any, epoch: int, logs: Any = None) -> None:
            self.model.layers[1].scale += 0.2
            if remade:
                self.model.make_train_function(force=True)

        model = run.compiled(Scaled(), **compiled)
        run.fit(model, run.callback("Scales", **{event: step}), **ARRAYS)

    return program


def frozen(run: Start) -> None:
    """A callback freezes a layer once, eagerly."""

    def freeze(self: Any, epoch: int, logs: Any = None) -> None:
        if epoch == 0:
            self.model.layers[0].trainable = False

    run.fit(
        run.compiled(optimizer="sgd", **EAGER), run.callback("F", on_epoch_end=freeze), **ARRAYS
    )


def noise_of_keras(run: Start) -> None:
    def louder(self: Any, epoch: int, logs: Any = None) -> None:
        self.model.layers[1].stddev += 0.1

    model = run.compiled(run.keras.layers.GaussianNoise(0.1, seed=3), **EAGER)
    run.fit(model, run.callback("Louder", on_epoch_end=louder), **ARRAYS)


def clipped(run: Start) -> None:
    def clip(self: Any, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.clipnorm = 0.1 / (1 + epoch)

    run.fit(run.compiled(**EAGER), run.callback("Clips", on_epoch_end=clip), **ARRAYS)


def compiled(make: Callable[[Any], Any]) -> Program:
    """What a model is compiled with has a variable that counts."""

    def program(run: Start) -> None:
        given, callbacks = make(run.keras)
        run.fit(run.compiled(**given), *callbacks, **ARRAYS)

    return program


# Datasets of a callback


def reads(make: Callable[[], Any], *, kept: bool = False) -> Program:
    """A callback that reads some of a dataset at each epoch, in a closure or by an iterator."""

    def program(run: Start) -> None:
        dataset = make()
        iterator = iter(dataset) if kept else None

        def read(self: Any, epoch: int, logs: Any = None) -> None:
            x, _ = next(iterator or iter(dataset))
            rate(self, abs(float(tf.reduce_sum(x))))

        run.fit(run.compiled(), run.callback("Reads", on_epoch_begin=read), **ARRAYS)

    return program


def reads_data_of_fit(
    make: Callable[[], Any],
    *events: str,
    validates: bool = False,
    evaluates: bool = False,
    **more: Any,
) -> Program:
    """A callback reads the data that `fit` trains on, or the validation data."""

    def program(run: Start) -> None:
        dataset, validation = make(), make()

        def evaluate(self: Any, number: int, logs: Any = None) -> None:
            read = validation if validates else dataset
            x, _ = next(iter(read))
            loss = self.model.evaluate(read, verbose=0) if evaluates else 0
            rate(self, abs(float(tf.reduce_sum(x))) + loss)

        if validates:
            more["validation_data"] = validation
        called = run.callback("Reads", **dict.fromkeys(events or ["on_epoch_end"], evaluate))
        run.fit(run.compiled(), called, x=dataset, **more)

    return program


# Two `fit`, and what stands between them


def draws_between(run: Start) -> None:
    """What a callback has counted and NumPy draws between them."""
    model = run.compiled()
    resuming = run.resume(model)

    def count(self: Any, batch: int, logs: Any = None) -> None:
        self.count += 1

    counter = run.callback("Counts", on_train_batch_begin=count, count=0)
    run.fit(model, counter, **ARRAYS, epochs=2, resume=resuming)
    scale = counter.count * np.random.uniform() * random.random()
    run.fit(model, counter, x=X * scale, y=Y, batch_size=BATCH, epochs=2, resume=resuming)
    run.sees("counted", counter.count)


def another_model_between(run: Start) -> None:
    """The initial weights of the second model are drawn after the first was trained."""
    model = run.compiled()
    resuming = run.resume(model, head=(head := run.network()))
    run.fit(model, **ARRAYS, epochs=2, resume=resuming)
    fresh = run.keras.layers.Dense(2)
    fresh.build((None, 4))
    run.sees("drawn", np.asarray(fresh.kernel).tolist())
    run.fit(model, **ARRAYS, epochs=2, resume=resuming)
    run.sees("head", len(head.weights))


def endless() -> Any:
    return shuffled().repeat().batch(BATCH)


def batched() -> Any:
    return shuffled().batch(BATCH)


# When a callback reads the data of `fit`.
READS_OF_FIT: dict[str, Program] = {
    "data at an end": reads_data_of_fit(batched, evaluates=True),
    "data at a beginning": reads_data_of_fit(batched, "on_epoch_begin"),
    "data at a batch": reads_data_of_fit(batched, "on_train_batch_end", "on_epoch_begin"),
    "validation": reads_data_of_fit(batched, "on_epoch_begin", "on_epoch_end", validates=True),
}
# By what holds the state; all are equal after a kill.
HELD: dict[str, Program] = {
    "layer, traced": number_on_a_layer("on_epoch_end"),
    "layer, traced again": number_on_a_layer(remade=True),
    "trainable": frozen,
    "stddev": noise_of_keras,
    "clipnorm": clipped,
    "variable of the loss": compiled(in_loss),
    "schedule": compiled(in_schedule),
    "dataset": reads(lambda: shuffled().batch(BATCH)),
}
# What cannot be saved, which a line names.
NAMED: dict[str, Program] = {
    "endless dataset": reads(endless),
    "iterator": reads(lambda: shuffled().repeat().batch(BATCH), kept=True),
}
