"""What is done with every client: one writes, the other restores; a run is killed and goes on.

A module of a client says how its programs are built; `exchanged` and `resumed` make tests of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.forkserver import ForkServer

import tfckpt

TIMEOUT = 300.0  # seconds for one training
STEPS, EVERY, KILLED = 12, 3, 8  # of a loop
WAYS = pytest.mark.parametrize(("writer", "reader"), [(tf.train, tfckpt), (tfckpt, tf.train)])


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of the client: what it gives to a checkpoint, and what it does."""

    objects: dict[str, Any]  # the keyword arguments of `tf.train.Checkpoint`
    variables: Callable[[], Iterable[Any]]  # all of them, by the client's own lists
    train: Callable[[], Any]  # one step
    output: Callable[[], Any]  # to some fixed input

    def values(self) -> list[np.ndarray]:
        """A copy: on a CPU, ``numpy()`` is the variable's own memory."""
        listed = (*self.variables(), self.output())
        return [tf.convert_to_tensor(each).numpy().copy() for each in listed]


def assert_same(found: Program, expected: Program) -> None:
    for one, other in zip(found.values(), expected.values(), strict=True):
        np.testing.assert_array_equal(one, other)


def assert_restored(
    build: Callable[[int], Program], writer: Any, reader: Any, directory: Path
) -> None:
    """What ``writer`` saves of one program, ``reader`` restores into another, and its next step."""
    old, new = build(1), build(2)
    for _ in range(3):
        old.train()
    new.train()
    differ = [np.any(a != b) for a, b in zip(old.values(), new.values(), strict=True)]
    assert sum(differ) > len(differ) / 2
    path = writer.Checkpoint(**old.objects).save(str(directory / "ckpt"))
    reader.Checkpoint(**new.objects).restore(path).assert_existing_objects_matched()
    assert_same(new, old)
    old.train()
    new.train()
    assert_same(new, old)


def checksums(values: Iterable[Any]) -> list[str]:
    return [
        hashlib.sha256(tf.convert_to_tensor(each).numpy().tobytes()).hexdigest() for each in values
    ]


def kill(step: Any, stop: int | None) -> None:
    """End the process at once, if the training has come to ``stop``."""
    if int(step) == stop:
        os.kill(os.getpid(), signal.SIGKILL)


def killing(keras: Any, stop: int | None) -> Any:
    """A callback that does so in a ``fit``."""

    class Kill(keras.callbacks.Callback):
        step = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            Kill.step += 1
            kill(Kill.step, stop)

    return Kill()


def trained(program: Program, directory: str, stop: int | None) -> list[str]:
    """Train in a loop of one's own, which counts by the optimizer's iterations or by itself."""
    step = getattr(program.objects["optimizer"], "iterations", None)
    counter = tf.Variable(0) if step is None else step
    more = {"step": counter} if step is None else {}
    checkpoint = tfckpt.Checkpoint(**program.objects, **more)
    manager = tfckpt.CheckpointManager(checkpoint, directory, max_to_keep=2)
    manager.restore_or_initialize()
    while counter < STEPS:
        kill(counter, stop)
        program.train()
        if step is None:
            counter.assign_add(1)
        if counter % EVERY == 0:
            manager.save()
    return checksums(program.values())


def exchanged(build: Callable[[int], Program]) -> Any:
    """A test: what TensorFlow saves, tfckpt restores, and the other way round."""

    @WAYS
    def test(writer: Any, reader: Any, tmp_path: Path) -> None:
        assert_restored(build, writer, reader, tmp_path)

    return test


def resumed(
    file: str, stop: int = KILLED, needs: str = "", then: Callable[[Path], Any] = Path.exists
) -> Any:
    """A test: ``train(directory, stop)`` in ``file`` returns the same without and after a kill.

    It calls ``kill`` with ``stop``, which is None where it shall come to its end. Each start is a
    process of its own. ``needs`` is what the program needs for that, and ``then`` what must hold of
    the directory.
    """

    def test(tmp_path: Path, outcome: Callable[[str], None]) -> None:
        if needs:
            outcome(needs)
        whole, run, train = str(tmp_path / "whole"), str(tmp_path / "run"), (file, "train")
        with ForkServer() as server:
            alone = server.run(train, whole, None, timeout=TIMEOUT).result()
            killed = server.run(train, run, stop, timeout=TIMEOUT)
            assert killed.signal == signal.SIGKILL, killed
            assert server.run(train, run, None, timeout=TIMEOUT).result() == alone
        assert then(tmp_path / "run")

    return test


IN_PLACE = "`tf.train.Checkpoint = tfckpt.Checkpoint`, and so for its manager"
A_CALLBACK = "`callbacks=[tfckpt.callbacks.resume(model, directory)]`"


def in_place_of_tensorflow() -> None:
    """The line that a program needs whose framework creates the checkpoint or the manager."""
    tf.train.Checkpoint, tf.train.CheckpointManager = tfckpt.Checkpoint, tfckpt.CheckpointManager
