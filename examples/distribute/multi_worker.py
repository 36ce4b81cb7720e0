"""Two workers train together under MultiWorkerMirroredStrategy; one is lost, both go on.

    python examples/distribute/multi_worker.py

Every worker runs the same program and makes the same calls. The chief alone writes; all return when
it has committed. When a worker is lost, the job is started again, and all workers restore the same
checkpoint, the last one that was committed. At the end the weights are those of a run in which
nobody was lost, bit for bit.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cluster
import keras
import numpy as np
import tensorflow as tf

import tfckpt

STEPS = 12


def train(directory: str, lost_at: int | None = None) -> None:
    """What each worker runs."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
    step = tf.Variable(0)
    config = {
        "version": 1,
        "manager": {"directory": directory, "save": {"every_steps": 5}},
        "restore": {"directory": directory, "if_none": "initialize"},
    }
    run = tfckpt.from_config(config, model=model, optimizer=optimizer, step=step)

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> None:
        def replica(x: tf.Tensor, y: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / 32
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        strategy.run(replica, args=(x, y))

    chief = strategy.cluster_resolver.task_id == 0
    report = run.restore()  # all workers the same, or an error in all
    if chief:
        print(f"  starts at step {int(step)}", f"from {Path(report.path).name}" * bool(report.path))
    while int(step) < STEPS:
        if int(step) == lost_at and not chief:
            os.kill(os.getpid(), signal.SIGKILL)
        draw = np.random.default_rng(int(step))  # a batch by its number, as a file of examples
        x = draw.random((32, 4), "float32")
        mine = slice(0, 16) if chief else slice(16, 32)
        try:
            train_step(tf.constant(x[mine]), tf.constant(x[mine, :2]))
        except tf.errors.UnavailableError:
            sys.exit("  a worker is lost")  # to be started again, with all others
        step.assign_add(1)
        run.save_if_due()
    run.save()
    if chief:
        np.savez(f"{directory}/weights.npz", *model.get_weights())


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        whole, lost = f"{place}/whole", f"{place}/lost"
        print("two workers, from the first step to the last:")
        assert cluster.run({"worker": 2}, train, whole) == [0, 0]
        print("two workers, one of which is lost at step 8:")
        chief, worker = cluster.run({"worker": 2}, train, lost, 8)
        assert chief != 0
        assert worker == -signal.SIGKILL
        print("the job is started again:")
        assert cluster.run({"worker": 2}, train, lost) == [0, 0]
        one, other = (np.load(f"{where}/weights.npz") for where in (whole, lost))
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name])
        print("the weights are the same, bit for bit")


if __name__ == "__main__":
    main()
