"""Training by several processes that is killed and started again ends as if nobody had been killed.

A worker of two ends by SIGKILL at some step, or amid a save; the other by what TensorFlow then
raises; both start again until they come to the end, and leave no other files. Compared are all
values and, of ``fit``, History. A sum over the workers of an epoch that was resumed is added in
another order (docs/distribute.md): it may differ in the last bit of a float32, and nothing else.
"""

from __future__ import annotations

import importlib
import random
import re
import signal
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from zoo.cluster import run_servers, run_workers
from zoo.forkserver import ForkServer, results

import tfckpt.callbacks


def killed_and_resumed(
    server: ForkServer, training: str, places: list[Any], kills: int, path: Path
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    draw = random.Random(seed)
    whole = results(run_workers(server, 2, training, str(path / "whole"), None))
    assert whole[0] == whole[1]
    for number, place in enumerate(sorted(draw.sample(places, kills))):
        victim = draw.randrange(2)
        where = [*place, victim, *(["amid"] if number % 2 == 0 else [])]
        print(f"seed {seed}, killed at {where}")
        outcomes = run_workers(server, 2, training, str(path / "killed"), where)
        assert outcomes[victim].signal == signal.SIGKILL, outcomes[victim]
        assert outcomes[1 - victim].error, "the other one went on alone"
    ended = run_workers(server, 2, training, str(path / "killed"), None)
    for (exact, summed), (values, sums) in zip(results(ended), whole, strict=True):
        assert exact == values
        assert summed == pytest.approx(sums, rel=2**-22)
    files = {re.sub(r"ckpt-[0-9]+", "ckpt", one.name) for one in (path / "killed").iterdir()}
    assert files == {re.sub(r"ckpt-[0-9]+", "ckpt", one.name) for one in (path / "whole").iterdir()}


@pytest.mark.skipif(
    tuple(map(int, keras.__version__.split(".")[:3])) < (3, 2, 1),
    reason="Keras before 3.2.1 does not sum gradients over replicas",
)
@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=pytest.mark.long)])
def test_a_loop_of_keras_3_goes_on_exactly(kills, server, tmp_path) -> None:
    killed_and_resumed(server, "loop", [[step] for step in range(1, 12)], kills, tmp_path)


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.long)])
def test_a_fit_of_tf_keras_goes_on_exactly(kills, server, tmp_path) -> None:
    batches = [[epoch, batch] for epoch in range(3) for batch in range(4)][1:]
    killed_and_resumed(server, "fit", batches, kills, tmp_path)


def test_what_has_no_fit_says_what_to_do(server, tmp_path) -> None:
    outcome, _ = run_workers(server, 2, "fit", str(tmp_path / "run"), None, "keras")
    assert "Keras 3 has no `fit` under MultiWorkerMirroredStrategy" in outcome.output
    assert "run.save_if_due()" in outcome.output
    assert "tf_keras" in outcome.output


def test_a_fit_by_parameter_servers_goes_on_at_its_epoch(server, tmp_path) -> None:
    run, stops = str(tmp_path / "run"), [2, 4]
    refused, *ended = run_servers(server, 2, "fits_by_servers", run, stops).result()
    assert "under ParameterServerStrategy" in refused
    assert "initial_epoch=run.epoch" in refused
    assert ended == [[[0, 1], 8], [[2, 3], 16]]


def of_replicas(keras: str, run: str) -> None:
    """In a child: a ``fit`` over two replicas."""
    k = importlib.import_module(keras)
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = k.Sequential([k.Input((4,)), k.layers.BatchNormalization(), k.layers.Dense(1)])
        model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((tf.ones((4, 4)), tf.ones((4, 1))))
    model.fit(data, callbacks=[tfckpt.callbacks.resume(model, run)], verbose=0)


@pytest.mark.parametrize(("flavor", "said"), [("keras", False), ("tf_keras", True)])
def test_averages_of_which_each_replica_has_its_own_are_said(
    flavor, said, server, tmp_path
) -> None:
    outcome = server.run((__file__, "of_replicas"), flavor, str(tmp_path))
    assert not outcome.error, outcome
    names = "moving_mean", "moving_variance"
    averages = ", ".join(f"model/batch_normalization/{name}" for name in names)
    assert (f"a file has the mean of {averages} over replicas" in outcome.output) == said
