"""A table cut into parts on two parameter servers, saved by the coordinator, read on one device.

    python examples/distribute/parameter_server.py

The coordinator is the only process that knows of checkpoints. The table is one value in them, under
the name and in the shape that it has on one device.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cluster
import numpy as np
import tensorflow as tf

import tfckpt

SHAPE = (10, 4)


def task(directory: str) -> None:
    """What each process runs: the coordinator trains, the others serve."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        coordinate(resolver, directory)
        return
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    )
    while not Path(directory, "done").exists():
        time.sleep(0.1)


def coordinate(resolver: tf.distribute.cluster_resolver.ClusterResolver, directory: str) -> None:
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        table = tf.Variable(tf.zeros(SHAPE), name="table")
    print(f"  the table has {len(table.variables)} parts")

    @tf.function
    def step() -> None:
        for part in table.variables:
            part.assign_add(tf.ones_like(part))

    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(table=table), directory, max_to_keep=2)
    manager.restore_or_initialize()
    for _ in range(5):
        coordinator.schedule(step)
    coordinator.join()  # nothing is under way while it saves
    print(f"  saved {Path(manager.save()).name}")
    Path(directory, "done").touch()


def read(directory: str) -> None:
    table = tf.Variable(tf.zeros(SHAPE), name="table")
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(table=table), directory, max_to_keep=2)
    path = manager.restore_or_initialize()
    np.testing.assert_array_equal(table, np.full(SHAPE, 5.0))
    shape = tfckpt.inspect(path).inventory.entries["table"].shape
    print(f"  on one device the table is {list(shape)}, bit for bit")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        print("a coordinator, a worker and two parameter servers:")
        codes = cluster.run({"chief": 1, "worker": 1, "ps": 2}, task, directory)
        assert codes[0] == 0
        read(directory)


if __name__ == "__main__":
    main()
