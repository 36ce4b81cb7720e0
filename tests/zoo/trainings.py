"""Small trainings of both Keras flavours that can be killed anywhere and started again.

Each is what a user's script would be: the same seed, model, data and ``fit`` at every start. What
came of one is told by digests, so that it can be compared bit for bit across processes.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

EPOCHS, SAMPLES, BATCH = 4, 22, 4  # the last batch of an epoch is shorter
STEPS = 6
IMAGE, SERIES = (6, 6, 1), (5, 3)
CLASSES = 3


def inputs(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(5)
    return (
        draw.normal(size=(SAMPLES, *shape)).astype(np.float32),
        draw.integers(0, CLASSES, SAMPLES),
    )


# Models: Keras module → model; the shape of its inputs


def dense(keras: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, name="a"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dropout(0.4, name="drop"),
            keras.layers.Dense(CLASSES, activation="softmax", name="b", dtype="float32"),
        ]
    )


def convolution(keras: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input(IMAGE),
            keras.layers.RandomFlip(name="flip"),
            keras.layers.RandomTranslation(0.2, 0.2, name="shift"),
            keras.layers.Conv2D(4, 3, name="conv"),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(CLASSES, activation="softmax", name="b"),
        ]
    )


def recurrent(keras: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input(SERIES),
            keras.layers.LSTM(5, dropout=0.2, recurrent_dropout=0.3, name="lstm"),
            keras.layers.Dense(CLASSES, activation="softmax", name="b"),
        ]
    )


def transformer(keras: Any) -> Any:
    x = given = keras.Input(SERIES)
    x = keras.layers.Dense(8, name="embed")(x)
    attended = keras.layers.MultiHeadAttention(2, 4, dropout=0.2, name="attention")(x, x)
    x = keras.layers.LayerNormalization(name="norm")(
        keras.layers.Add(name="add")([x, keras.layers.Dropout(0.2, name="drop")(attended)])
    )
    x = keras.layers.GlobalAveragePooling1D(name="pool")(x)
    return keras.Model(given, keras.layers.Dense(CLASSES, activation="softmax", name="b")(x))


MODELS: dict[str, Any] = {
    "dense": (dense, (4,)),
    "convolution": (convolution, IMAGE),
    "recurrent": (recurrent, SERIES),
    "transformer": (transformer, SERIES),
}


# Optimizers


def adam(keras: Any) -> Any:
    return keras.optimizers.Adam(0.01)


def adamw(keras: Any) -> Any:
    schedule = keras.optimizers.schedules.CosineDecay(0.02, EPOCHS * STEPS)
    return keras.optimizers.AdamW(schedule, use_ema=True, ema_momentum=0.8)


def sgd(keras: Any) -> Any:
    return keras.optimizers.SGD(0.05, momentum=0.9)


def accumulating(keras: Any) -> Any:
    return keras.optimizers.Adam(0.01, gradient_accumulation_steps=3)


def scaled(keras: Any) -> Any:
    if keras.__name__ == "tf_keras":
        return keras.mixed_precision.LossScaleOptimizer(
            keras.optimizers.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=5
        )
    return keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=5
    )


OPTIMIZERS: dict[str, Any] = {
    "adam": adam,
    "adamw": adamw,
    "sgd": sgd,
    "accumulating": accumulating,
    "scaled": scaled,
}


# Data: what `fit` is given


def arrays(keras: Any, x: Any, y: Any) -> dict[str, Any]:
    return {"x": x, "y": y, "batch_size": BATCH}


def _dataset(x: Any, y: Any) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SAMPLES)


def finite(keras: Any, x: Any, y: Any) -> dict[str, Any]:
    return {"x": _dataset(x, y).batch(BATCH).prefetch(2)}


def repeated(keras: Any, x: Any, y: Any) -> dict[str, Any]:
    return {"x": _dataset(x, y).repeat().batch(BATCH), "steps_per_epoch": 5}


def unknown_size(keras: Any, x: Any, y: Any) -> dict[str, Any]:
    return {"x": _dataset(x, y).filter(lambda a, b: b >= 0).batch(BATCH)}


def twice(keras: Any, x: Any, y: Any) -> dict[str, Any]:
    """Two passes of an inner shuffle in an epoch."""
    return {"x": _dataset(x, y).repeat(2).shuffle(5).batch(8)}


def drawn(keras: Any, x: Any, y: Any) -> dict[str, Any]:
    import tensorflow as tf

    noisy = _dataset(x, y).map(lambda a, b: (a + 0.1 * tf.random.normal(a.shape), b))
    return {"x": noisy.batch(BATCH).prefetch(2)}


def sequence(keras: Any, x: Any, y: Any) -> dict[str, Any]:
    base = keras.utils.Sequence if keras.__name__ == "tf_keras" else keras.utils.PyDataset

    class Shuffled(base):
        def __init__(self) -> None:
            if base.__name__ == "PyDataset":
                super().__init__()
            self.order = np.arange(SAMPLES)

        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, index: int) -> Any:
            chosen = self.order[index * BATCH : (index + 1) * BATCH]
            noise = np.random.normal(size=x[chosen].shape).astype(np.float32)
            return x[chosen] + 0.1 * noise, y[chosen]

        def on_epoch_end(self) -> None:
            np.random.shuffle(self.order)

    return {"x": Shuffled()}


def generator(keras: Any, x: Any, y: Any) -> dict[str, Any]:
    def batches() -> Any:
        draw = np.random.default_rng(3)
        while True:
            chosen = draw.permutation(SAMPLES)[:BATCH]
            yield x[chosen], y[chosen]

    return {"x": batches(), "steps_per_epoch": 5}


DATA: dict[str, Any] = {
    "arrays": arrays,
    "finite": finite,
    "repeated": repeated,
    "unknown_size": unknown_size,
    "twice": twice,
    "drawn": drawn,
    "sequence": sequence,
    "generator": generator,
}


def digest(values: Any) -> str:
    whole = hashlib.sha256()
    for value in values:
        array = np.asarray(value)
        whole.update(f"{array.dtype}{array.shape}".encode())
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


def train(
    flavour: str,
    model: str,
    data: str,
    optimizer: str,
    directory: str,
    kill: list[int] | None = None,
    every_steps: int | None = 2,
    more: dict[str, Any] | None = None,
    resume: bool = True,
) -> dict[str, Any]:
    """The script: trains to its end, or is killed at [epoch, batch]; what came of it.

    Args:
        flavour: ``keras`` or ``tf_keras``.
        model, data, optimizer: names of this module's.
        directory: of the checkpoints.
        kill: where the process kills itself, before that batch; a batch of -1 is in the validation.
        every_steps: how often it saves besides the ends of epochs.
        more: further arguments of ``fit``, and ``compile``, those of ``compile``.
        resume: whether tfckpt has a part in it at all.
    """
    import tfckpt

    keras = importlib.import_module(flavour)
    if flavour == "tf_keras":
        keras.backend.experimental.enable_tf_random_generator()
    keras.utils.set_random_seed(11)
    if optimizer == "scaled":
        keras.mixed_precision.set_global_policy("mixed_float16")
    more = dict(more or {})
    build, shape = MODELS[model]
    net = build(keras)
    compiled = {"metrics": ["accuracy"], **more.pop("compile", {})}
    net.compile(OPTIMIZERS[optimizer](keras), "sparse_categorical_crossentropy", **compiled)
    x, y = inputs(shape)
    given = DATA[data](keras, x, y)
    save = {"every_epochs": 1} | ({"every_steps": every_steps} if every_steps else {})
    config = {
        "version": 1,
        "manager": {
            "directory": directory,
            "save": save,
            "durable": False,
            "keep": [{"latest": 2}, {"best": 1, "monitor": "val_loss", "mode": "min"}],
        },
        "restore": {"directory": directory, "if_none": "initialize"},
    }
    run = tfckpt.from_config(config, model=net)
    seen: list[Any] = []

    class Watch(keras.callbacks.Callback):
        def get_state(self) -> Any:
            return {"seen": list(seen)}

        def set_state(self, state: Any) -> None:
            seen[:] = state["seen"]

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if kill is not None and [self.epoch, batch] == kill:
                os.kill(os.getpid(), signal.SIGKILL)

        def on_test_begin(self, logs: Any = None) -> None:
            if kill is not None and [self.epoch, -1] == kill:
                os.kill(os.getpid(), signal.SIGKILL)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append([self.epoch, batch, float(logs["loss"]), float(logs["accuracy"])])

    stopping = keras.callbacks.EarlyStopping(
        "val_loss", patience=2, start_from_epoch=1, restore_best_weights=True
    )
    plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=0.05)
    others = [stopping] if optimizer == "adamw" else [stopping, plateau]
    callbacks = [run.callback(verbose=1), Watch(), *others] if resume else [Watch(), *others]
    arguments = {"epochs": EPOCHS, "verbose": 0, **given, **more}
    history = net.fit(**arguments, validation_data=(x[:7], y[:7]), callbacks=callbacks)
    best = run.manager.retention() if resume else None
    result = {
        "weights": digest(v.numpy() for v in net.weights),
        "optimizer": digest(
            np.asarray(v)
            for v in (
                net.optimizer.variables()
                if callable(net.optimizer.variables)
                else net.optimizer.variables
            )
        ),
        "history": json.dumps([history.epoch, history.history], default=float),
        "seen": seen,
        "wait": [stopping.wait, stopping.best_epoch, float(stopping.best), plateau.wait],
    }
    if best is not None:
        result["best"] = best_of(directory, net, keras)
    return result


def best_of(directory: str, net: Any, keras: Any) -> list[Any]:
    """Epoch, validation loss, and a digest of the weights of the best checkpoint that is kept."""
    from tfckpt.stored.commits import record_file

    found = []
    for record in Path(directory).glob("*.tfckpt.json"):
        prefix = str(record).removesuffix(record_file.SUFFIX)
        head = record_file.read(prefix)
        if head is not None and "val_loss" in head.metrics:
            found.append((head.metrics["val_loss"], head.epoch, prefix))
    loss, epoch, prefix = min(found)
    from tfckpt.stored.bundles.bundle import Bundle

    names = record_file.read(prefix).inventory.entries
    with Bundle.open(prefix) as bundle:
        weights = digest(
            bundle.read(entry.key)
            for name, entry in sorted(names.items())
            if entry.role == "weight" and name.startswith("model/")
        )
    return [epoch, loss, weights]
