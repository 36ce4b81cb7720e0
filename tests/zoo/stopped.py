"""Small trainings with state in all kinds of places, stopped and begun again.

A training is made of words, one of each group; nothing of it survives but its directory. Stopped
means that it ends before a batch, with all that was made being made anew afterwards, or that it
kills its process there, and another process begins again.
"""

from __future__ import annotations

import importlib
import itertools
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.forkserver import ForkServer
from zoo.programs import augmented, samples, shuffled
from zoo.start import ARRAYS, BATCH, VALIDATION, Place, Start, X, Y, digest, variables_of

Words = tuple[str, ...]
SAID = (
    *("not exact", "is reset", "are reset", "reads its epoch again", "is not saved"),
    *("draws other numbers in later epochs", "nor a repeated"),
)


# Data: what `fit` is given, but for the batches of datasets


def noise() -> Any:
    generator = tf.random.Generator.from_seed(3)
    return lambda x, y: (x + 0.3 * generator.normal([4]), y)


def nested(run: Start) -> Any:
    function = noise()
    one = lambda *sample: tf.data.Dataset.from_tensors(sample).map(function)  # noqa: E731
    return shuffled().flat_map(one)


SAMPLES: dict[str, Any] = {
    "dataset": lambda run: shuffled(),
    "noisy_repeated": lambda run: shuffled().map(noise()).repeat(),
    "nested": nested,
    "at_once": lambda run: shuffled().map(noise(), num_parallel_calls=4),
}
DATA = ("arrays", "weighted", "augmented_ahead", *SAMPLES)


def given(run: Start, data: str, kind: str) -> dict[str, Any]:
    """A layer with a state for each sample of a batch takes whole batches alone."""
    whole = kind == "lstm"
    if data in ("arrays", "weighted"):
        n = 12 if whole else len(X)
        weights = {"sample_weight": np.linspace(0.5, 1.5, n, dtype=np.float32)}
        return {**ARRAYS, "x": X[:n], "y": Y[:n], **(weights if data == "weighted" else {})}
    if data == "augmented_ahead":
        return {"x": augmented(run).take(3) if whole else augmented(run)}
    steps = {"steps_per_epoch": 4} if data == "noisy_repeated" else {}
    return {"x": SAMPLES[data](run).batch(BATCH, whole).prefetch(2), **steps}


# State that no model holds: what a training is compiled with, and its callbacks


def squared(real: Any, guessed: Any) -> Any:
    return tf.reduce_mean((real - guessed) ** 2, -1)


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

    return {"optimizer": keras.optimizers.Adam(Falling())}, []


def by_class(keras: Any) -> Any:
    """A loss with a variable that a callback moves."""
    weight = tf.Variable(0.0)

    class Moving(keras.callbacks.Callback):
        level = 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.level += 1
            weight.assign(0.2 * self.level)

    return {"loss": lambda real, guessed: squared(real, guessed) * (1 + weight)}, [Moving()]


STATE: dict[str, Any] = {
    "nothing": lambda keras: ({}, []),
    "by_class": by_class,
    "counted": lambda keras: ({"metrics": None, "run_eagerly": True}, []),
    "in_loss": in_loss,
    "in_schedule": in_schedule,
}


# Models, callbacks, what the program calls


def network(run: Start, kind: str, *, counts: bool) -> Any:
    keras, layers = run.keras, run.keras.layers
    between = {
        "dense": [],
        "dropout": [layers.Dropout(0.4, seed=2)],
        "norm": [layers.BatchNormalization()],
        "lstm": [layers.Reshape((3, 1)), layers.LSTM(3, stateful=True)],
    }[kind]

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

    inputs = keras.Input((4,), batch_size=BATCH if kind == "lstm" else None)
    made = [inputs, layers.Dense(3), *between, layers.Dense(1)]
    model = (Counting if counts else keras.Sequential)(made)
    if counts:
        model.batches, model.second = 0, keras.optimizers.SGD(0.01, momentum=0.9)
        model.second.build(model.trainable_variables)
    return model


OPTIMIZERS: dict[str, Any] = {
    "adam": lambda of: of.Adam(0.02),
    "momentum": lambda of: of.SGD(0.01, momentum=0.9),
}
CALLBACKS: dict[str, Any] = {
    "alone": lambda of: [],
    "plateau": lambda of: [of.ReduceLROnPlateau("loss", patience=1, min_delta=9.0)],
    "stopping": lambda of: [of.EarlyStopping("loss", patience=2, restore_best_weights=True)],
    "stopping_early": lambda of: [
        of.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
    ],
    "scheduled": lambda of: [of.LearningRateScheduler(lambda epoch, rate: float(rate) * 0.7)],
}
VALIDATIONS: dict[str, Any] = {
    "unvalidated": dict,
    "validated": lambda: VALIDATION,
    "validated_by_dataset": lambda: {"validation_data": samples().take(8).batch(BATCH)},
    "validated_at_times": lambda: {**VALIDATION, "validation_freq": 2},
}
FITS: dict[str, tuple[dict[str, int], ...]] = {
    "once": ({"epochs": 3},),
    "twice": ({"epochs": 2}, {"epochs": 2}),
    "continued": ({"epochs": 1}, {"initial_epoch": 1, "epochs": 3}),
}
MODELS = ("dense", "dropout", "norm", "lstm")
GROUPS: tuple[Any, ...] = (DATA, STATE, MODELS, OPTIMIZERS, CALLBACKS, VALIDATIONS, FITS)


def drawn_training(draw: random.Random) -> Words:
    """One word of each group, of those that go together."""
    words = [draw.choice(list(group)) for group in GROUPS]
    if words[1] == "in_schedule":
        words[4] = "alone"  # it leaves no rate to change
    if words[5] == "unvalidated" and words[4] == "stopping_early":
        words[4] = "stopping"
    return tuple(words)


def complete(words: Words) -> Words:
    return *words, *("unvalidated", "once")[len(words) - 5 :]


def trains(run: Start, words: Words) -> None:
    """The program of these words."""
    data, state, kind, optimizer, callbacks, validation, fits = complete(words)
    compiled, others = STATE[state](run.keras)
    model = network(run, kind, counts=state == "counted")
    others += CALLBACKS[callbacks](run.keras.callbacks)
    resuming, fed = run.resume(model, save_freq=1), given(run, data, kind)
    made = {"loss": "mse", "optimizer": OPTIMIZERS[optimizer](run.keras.optimizers)}
    model.compile(**{**made, "metrics": ["mae"], "jit_compile": False, **compiled})
    for arguments in FITS[fits]:
        more = {**fed, **VALIDATIONS[validation](), **arguments}
        run.fit(model, *others, **more, resume=resuming)
    states = [state for layer in model.layers for state in getattr(layer, "states", None) or ()]
    run.sees("states", digest([*states, *variables_of(getattr(model, "second", None))]))


def train(
    flavour: str,
    words: Words,
    directory: str,
    place: Place | None = None,
    saves: bool = True,
    by_signal: bool = False,
) -> dict[str, Any]:
    """Train to the end, or up to a place."""
    keras, kill = importlib.import_module(flavour), None if place is None else (*place,)
    start = Start(keras, Path(directory), kill, saves=saves, by_signal=by_signal)
    found = start.run(lambda run: trains(run, words))
    assert not found["error"], found
    return found


def _places(words: Words, draw: random.Random) -> list[Any]:
    """Two of the batches of which each may be the last one before it stops."""
    found = [
        (number, epoch, batch)
        for number, fit in enumerate(FITS[complete(words)[6]])
        for epoch, batch in itertools.product(
            range(fit.get("initial_epoch", 0), fit["epochs"]), range(3)
        )
    ]
    return sorted(draw.sample(found[1:], 2))


def _verdict(whole: Any, ended: Any, said: str) -> tuple[str, str]:
    if whole["result"] == ended["result"]:
        return "exact", said
    return "said" if any(each in said for each in SAID) else "wrong", said


def stopped_twice(keras: Any, words: Words, directory: str, draw: random.Random) -> tuple[str, str]:
    """``exact``, ``said`` or ``wrong``, and what was said at any start.

    What another start would not give again, one says that trains: the last may have none to train.
    """
    whole = train(keras.__name__, words, directory, saves=False)
    places = [*_places(words, draw), None]
    starts = [train(keras.__name__, words, directory, place) for place in places]
    return _verdict(whole, starts[-1], "".join(each["output"] for each in starts))


def killed_twice(
    server: ForkServer, flavour: str, words: Words, directory: str, draw: random.Random
) -> tuple[str, str]:
    """The same, each in a process of its own, two of which kill themselves."""

    def start(*more: Any) -> Any:
        return server.run("zoo.stopped:train", flavour, words, directory, *more, timeout=300.0)

    whole = start(None, False).result()
    said = []
    for place in _places(words, draw):
        found = start(place, True, True)
        assert found.signal == signal.SIGKILL or found.result(), (words, place)
        said.append(found.output)
    ended = start().result()
    return _verdict(whole, ended, "".join([*said, ended["output"]]))
