"""Parts of small trainings with state in all kinds of places, by words (``zoo/stopped``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

SAMPLES, BATCH = 14, 4  # the last batch is shorter
IMAGE = (4, 4, 1)
X = np.random.default_rng(0).normal(size=(SAMPLES, *IMAGE)).astype(np.float32)
Y = X.sum((1, 2, 3))[:, None]
WEIGHTS = np.linspace(0.5, 1.5, SAMPLES, dtype=np.float32)
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
    return dataset().flat_map(lambda image, y: flat(image, y, function))


def drawn(image: Any, y: Any) -> Any:
    return image + 0.1 * tf.random.uniform([]), y


# Keras module, how many samples, and how these make batches → what `fit` is given
DATA: dict[str, Any] = {
    "arrays": lambda keras, n, batched: {"x": X[:n], "y": Y[:n], "batch_size": BATCH},
    "weighted": lambda keras, n, batched: {
        "x": X[:n],
        "y": Y[:n],
        "batch_size": BATCH,
        "sample_weight": WEIGHTS[:n],
    },
    "dataset": lambda keras, n, batched: {"x": batched(dataset())},
    "augmented": lambda keras, n, batched: {"x": batched(dataset()).map(augmenter(keras))},
    "augmented_ahead": lambda keras, n, batched: {
        "x": batched(dataset()).map(augmenter(keras), num_parallel_calls=1).prefetch(2)
    },
    "noisy": lambda keras, n, batched: {"x": batched(dataset().map(noise())).prefetch(2)},
    "noisy_shuffled": lambda keras, n, batched: {
        "x": batched(dataset().map(noise()).shuffle(5)),
    },
    "noisy_repeated": lambda keras, n, batched: {
        "x": batched(dataset().map(noise()).repeat()).prefetch(2),
        "steps_per_epoch": 4,
    },
    "nested": lambda keras, n, batched: {"x": batched(nested())},
    "drawn": lambda keras, n, batched: {"x": batched(dataset().map(drawn))},
    "noisy_and_drawn": lambda keras, n, batched: {"x": batched(dataset().map(noise()).map(drawn))},
    "at_once": lambda keras, n, batched: {
        "x": batched(dataset().map(noise(), num_parallel_calls=4)).prefetch(2)
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
    "by_itself": annealed(by_itself),
    "by_mapping": annealed(by_mapping),
    "by_cell": annealed(by_cell),
    "by_global": annealed(by_global),
    "by_draw": annealed(by_draw),
    "by_class": by_class,
    "teacher": teacher,
    "counted": counted,
}


SAVED = ("nothing", "by_class", "counted")  # the others are named


# Models and callbacks


def network(keras: Any, kind: str, more: dict[str, Any]) -> Any:
    layers = keras.layers
    between = {
        "dense": [],
        "dropout": [layers.Dropout(0.4, seed=2)],
        "norm": [layers.BatchNormalization()],
        "lstm": [layers.Reshape((3, 1)), layers.LSTM(3, stateful=True)],
        "gru": [layers.Reshape((3, 1)), layers.GRU(3, stateful=True)],
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
    inputs = keras.Input(IMAGE, batch_size=BATCH if kind in RECURRENT else None)
    model = kind_of_model(
        [inputs, layers.Flatten(), layers.Dense(3, **dense), *between, layers.Dense(1)]
    )
    if more.get("counts"):
        model.batches = 0
        model.second = keras.optimizers.SGD(0.01, momentum=0.9)
        model.second.build(model.trainable_variables)
    return model


RECURRENT = ("lstm", "gru")  # with a state from batch to batch
MODELS = ("dense", "dropout", "norm", *RECURRENT)
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
    "stopping_early": lambda keras: [
        keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
    ],
    "scheduled": lambda keras: [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: float(rate) * 0.7)
    ],
}
VALIDATION: dict[str, Any] = {
    "unvalidated": dict,
    "validated": lambda: {"validation_data": (X[:8], Y[:8]), "validation_batch_size": BATCH},
    "validated_by_dataset": lambda: {
        "validation_data": tf.data.Dataset.from_tensor_slices((X[:8], Y[:8])).batch(BATCH)
    },
    "validated_at_times": lambda: {
        "validation_data": (X[:8], Y[:8]),
        "validation_batch_size": BATCH,
        "validation_freq": 2,
    },
}
