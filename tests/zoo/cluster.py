"""Clusters of real processes on this machine, each with a TensorFlow of its own.

The processes are forked from one that has imported TensorFlow, so that a cluster is up in half a
second. ``TF_CONFIG`` says to each which it is, as a scheduler would. What runs in them is a
function ``(strategy, index, *arguments)``; how long they wait for each other is said beside it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import runpy
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.forkserver import ForkServer, Outcome

PRELOAD = ("tensorflow", "keras", "tf_keras", "tfckpt", "zoo.workers")
FLAVOURS = ("keras", "tf_keras")
SEEN = 5  # what is counted
PATIENCE = 30.0  # seconds, in place of ten minutes: of a test that fails


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, for the moment."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run_workers(
    server: ForkServer,
    count: int,
    function: str,
    *arguments: Any,
    patience: float = PATIENCE,
    timeout: float = 120.0,
) -> list[Outcome]:
    """Run a function of ``zoo.workers``, or ``module:name``, in all workers of a cluster.

    The server has imported ``PRELOAD``; ``patience`` is how long workers wait for each other, and
    ``timeout`` after which time one is killed.
    """
    ports = free_ports(count)
    requests = [
        ("zoo.cluster:worker", ports, index, patience, function, arguments)
        for index in range(count)
    ]
    return server.run_many(requests, workers=count, timeout=timeout)


def worker(
    ports: Sequence[int], index: int, patience: float, function: str, arguments: Sequence[Any]
) -> Any:
    """In a process of its own."""
    task = {"type": "worker", "index": index}
    workers = [f"127.0.0.1:{port}" for port in ports]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    import tensorflow as tf

    from tfckpt.live import workers as waiting

    waiting.PATIENCE = patience
    hear_of_the_dead_soon(len(ports))
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    module, _, name = function.rpartition(":")
    found = getattr(importlib.import_module(module or "zoo.workers"), name)
    return found(strategy, index, *arguments)


def hear_of_the_dead_soon(count: int) -> None:
    """Have TensorFlow end collectives with a dead worker after four seconds, not ten."""
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    jobs = config_pb2.ConfigProto().experimental.coordination_config.coordinated_job_list
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        heartbeat_timeout_in_ms=4000,
        coordinated_jobs=[jobs.add(name="worker", num_tasks=count)],
    )


def run_servers(
    server: ForkServer, parameters: int, function: str, *arguments: Any, timeout: float = 120.0
) -> Outcome:
    """Run a function of ``zoo.workers`` in the coordinator of a ParameterServerStrategy.

    Two workers, and as many parameter servers as asked for, are there while it runs; each variable
    of two rows or more is cut into as many parts.
    """
    ports = free_ports(2 + parameters)
    cluster = {"worker": ports[:2], "ps": ports[2:]}
    spec = {job: [f"127.0.0.1:{port}" for port in found] for job, found in cluster.items()}
    tasks = [("worker", 0), ("worker", 1), *(("ps", index) for index in range(parameters))]
    requests: list[tuple[Any, ...]] = [("zoo.cluster:coordinator", spec, function, arguments)]
    requests += [("zoo.cluster:serve", spec, *task) for task in tasks]
    outcomes = server.run_many(requests, workers=len(requests), timeout=timeout)
    return outcomes[0]


def serve(spec: Any, job: str, index: int) -> None:
    """A worker or a parameter server, until the coordinator says that it is done."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
    tf.distribute.Server(
        tf.train.ClusterSpec(spec), job_name=job, task_index=index, protocol="grpc", config=config
    )
    done = _done(spec)
    while not done.exists():
        time.sleep(0.02)


def coordinator(spec: Any, function: str, arguments: Sequence[Any]) -> Any:
    import tensorflow as tf

    cluster = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(spec), rpc_layer="grpc"
    )
    try:
        strategy = tf.distribute.ParameterServerStrategy(
            cluster,
            variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(
                len(spec["ps"])
            ),
        )
        return getattr(importlib.import_module("zoo.workers"), function)(strategy, 0, *arguments)
    finally:
        _done(spec).touch()


def _done(spec: Any) -> Path:
    port = spec["worker"][0].rpartition(":")[2]
    return Path(tempfile.gettempdir()) / f"tfckpt-cluster-{os.getppid()}-{port}"


def script(path: str, temporary: str) -> None:
    """In a process of its own: a program, as from a shell."""
    os.environ["TMPDIR"] = tempfile.tempdir = temporary
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


def value_of(name: str, shape: Any, dtype: Any) -> np.ndarray:
    """What the value of that name is to be: the same whoever computes it."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    drawn = np.random.default_rng(seed).integers(0, 1 << 12, size=shape)
    return (drawn / 64).astype(dtype) if np.dtype(dtype).kind == "f" else drawn.astype(dtype)


def digest(value: Any) -> str:
    array = np.ascontiguousarray(value)
    return f"{array.dtype.name}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()[:12]}"
