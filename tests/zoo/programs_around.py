"""What stands around a training: loops, several `fit`, callbacks (``zoo/programs``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tfckpt
from zoo.kinds.judge import KINDS, values_of
from zoo.programs import shuffled
from zoo.start import (
    ARRAYS,
    BATCH,
    EPOCHS,
    SAMPLES,
    SAVE_FREQ,
    STEPS,
    VALIDATION,
    Program,
    Start,
    X,
    Y,
    digest,
)

# Loops of one's own


def loop(batches: Callable[[dict[str, Any]], Callable[[], Any]]) -> Program:
    """A program whose loop asks for a batch, and trains it."""

    def program(run: Start) -> None:
        model, step = run.compiled(), tf.Variable(0, dtype=tf.int64)
        model.optimizer.build(model.trainable_variables)
        run.trains(model)
        next_batch = batches(objects := {"model": model, "step": step})
        saving = None
        if run.saves:
            where = {"directory": run.directory}
            config: dict[str, Any] = {"version": 1}
            config["manager"] = {**where, "save": {"every_steps": SAVE_FREQ}}
            config["restore"] = {**where, "if_none": "initialize"}
            saving = tfckpt.from_config(config, **objects)
            saving.restore()
        _train(run, model, step, next_batch, lambda: saving and saving.save_if_due())
        if saving is not None:
            saving.sync()

    return program


def managed(run: Start) -> None:
    """A loop with the drop-in classes, as TensorFlow's guide writes it."""
    model, step = run.compiled(), tf.Variable(0, dtype=tf.int64)
    model.optimizer.build(model.trainable_variables)
    run.trains(model)
    manager = None
    if run.saves:
        checkpoint = tfckpt.Checkpoint(model=model, step=step)
        manager = tfckpt.CheckpointManager(checkpoint, run.directory, max_to_keep=3)
        manager.restore_or_initialize()
    due = lambda: manager and int(step) % SAVE_FREQ == 0 and manager.save()  # noqa: E731
    _train(run, model, step, numpys_draws({}), due)


def restored_first(kind: str, *, by_run: bool = False) -> Program:
    """A loop of a kind whose models are not built when it restores, as TensorFlow's guides have it.

    By the drop-in classes, or by a config.
    """

    def program(run: Start) -> None:
        made, step = KINDS[kind](run.keras), tf.Variable(0, dtype=tf.int64)
        objects = {"counted": step, **made.objects}
        due = lambda: None  # noqa: E731
        if run.saves and by_run:
            where = {"directory": run.directory}
            config: dict[str, Any] = {"version": 1}
            config["manager"] = {**where, "save": {"every_steps": SAVE_FREQ}}
            saving = tfckpt.from_config(config, **objects, step=step)
            saving.restore()
            due = saving.save_if_due
        elif run.saves:
            checkpoint = tfckpt.Checkpoint(**objects)
            manager = tfckpt.CheckpointManager(checkpoint, run.directory, max_to_keep=3)
            checkpoint.restore(manager.latest_checkpoint)
            due = lambda: int(step) % SAVE_FREQ == 0 and manager.save()  # noqa: E731
        run.comes_to((0, -1, "restored"))
        while int(step) < EPOCHS * STEPS:
            place = 0, *divmod(int(step), STEPS)
            run.comes_to(place)
            made.step()
            step.assign_add(1)
            run.steps(place, 0.0)
            due()
        values = values_of(made.objects).items()
        run.sees("values", {name: digest([value]) for name, value in values})

    return program


def _train(run: Start, model: Any, step: Any, batch: Any, save: Callable[[], Any]) -> None:
    while int(step) < EPOCHS * STEPS:
        place = 0, *divmod(int(step), STEPS)
        run.comes_to(place)
        loss = model.train_on_batch(*batch())
        step.assign_add(1)
        run.steps(place, loss)
        save()


def iterated(objects: dict[str, Any]) -> Any:
    objects["iterator"] = iterator = iter(shuffled().repeat().batch(BATCH))
    return lambda: next(iterator)


def numpys_draws(objects: dict[str, Any]) -> Any:
    def batch() -> Any:
        chosen = np.random.permutation(SAMPLES)[:BATCH]
        return X[chosen], Y[chosen]

    return batch


# Several `fit`, and what stands between them


def fits(
    between: Callable[[Any, Any, int], None] | None = None,
    data: Callable[[Start], Any] | None = None,
    *,
    shared: bool = True,
    **more: Any,
) -> Program:
    """Two ``fit``, with a function before each; the dataset is one for both, or one for each."""

    def program(run: Start) -> None:
        model = run.compiled()
        resuming = run.resume(model)
        one = data(run) if data is not None else None
        for number in range(2):
            if between is not None:
                between(run.keras, model, number)
            given = ARRAYS if data is None else {"x": one if shared else data(run)}
            run.fit(model, **given, epochs=2, resume=resuming, **more)

    return program


def unfreezes(keras: Any, model: Any, number: int) -> None:
    model.layers[0].trainable = number == 1
    model.compile(keras.optimizers.Adam(0.02), "mse", metrics=["mae"], jit_compile=False)


def freezes_with_the_same_optimizer(keras: Any, model: Any, number: int) -> None:
    model.layers[0].trainable = number == 0
    model.compile(model.optimizer, ["mse", "mae"][number], jit_compile=False)


def takes_another_optimizer(keras: Any, model: Any, number: int) -> None:
    momentum = keras.optimizers.SGD(0.02, momentum=0.9)
    model.compile(momentum if number else "adam", "mse", jit_compile=False)


def averages(keras: Any, model: Any, number: int) -> None:
    """As Keras ends a ``fit`` with ``use_ema``, the averages become the weights."""
    optimizer = keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5)
    model.compile(optimizer, "mse", jit_compile=False)


def labels_between(run: Start) -> None:
    """What the first ``fit`` has learnt is measured, and labels what the second one is given."""
    model = run.compiled()
    resuming = run.resume(model)
    run.fit(model, **ARRAYS, epochs=2, resume=resuming)
    run.sees("evaluated", model.evaluate(X, Y, batch_size=BATCH, verbose=0))
    labels = model.predict(X[::-1], batch_size=BATCH, verbose=0)
    run.fit(model, x=X[::-1], y=labels, batch_size=BATCH, epochs=2, resume=resuming)


def batches(run: Start) -> Any:
    return shuffled().batch(BATCH)


def fits_of_an_epoch(*, callbacks: str) -> Program:
    """A loop of ``fit``, with one callback, or with a new one for each."""

    def program(run: Start) -> None:
        model = run.compiled()
        one = run.resume(model) if callbacks == "one" else None
        for epoch in range(EPOCHS):
            begun = (
                {"initial_epoch": epoch, "epochs": epoch + 1} if callbacks == "by epochs" else {}
            )
            run.fit(model, **{**ARRAYS, "epochs": 1, **begun}, resume=one)

    return program


# Callbacks


def set_rate(callback: Any, rate: float) -> None:
    callback.model.optimizer.learning_rate.assign(rate)


def counts_with_get_state(run: Start) -> None:
    class Warmup(run.keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = {0}  # which no JSON has

        def get_state(self) -> dict[str, Any]:
            return {"steps": len(self.hidden)}

        def set_state(self, state: dict[str, Any]) -> None:
            self.hidden = set(range(state["steps"]))

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.hidden.add(len(self.hidden))
            set_rate(self, 0.01 * len(self.hidden))

    run.fit(run.compiled(), Warmup(), **ARRAYS)


def averages_in_arrays(run: Start) -> None:
    """Averages of the weights, as arrays of a callback, that are the model's in the end."""

    def begins(self: Any, logs: Any = None) -> None:
        self.means = [np.zeros((20, 20)), *self.model.get_weights()]

    def averages(self: Any, batch: int, logs: Any = None) -> None:
        now = [self.means[0] + 1, *self.model.get_weights()]
        self.means = [0.9 * a + 0.1 * b for a, b in zip(self.means, now, strict=True)]

    def ends(self: Any, logs: Any = None) -> None:
        self.model.set_weights(self.means[1:])

    events = {"on_train_begin": begins, "on_train_batch_end": averages, "on_train_end": ends}
    run.fit(run.compiled(), run.callback("Averaging", **events), **ARRAYS)


def replays(run: Start) -> None:
    """A callback that trains a batch of its own."""

    def replay(self: Any, epoch: int, logs: Any = None) -> None:
        self.model.train_on_batch(X[:4], Y[:4])

    run.fit(run.compiled(), run.callback("Replays", on_epoch_end=replay), **ARRAYS)


def teaches(run: Start, *, passed: bool = True) -> None:
    """A teacher that averages the weights, which the loss looks at."""
    teacher = run.network()

    def average(self: Any, batch: int, logs: Any = None) -> None:
        weights = self.model.trainable_variables
        for mean, value in zip(self.teacher.trainable_variables, weights, strict=True):
            mean.assign(0.8 * mean + 0.2 * value)

    def loss(real: Any, guessed: Any) -> Any:
        means = teacher.trainable_variables
        norm = sum(tf.reduce_sum(tf.convert_to_tensor(mean) ** 2) for mean in means)
        return tf.reduce_mean((real - guessed) ** 2, -1) * (1 + 0.1 * norm)

    callback = run.callback("MeanTeacher", on_train_batch_end=average)
    callback.teacher = teacher
    model = run.compiled(loss=loss)
    resuming = run.resume(model, teacher=teacher) if passed else None
    run.fit(model, callback, **ARRAYS, resume=resuming)
    run.sees("teacher", digest(teacher.weights))


def teaches_unsaved(run: Start) -> None:
    teaches(run, passed=False)


def called(make: Callable[[Any], Any], *, ema: bool = False) -> Program:
    """A program with a callback of Keras."""

    def program(run: Start) -> None:
        callback = make(run.keras.callbacks)
        model = run.compiled(
            metrics=["mae"],
            optimizer=run.keras.optimizers.Adam(0.05, **{"use_ema": True} if ema else {}),
        )
        run.fit(model, callback, **ARRAYS, **VALIDATION)
        state = {key: vars(callback)[key] for key in ("wait", "best") if key in vars(callback)}
        run.sees("callback", {key: float(value) for key, value in state.items()})

    return program


def plateau(callbacks: Any) -> Any:
    return callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=9.0)


def swaps(callbacks: Any) -> Any:
    return callbacks.SwapEMAWeights(swap_on_epoch=True)


def stops_at_the_worst(callbacks: Any) -> Any:
    more = {"mode": "max", "patience": 1, "restore_best_weights": True}
    return callbacks.EarlyStopping("val_mae", **more)


def best_file(run: Start) -> None:
    path = str(run.folder / "best.weights.h5")
    saver = run.keras.callbacks.ModelCheckpoint(
        path, "val_loss", save_best_only=True, save_weights_only=True
    )
    run.fit(run.compiled(), saver, **ARRAYS, **VALIDATION)
    best = run.network()
    best.load_weights(path)
    run.sees("best", [digest(best.weights), float(saver.best)])


def best_loaded(*, stopping: bool) -> Program:
    def program(run: Start) -> None:
        model = run.compiled(metrics=["mae"])
        callbacks = [stops_at_the_worst(run.keras.callbacks)] if stopping else []
        resuming = run.resume(model, load_best_when_done=True)
        run.fit(model, *callbacks, **ARRAYS, **VALIDATION, resume=resuming)

    return program
