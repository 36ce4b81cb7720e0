"""Ways to save while training goes on, and ways that make it wait."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import tensorflow as tf

import tfckpt
from benchmarks.contestants import TENSORFLOW, TFCKPT, Contestant, TensorFlow, Tfckpt

THREAD = "SaveV2 in a thread"


class InBackground(Contestant):
    """A contestant whose ``save`` may return before the files are there.

    Attributes:
        done: set when they are.
    """

    def ready(self) -> None:
        self.done = threading.Event()

    def wait(self) -> None:
        """Until the files are there."""


class Sync(InBackground, TensorFlow):
    def save(self) -> None:
        super().save()
        self.done.set()


class TfckptSync(Sync, Tfckpt):
    pass


class Async(InBackground, TensorFlow):
    """``experimental_enable_async_checkpoint``."""

    name = f"{TENSORFLOW}, async"

    def save(self) -> None:
        options = tf.train.CheckpointOptions(
            experimental_enable_async_checkpoint=True,
            experimental_write_callbacks=[self.done.set],
        )
        self.checkpoint.write(self.prefix, options)

    def wait(self) -> None:
        self.checkpoint.sync()


class TfckptAsync(Async):
    name = f"{TFCKPT}, async"
    kind: ClassVar[Any] = tfckpt.Checkpoint


class Thread(InBackground):
    """What one may write oneself: references to the values, and TensorFlow's op in a thread."""

    name = THREAD

    def save(self) -> None:
        tensors = [variable.read_value() for variable in self.subject.variables]
        names = [f"value_{n}" for n in range(len(tensors))]
        slices = [""] * len(tensors)

        def work() -> None:
            tf.raw_ops.SaveV2(
                prefix=self.prefix, tensor_names=names, shape_and_slices=slices, tensors=tensors
            )
            self.done.set()

        self.thread = threading.Thread(target=work)
        self.thread.start()

    def wait(self) -> None:
        self.thread.join()


WAYS: tuple[type[InBackground], ...] = (Sync, TfckptSync, Async, Thread, TfckptAsync)
