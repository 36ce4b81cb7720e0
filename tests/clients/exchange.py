"""What is done with every client: one writes, the other restores; a run is killed and goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from zoo.forkserver import ForkServer

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

TIMEOUT = 300.0  # seconds for one training


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of the client: what it gives to a checkpoint, and what it does.

    Attributes:
        objects: the keyword arguments of ``tf.train.Checkpoint``.
        variables: all variables, by the client's own lists.
        train: one step.
        output: what the model says to some fixed input.
    """

    objects: dict[str, Any]
    variables: Callable[[], Iterable[Any]]
    train: Callable[[], Any]
    output: Callable[[], Any]

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
    """What ``writer`` saves of one program, ``reader`` restores into another.

    ``writer`` and ``reader`` are ``tf.train`` and ``tfckpt``, or the other way round. The next step
    of both programs is the same one, so nothing that counts was left out of ``variables``.
    """
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


def trained(
    program: Program, directory: str, stop: int | None, *, steps: int, every: int
) -> list[str]:
    """Train in a loop of one's own, which counts by the optimizer's iterations."""
    checkpoint = tfckpt.Checkpoint(**program.objects)
    manager = tfckpt.CheckpointManager(checkpoint, directory, max_to_keep=2)
    manager.restore_or_initialize()
    step = program.objects["optimizer"].iterations
    while step < steps:
        kill(step, stop)
        program.train()
        if step % every == 0:
            manager.save()
    return checksums(program.values())


def killed_and_resumed(file: str, directory: Path, stop: int) -> tuple[Any, Any]:
    """What ``train(directory, stop)`` in ``file`` returns without a kill, and after one.

    It calls ``kill`` with ``stop``, which is None where it shall come to its end. Each start is a
    process of its own.
    """
    whole, run = str(directory / "whole"), str(directory / "run")
    train = (file, "train")
    with ForkServer() as server:
        alone = server.run(train, whole, None, timeout=TIMEOUT).result()
        killed = server.run(train, run, stop, timeout=TIMEOUT)
        assert killed.signal == signal.SIGKILL, killed
        return alone, server.run(train, run, None, timeout=TIMEOUT).result()


IN_PLACE = "`tf.train.Checkpoint = tfckpt.Checkpoint`, and so for its manager"


def in_place_of_tensorflow() -> None:
    """The line that a program needs whose framework creates the checkpoint or the manager."""
    tf.train.Checkpoint, tf.train.CheckpointManager = tfckpt.Checkpoint, tfckpt.CheckpointManager
