"""What runs in the processes of a cluster: see ``zoo.cluster``."""

from __future__ import annotations

import importlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tfckpt
from tfckpt.live.inventory import collect
from tfckpt.live.variables import raw
from tfckpt.live.workers import Workers
from tfckpt.stored.io.files import LocalFiles
from zoo.cluster import FLAVOURS, SEEN, digest, value_of


def build(strategy: Any, flavour: str) -> dict[str, Any]:
    """A model with a table that may be partitioned, its optimizer, a metric and a count."""
    keras = importlib.import_module(flavour)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((2,), dtype="int32"),
                keras.layers.Embedding(5, 4, name="table"),
                keras.layers.Flatten(),
                keras.layers.Dense(3, name="dense"),
                keras.layers.BatchNormalization(name="norm"),
            ]
        )
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        more = {"aggregation": tf.VariableAggregation.SUM}
        if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
            more["synchronization"] = tf.VariableSynchronization.ON_READ
        seen = tf.Variable(0, dtype=tf.int64, name="seen", **more)
        objects = {"model": model, "optimizer": optimizer, "seen": seen}
        if flavour == "tf_keras":  # Keras 3's are no trackables
            objects["metric"] = keras.metrics.MeanSquaredError(name="error")
    return objects


def fill(strategy: Any, objects: dict[str, Any]) -> None:
    for name, variable in collect(objects).variables.items():
        if name != "seen":
            inner = raw(variable)
            inner.assign(value_of(name, inner.shape, inner.dtype.as_numpy_dtype))
    count(strategy, objects["seen"])


def count(strategy: Any, seen: Any) -> None:
    """Count to ``SEEN``, in the first replica more than in the others."""
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        seen.assign(SEEN)
        return

    def step() -> None:
        context = tf.distribute.get_replica_context()
        first = tf.cast(context.replica_id_in_sync_group == 0, tf.int64)
        last = context.num_replicas_in_sync - 1
        seen.assign_add(first * (SEEN - last) + (1 - first))

    strategy.run(step)


def found(objects: dict[str, Any]) -> dict[str, str]:
    """Canonical name → what the value is, as TensorFlow reads it."""
    variables = collect(objects).variables
    return {name: digest(raw(variable).numpy()) for name, variable in variables.items()}


def save_shapes(strategy: Any, index: int, directory: str) -> dict[str, list[str]]:
    """Save a model of each flavour, and what plain TensorFlow writes of the same."""
    names = {}
    for flavour in FLAVOURS:
        objects = build(strategy, flavour)
        fill(strategy, objects)
        path = tfckpt.Checkpoint(**objects).write(f"{directory}/{flavour}/ckpt")
        record = json.loads(Path(f"{path}.tfckpt.json").read_text())
        names[flavour] = sorted(entry[0] for entry in record["entries"])
    other = "" if index == 0 else f"-of-{index}"  # TensorFlow has all workers write
    tf.train.Checkpoint(**objects).write(f"{directory}/plain{other}/ckpt")
    return names


def restore_shapes(strategy: Any, index: int, directories: list[str]) -> Any:
    """Restore what was saved under other strategies; what the variables are then."""
    result: dict[str, Any] = {}
    for flavour in FLAVOURS:
        objects = build(strategy, flavour)
        nothing = {name: raw(v) for name, v in collect(objects).variables.items()}
        for directory in directories:
            for variable in nothing.values():
                variable.assign(tf.zeros(variable.shape, variable.dtype))
            status = tfckpt.Checkpoint(**objects).read(f"{directory}/{flavour}/ckpt")
            status.assert_consumed()
            result.setdefault(flavour, {})[directory] = found(objects)
            if flavour == "tf_keras":
                plan = tfckpt.Checkpoint(**objects).read(f"{directory}/plain/ckpt").report.plan
                told = {step.name for step in plan.assignments}
                values = {name: text for name, text in found(objects).items() if name in told}
                # TensorFlow calls every slot of a partitioned variable `ShardedVariable`; where the
                # optimizer has them in the file's order, their places tell them.
                slots = {
                    name for name, entry in collect(objects).inventory.entries.items() if entry.of
                }
                unnamed = slots if directory.endswith("partitions") else set()
                assert nothing.keys() - unnamed <= values.keys(), nothing.keys() ^ values.keys()
                result.setdefault("plain", {})[directory] = values
                if strategy is tf.distribute.get_strategy():  # on one device, the other way round
                    theirs = tf.train.Checkpoint(**objects).read(f"{directory}/tf_keras/ckpt")
                    theirs.assert_existing_objects_matched()
                    assert found(objects) == result[flavour][directory]
    return result


def replicas(function: str, count: int, *arguments: Any) -> Any:
    """In a process of its own: one device, or a MirroredStrategy of several."""
    if count == 1:
        return globals()[function](tf.distribute.get_strategy(), 0, *arguments)
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, devices)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(count)])
    return globals()[function](strategy, 0, *arguments)


def config(directory: str, **save: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "manager": {"directory": directory, "save": save or {"every_steps": 2}, "max_to_keep": 2},
        "restore": {"directory": directory, "if_none": "initialize"},
    }


def batches() -> Any:
    draw = np.random.default_rng(0)
    x, y = draw.random((32, 4), "float32"), draw.random((32, 2), "float32")
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.with_options(options)


def small(strategy: Any, flavour: str) -> Any:
    keras = importlib.import_module(flavour)
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
        model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def die(*_: Any, **__: Any) -> None:
    """End as a machine does that is taken away."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(where: Any, *here: Any) -> None:
    """There, or where ``where`` ends with "amid", in the middle of the next save."""
    if where == [*here, "amid"]:
        Workers.exchange = LocalFiles.rename = die  # type: ignore[method-assign]
    elif where == [*here]:
        die()


def fit(strategy: Any, index: int, directory: str, where: Any, flavour: str = "tf_keras") -> Any:
    """``fit`` of a model; ``where`` is the epoch, the batch and the worker that is killed.

    Returns the values, and apart from them what is summed over the workers.
    """
    keras = importlib.import_module(flavour)
    model = small(strategy, flavour)

    class Killed(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            die_at(where, self.epoch, batch, index)

    run = tfckpt.from_config(config(directory), model=model)
    history = model.fit(
        batches(), epochs=3, verbose=0, callbacks=[Killed(), run.callback(verbose=0)]
    )
    values = collect({"model": model}).variables
    summed = {n: float(raw(v).numpy()) for n, v in values.items() if n.startswith("metrics/")}
    for name, epochs in history.history.items():
        summed |= {f"{name} of epoch {epoch}": value for epoch, value in enumerate(epochs)}
    exact = {name: text for name, text in found({"model": model}).items() if name not in summed}
    return [exact, summed]


def loop(strategy: Any, index: int, directory: str, where: Any, flavour: str = "keras") -> Any:
    """A loop of one's own; ``where`` is the step and the worker that is killed."""
    model = small(strategy, flavour)
    optimizer, steps = model.optimizer, 12
    with strategy.scope():
        optimizer.build(model.trainable_variables)
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    run = tfckpt.from_config(config(directory), model=model, step=step)

    @tf.function
    def train(batch: Any) -> None:
        def replica(x: Any, y: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / 8
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        strategy.run(replica, args=batch)

    run.restore()
    data = list(strategy.experimental_distribute_dataset(batches()))
    while int(step) < steps:
        die_at(where, int(step), index)
        train(data[int(step) % len(data)])
        step.assign_add(1)
        run.save_if_due()
    run.sync()
    return [found({"model": model}), {}]


def fits_by_servers(strategy: Any, index: int, directory: str, stops: list[int]) -> list[Any]:
    """tf_keras's ``fit`` by parameter servers; ``stops`` are the epochs before which each ends."""
    keras = importlib.import_module("tf_keras")
    told: list[Any] = []
    for stop in stops:
        model = small(strategy, "tf_keras")
        run = tfckpt.from_config(config(directory), model=model)
        if not told:
            try:
                run.callback()
            except tfckpt.TfckptError as error:
                told.append(str(error))
        run.restore()
        first, epochs = run.epoch, list[int]()

        def ended(epoch: int, logs: Any, run: Any = run, epochs: list[int] = epochs) -> None:
            epochs.append(epoch)
            run.save(epoch=epoch + 1)

        model.fit(
            batches().repeat(),
            initial_epoch=first,
            epochs=stop,
            steps_per_epoch=4,
            verbose=0,
            callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=ended)],
        )
        told.append([epochs, int(model.optimizer.iterations.numpy())])
    return told
