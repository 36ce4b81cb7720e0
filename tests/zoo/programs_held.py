"""Programs with state in all kinds of places outside of variables (``zoo/programs``).

Each has something that counts, and the loss or the learning rate depends on it.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import itertools
import random
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.programs import shuffled
from zoo.start import ARRAYS, BATCH, Program, Start, X, Y

COUNT = 0  # that a callback counts on
SHARED = {"count": 0}
EAGER = {"run_eagerly": True}


def rate(callback: Any, number: Any) -> None:
    callback.model.optimizer.learning_rate.assign(0.05 / (1 + number))


def squared(real: Any, guessed: Any) -> Any:
    return tf.reduce_mean((real - guessed) ** 2, -1)


def each_batch(*steps: Callable[[Any], None], **compiled: Any) -> Program:
    """A program with a callback for each function, which is called before each batch."""

    def program(run: Start) -> None:
        globals()["COUNT"] = SHARED["count"] = 0  # several starts may have one process
        made = [
            run.callback(f"Step{n}", on_train_batch_begin=_event(step))
            for n, step in enumerate(steps)
        ]
        run.fit(run.compiled(**compiled), *made, **ARRAYS)

    return program


def _event(step: Callable[[Any], None]) -> Any:
    return lambda self, batch, logs=None: step(self)


# On a callback, beside it, and in what it names


@dataclasses.dataclass
class Inner:
    seen: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Outer:
    inner: dict[str, Inner] = dataclasses.field(default_factory=lambda: {"a": Inner()})


class Slotted:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def has(make: Callable[[], Any], step: Callable[[Any, Any], Any]) -> Program:
    """A callback with this attribute, of which ``step`` makes a number."""

    def program(run: Start) -> None:
        callback = run.callback(
            "Has", on_train_batch_begin=lambda self, b, logs=None: rate(self, step(self, self.it))
        )
        callback.it = make()
        run.fit(run.compiled(), callback, **ARRAYS)

    return program


def grows(one: Any, it: Any) -> int:
    it.inner["a"].seen.append(1)
    return len(it.inner["a"].seen)


def slot(one: Any, it: Any) -> int:
    it.count += 1
    return it.count


def pushes(one: Any, it: Any) -> int:
    it.append(len(it) + sum(it))
    return sum(it) % 7


def counts(one: Any, it: Any) -> int:
    it["a"] += 1
    return it["a"]


def adds(one: Any, it: Any) -> int:
    it.add(len(it))
    return len(it)


def turns(one: Any, it: Any) -> float:
    one.it = it * 1j + 1
    return abs(one.it.imag)


def longer(one: Any, it: Any) -> int:
    one.it = it + b"x"
    return len(one.it)


def replaced(one: Any, it: Any) -> int:
    one.it = Inner([*it.seen, 1])
    return len(one.it.seen)


def more(one: Any, it: Any) -> int:
    it.append(Inner([len(it)]))
    return len(it)


@dataclasses.dataclass(frozen=True)
class Frozen:
    count: int = 0


class Named(NamedTuple):
    count: int = 0


def other(one: Any, it: Any) -> int:
    one.it = type(it)(it.count + 1)
    return one.it.count


class Keeps:
    """A property that has the value itself."""

    value = 0

    def __get__(self, owner: Any, kind: Any = None) -> int:
        return self.value

    def __set__(self, owner: Any, value: int) -> None:
        self.value = value


class Described:
    count = Keeps()

    def __init__(self) -> None:
        self.count = 0


def described(one: Any, it: Any) -> int:
    it.count += 1
    return it.count


SETTINGS = types.ModuleType("settings")  # as one of the program's


def in_a_module(one: Any, it: Any) -> int:
    SETTINGS.count += 1
    return SETTINGS.count


def spawned(one: Any, it: Any) -> float:
    return it.spawn(1)[0].random()


def removed(one: Any, it: Any) -> int:
    it.seen += 1
    return it.seen + vars(it).pop("more", 0)


def later(one: Any, it: Any) -> int:
    one.it = it + datetime.timedelta(days=1)
    return one.it.day


def doubled(one: Any, it: Any) -> float:
    one.it = it * 2 + 1
    return float(one.it) % 7


def next_of(one: Any, it: Any) -> int:
    return next(it)


def drawn(one: Any, it: Any) -> float:
    return abs(float(it.normal([])))


def in_closure() -> Program:
    def program(run: Start) -> None:
        held, count = {"count": 0}, 0

        def step(self: Any, batch: int, logs: Any = None) -> None:
            nonlocal count
            count += 1
            held["count"] += 2
            rate(self, count + held["count"])

        run.fit(run.compiled(), run.callback("Closed", on_train_batch_begin=step), **ARRAYS)

    return program


def shared_with_the_loss(run: Start) -> None:
    held = {"scale": 1.0}

    def step(self: Any, batch: int, logs: Any = None) -> None:
        held["scale"] += 0.1

    model = run.compiled(loss=lambda real, guessed: squared(real, guessed) * held["scale"], **EAGER)
    run.fit(model, run.callback("Scales", on_train_batch_begin=step), **ARRAYS)


def counts_globally(callback: Any) -> None:
    global COUNT  # noqa: PLW0603
    COUNT += 1
    rate(callback, COUNT)


def counts_in_a_shared_dict(callback: Any) -> None:
    SHARED["count"] += 1
    rate(callback, SHARED["count"])


def by_class(run: Start) -> None:
    class Counts(run.keras.callbacks.Callback):
        count = 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            type(self).count += 1
            rate(self, self.count)

    named = type("Counts", (Counts,), {"count": 1})  # as its base
    run.fit(run.compiled(), named(), **ARRAYS)


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


def regularized(make: Callable[[], Any], step: Callable[[Any], Any]) -> Program:
    def program(run: Start) -> None:
        class Grows(run.keras.regularizers.Regularizer):
            def __init__(self) -> None:
                self.rate = make()

            def __call__(self, weights: Any) -> Any:
                return self.rate * tf.reduce_sum(tf.convert_to_tensor(weights) ** 2)

        def more(self: Any, batch: int, logs: Any = None) -> None:
            held = self.model.layers[1].kernel_regularizer
            held.rate = step(held.rate)

        dense = run.keras.layers.Dense(3, kernel_regularizer=Grows())
        run.fit(
            run.compiled(dense, **EAGER), run.callback("More", on_train_batch_end=more), **ARRAYS
        )

    return program


def variable_of_the_loss(run: Start) -> None:
    calls = tf.Variable(1.0, trainable=False)

    def loss(real: Any, guessed: Any) -> Any:
        calls.assign_add(0.1)
        return squared(real, guessed) * calls

    run.fit(run.compiled(loss=loss), **ARRAYS)


def scheduled(run: Start) -> None:
    class Schedule(run.keras.optimizers.schedules.LearningRateSchedule):
        def __init__(self) -> None:
            self.calls = tf.Variable(1.0, trainable=False)

        def __call__(self, step: Any) -> Any:
            return 0.05 / self.calls

    rising = Schedule()
    bump = run.callback(
        "Bump", on_train_batch_end=lambda self, b, logs=None: rising.calls.assign_add(1.0)
    )
    model = run.compiled(optimizer=run.keras.optimizers.SGD(rising), **EAGER)
    run.fit(model, bump, **ARRAYS)


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
    counter = run.callback("Counts", on_train_batch_begin=_event(lambda self: slot(self, self)))
    counter.count = 0
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


def generated() -> Any:
    yield from itertools.count()


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
    "nested objects": has(Outer, grows),
    "slots": has(Slotted, slot),
    "deque": has(lambda: collections.deque([1], 5), pushes),
    "Counter": has(collections.Counter, counts),
    "set": has(set, adds),
    "complex": has(lambda: 1j, turns),
    "bytes": has(bytes, longer),
    "replaced": has(Inner, replaced),
    "frozen dataclass": has(Frozen, other),
    "named tuple": has(Named, other),
    "value of a property": has(Described, described),
    "module": has(lambda: setattr(SETTINGS, "count", 0), in_a_module),
    "class, held": has(lambda: type("Settings", (), {"count": 0}), slot),
    "UserDict": has(lambda: collections.UserDict(a=0), counts),
    "seeds of NumPy": has(lambda: np.random.default_rng(3), spawned),
    "attribute removed": has(lambda: types.SimpleNamespace(more=3, seen=0), removed),
    "bits of NumPy": has(lambda: np.random.PCG64(3), lambda one, it: it.random_raw() % 7),
    "datetime": has(lambda: datetime.datetime(2020, 1, 1), later),
    "tensor": has(lambda: tf.constant(0.0), doubled),
    "array of objects": has(lambda: np.array([Slotted(), None]), lambda one, it: slot(one, it[0])),
    "TensorFlow's rng": has(lambda: tf.random.Generator.from_seed(3), drawn),
    "closure": in_closure(),
    "dict shared with loss": shared_with_the_loss,
    "global": each_batch(counts_globally),
    "global of two": each_batch(counts_in_a_shared_dict, counts_in_a_shared_dict),
    "class": by_class,
    "layer, eager": number_on_a_layer(**EAGER),
    "layer, traced": number_on_a_layer("on_epoch_end"),
    "layer, traced again": number_on_a_layer(remade=True),
    "trainable": frozen,
    "stddev": noise_of_keras,
    "clipnorm": clipped,
    "regularizer": regularized(lambda: 0.01, lambda rate: rate + 0.01),
    "regularizer, variable": regularized(
        lambda: tf.Variable(0.01, trainable=False), lambda rate: rate.assign_add(0.01)
    ),
    "variable of the loss": variable_of_the_loss,
    "schedule": scheduled,
    "dataset": reads(lambda: shuffled().batch(BATCH)),
}
# What cannot be saved, which a line names.
NAMED: dict[str, Program] = {
    "list of objects": has(list, more),
    "a filter": has(lambda: filter(None, itertools.cycle([1, 0, 2, 3])), next_of),
    "a generator": has(generated, next_of),
    "itertools": has(lambda: itertools.cycle([1, 2, 3, 5, 8]), next_of),
    "endless dataset": reads(endless),
    "iterator": reads(lambda: shuffled().repeat().batch(BATCH), kept=True),
}
