"""Small trainings with state in all kinds of places, stopped and begun again in one process.

A training is made of words, one of each group; nothing of it survives but its directory. Stopped
means that a callback raises before a batch, with all that was made being made anew afterwards.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

import tfckpt.callbacks

if TYPE_CHECKING:
    import random

EPOCHS, SAMPLES, BATCH = 3, 14, 4
IMAGE = (4, 4, 1)
X = np.random.default_rng(0).normal(size=(SAMPLES, *IMAGE)).astype(np.float32)
Y = X.sum((1, 2, 3))[:, None]
WEIGHTS = np.linspace(0.5, 1.5, SAMPLES, dtype=np.float32)
SAID = ("not exact", "is reset", "reads every batch again", "draws other numbers in later epochs")
GLOBAL: dict[str, Any] = {}


# Data


def dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(SAMPLES)


def augmenter(keras: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential([layers.RandomFlip(seed=1), layers.RandomTranslation(0.2, 0.2)])
    return lambda images, y: (model(images, training=True), y)


def noise() -> Any:
    generator = tf.random.Generator.from_seed(3)
    return lambda image, y: (image + 0.3 * generator.normal([]), y)


def flat(image: Any, y: Any, function: Any) -> Any:
    return tf.data.Dataset.from_tensors((image, y)).map(function)


def nested() -> Any:
    function = noise()
    return dataset().flat_map(lambda image, y: flat(image, y, function)).batch(BATCH)


def drawn(image: Any, y: Any) -> Any:
    return image + 0.1 * tf.random.uniform([]), y


DATA: dict[str, Any] = {
    "arrays": lambda keras: {"x": X, "y": Y, "batch_size": BATCH},
    "weighted": lambda keras: {"x": X, "y": Y, "batch_size": BATCH, "sample_weight": WEIGHTS},
    "dataset": lambda keras: {"x": dataset().batch(BATCH)},
    "augmented": lambda keras: {"x": dataset().batch(BATCH).map(augmenter(keras))},
    "augmented_ahead": lambda keras: {
        "x": dataset().batch(BATCH).map(augmenter(keras), num_parallel_calls=1).prefetch(2)
    },
    "noisy": lambda keras: {"x": dataset().map(noise()).batch(BATCH).prefetch(2)},
    "noisy_shuffled": lambda keras: {"x": dataset().map(noise()).shuffle(5).batch(BATCH)},
    "noisy_repeated": lambda keras: {
        "x": dataset().map(noise()).repeat().batch(BATCH).prefetch(2),
        "steps_per_epoch": 4,
    },
    "nested": lambda keras: {"x": nested()},
    "drawn": lambda keras: {"x": dataset().map(drawn).batch(BATCH)},
    "noisy_and_drawn": lambda keras: {"x": dataset().map(noise()).map(drawn).batch(BATCH)},
    "at_once": lambda keras: {
        "x": dataset().map(noise(), num_parallel_calls=4).batch(BATCH).prefetch(2)
    },
}


# State that no model holds: what a training is compiled with, and its callbacks


def squared(real: Any, guessed: Any) -> Any:
    return tf.reduce_mean((real - guessed) ** 2, -1)


def on_batch(keras: Any, function: Any) -> list[Any]:
    return [keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: function())]


def nothing(keras: Any) -> Any:
    return {"loss": "mse"}, []


def in_loss(keras: Any) -> Any:
    class Growing(keras.losses.Loss):
        def __init__(self) -> None:
            super().__init__()
            self.calls = tf.Variable(0.0)

        def call(self, real: Any, guessed: Any) -> Any:
            self.calls.assign_add(0.1)
            return squared(real, guessed) * self.calls

    return {"loss": Growing()}, []


def in_schedule(keras: Any) -> Any:
    class Falling(keras.optimizers.schedules.LearningRateSchedule):
        def __init__(self) -> None:
            self.calls = tf.Variable(0.0)

        def __call__(self, step: Any) -> Any:
            self.calls.assign_add(1.0)
            return 0.05 / (1 + self.calls)

        def get_config(self) -> dict[str, Any]:
            return {}

    return {"loss": "mse", "optimizer": keras.optimizers.Adam(Falling())}, []


def in_regularizer(keras: Any) -> Any:
    class Growing(keras.regularizers.Regularizer):
        def __init__(self) -> None:
            self.calls = tf.Variable(0.0)

        def __call__(self, weights: Any) -> Any:
            self.calls.assign_add(0.1)
            return self.calls * tf.reduce_sum(weights * weights)

    return {"loss": "mse", "regularizer": Growing()}, []


def in_constraint(keras: Any) -> Any:
    class Shrinking(keras.constraints.Constraint):
        def __init__(self) -> None:
            self.factor = tf.Variable(1.0)

        def __call__(self, weights: Any) -> Any:
            self.factor.assign(self.factor * 0.95)
            return weights * self.factor

    return {"loss": "mse", "constraint": Shrinking()}, []


def annealed(step: Any) -> Any:
    """A loss with a variable that a function of a callback moves."""

    def made(keras: Any) -> Any:
        weight = tf.Variable(0.0)
        move = step(weight)
        loss = {"loss": lambda real, guessed: squared(real, guessed) * (1 + weight)}
        return loss, on_batch(keras, move)

    return made


def by_itself(weight: Any) -> Any:
    return lambda: weight.assign_add(0.3)


def by_mapping(weight: Any) -> Any:
    counts = {"batches": 0}

    def move() -> None:
        counts["batches"] += 1
        weight.assign(0.3 * counts["batches"])

    return move


def by_cell(weight: Any) -> Any:
    batches = 0

    def move() -> None:
        nonlocal batches
        batches += 1
        weight.assign(0.3 * batches)

    return move


def by_global(weight: Any) -> Any:
    GLOBAL.update(batches=0)

    def move() -> None:
        GLOBAL["batches"] += 1
        weight.assign(0.3 * GLOBAL["batches"])

    return move


def by_draw(weight: Any) -> Any:
    draw = np.random.default_rng(3)
    return lambda: weight.assign(draw.normal())


def by_class(keras: Any) -> Any:
    weight = tf.Variable(0.0)

    class Moving(keras.callbacks.Callback):
        level = 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.level += 1
            weight.assign(0.2 * self.level)

    return {"loss": lambda real, guessed: squared(real, guessed) * (1 + weight)}, [Moving()]


def teacher(keras: Any) -> Any:
    taught = network(keras, "dense", {})

    class Averaging(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = taught

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            mine, its = taught.trainable_variables, self.model.trainable_variables
            for mean, value in zip(mine, [*its[:2], *its[-2:]], strict=True):
                mean.assign(0.9 * mean + 0.1 * value)

    def loss(real: Any, guessed: Any) -> Any:
        norm = sum(tf.reduce_sum(tf.convert_to_tensor(v) ** 2) for v in taught.weights)
        return squared(real, guessed) * (1 + 0.1 * norm)

    return {"loss": loss}, [Averaging()]


def counted(keras: Any) -> Any:
    return {"loss": "mse", "metrics": None, "run_eagerly": True, "counts": True}, []


STATE: dict[str, Any] = {
    "nothing": nothing,
    "in_loss": in_loss,
    "in_schedule": in_schedule,
    "in_regularizer": in_regularizer,
    "in_constraint": in_constraint,
    "by_itself": annealed(by_itself),
    "by_mapping": annealed(by_mapping),
    "by_cell": annealed(by_cell),
    "by_global": annealed(by_global),
    "by_draw": annealed(by_draw),
    "by_class": by_class,
    "teacher": teacher,
    "counted": counted,
}


# Models and callbacks


def network(keras: Any, kind: str, more: dict[str, Any]) -> Any:
    layers = keras.layers
    between = {
        "dense": [],
        "dropout": [layers.Dropout(0.4, seed=2)],
        "norm": [layers.BatchNormalization()],
    }[kind]
    dense = {f"kernel_{name}": more[name] for name in ("regularizer", "constraint") if name in more}

    class Counting(keras.Sequential):
        """Takes its steps by itself, one optimizer for the last layer and one for the others."""

        def train_step(self, data: Any) -> Any:
            self.batches += 1
            with tf.GradientTape() as tape:
                error = tf.reduce_mean(squared(data[1], self(data[0], training=True)))
                error *= 1 + 0.1 * self.batches
            variables = self.trainable_variables
            found = list(zip(tape.gradient(error, variables), variables, strict=True))
            self.second.apply_gradients(found[:-2])
            self.optimizer.apply_gradients(found[-2:])
            return {"loss": error}

    kind_of_model = Counting if more.get("counts") else keras.Sequential
    model = kind_of_model(
        [keras.Input(IMAGE), layers.Flatten(), layers.Dense(3, **dense), *between, layers.Dense(1)]
    )
    if more.get("counts"):
        model.batches = 0
        model.second = keras.optimizers.SGD(0.01, momentum=0.9)
        model.second.build(model.trainable_variables)
    return model


MODELS = ("dense", "dropout", "norm")
OPTIMIZERS: dict[str, Any] = {
    "adam": lambda keras: keras.optimizers.Adam(0.02),
    "momentum": lambda keras: keras.optimizers.SGD(0.01, momentum=0.9),
}
CALLBACKS: dict[str, Any] = {
    "alone": lambda keras: [],
    "plateau": lambda keras: [keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=9.0)],
    "stopping": lambda keras: [
        keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    ],
    "scheduled": lambda keras: [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: float(rate) * 0.7)
    ],
}
GROUPS: tuple[Any, ...] = (DATA, STATE, MODELS, OPTIMIZERS, CALLBACKS)


def drawn_training(draw: random.Random) -> tuple[str, ...]:
    """One word of each group; a schedule leaves no rate to change."""
    words = tuple(draw.choice(list(group)) for group in GROUPS)
    return (*words[:-1], "alone") if words[1] == "in_schedule" else words


def train(
    keras: Any, words: tuple[str, ...], directory: str = "", stop: Any = None
) -> tuple[list[Any] | None, str]:
    """Train to the end, or up to an epoch and batch.

    Returns:
        Weights, state of the optimizer and ``History``, None where it was stopped; what was said.
    """
    data, state, kind, optimizer, callbacks = words
    keras.utils.set_random_seed(5)
    compiled, others = STATE[state](keras)
    own = {name: compiled.pop(name, None) for name in ("regularizer", "constraint", "counts")}
    model = network(keras, kind, {name: value for name, value in own.items() if value is not None})
    model.compile(**{"optimizer": OPTIMIZERS[optimizer](keras), "metrics": ["mae"], **compiled})

    class Stop(keras.callbacks.Callback):
        epoch = -1

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == stop:
                raise KeyboardInterrupt

    others += [*CALLBACKS[callbacks](keras), Stop()]
    if directory:
        others.append(tfckpt.callbacks.resume(model, directory, save_freq=1))
    given = DATA[data](keras)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            history = model.fit(**given, epochs=EPOCHS, verbose=0, callbacks=others)
        except KeyboardInterrupt:
            return None, said.getvalue()
    slots = model.optimizer.variables
    values = [np.asarray(v) for v in (*model.weights, *(slots() if callable(slots) else slots))]
    return [*values, history.epoch, sorted(history.history.items())], said.getvalue()


def same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for a, b in zip(first, second, strict=True)
    )


def stopped_twice(
    keras: Any, words: tuple[str, ...], directory: str, draw: random.Random
) -> tuple[str, str]:
    """``exact``, ``said`` or ``wrong``, and what was said before the first step that counted."""
    whole, _ = train(keras, words)
    places = list(itertools.product(range(EPOCHS), range(4)))[1:]
    for place in sorted(draw.sample(places, 2)):
        train(keras, words, directory, place)
    ended, said = train(keras, words, directory)
    assert whole is not None
    assert ended is not None
    if same(whole, ended):
        return "exact", said
    return "said" if any(each in said for each in SAID) else "wrong", said
