"""Who saves and restores: tfckpt, TensorFlow and Keras; the others are in ``others``.

A contestant has a directory of its own. What it restores is what it saved last, from the page
cache, into the same variables, or into new arrays where it knows of no variables.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow as tf

import tfckpt
from tfckpt.live.saving.save import SaveOptions
from tfckpt.stored.commits.numbering import Ticket
from tfckpt.stored.io.files import SCRATCH

if TYPE_CHECKING:
    from benchmarks.subjects import Subject

TENSORFLOW = "tf.train.Checkpoint"
TFCKPT = "tfckpt.Checkpoint"
NO_FSYNC = "tfckpt.Checkpoint, no fsync (internal)"
LITTLE_MEMORY = "tfckpt.restore, max_memory: 1 MiB"


class Contestant:
    """One way to save and restore a subject.

    Attributes:
        name: in tables.
        needs: modules that must be installed.
        of_models: whether it is of Keras models alone.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    of_models: ClassVar[bool] = False

    def __init__(self, subject: Subject, directory: str) -> None:
        self.subject = subject
        self.directory = Path(directory, re.sub(r"\W+", "_", self.name).strip("_"))
        self.prefix = str(self.directory / "ckpt")
        self.clear()

    @classmethod
    def absent(cls) -> tuple[str, ...]:
        """What it needs and is not installed."""
        return tuple(m for m in cls.needs if importlib.util.find_spec(m) is None)

    def ready(self) -> None:
        """What comes before a save and is not timed."""

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> Any:
        """Returns what is to live until the clock has stopped."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove what was saved."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)


class TensorFlow(Contestant):
    """``tf.train.Checkpoint.write`` and ``read``."""

    name = TENSORFLOW
    kind: ClassVar[Any] = tf.train.Checkpoint

    def __init__(self, subject: Subject, directory: str) -> None:
        super().__init__(subject, directory)
        self.checkpoint = self.kind(**subject.objects)

    def save(self) -> None:
        self.checkpoint.write(self.prefix)

    def restore(self) -> Any:
        return self.checkpoint.read(self.prefix)


class Tfckpt(TensorFlow):
    """The same of tfckpt, which returns when all is on disk."""

    name = TFCKPT
    kind = tfckpt.Checkpoint


class NoFsync(Tfckpt):
    """tfckpt as if it promised no more than TensorFlow: waits for no disk."""

    name = NO_FSYNC

    def save(self) -> None:
        options = SaveOptions(SCRATCH)
        self.checkpoint._tfckpt.save(self.prefix, self.prefix, None, options, Ticket())


class LittleMemory(Tfckpt):
    """tfckpt where memory is scarce: what it cannot hold is read twice."""

    name = LITTLE_MEMORY

    def restore(self) -> Any:
        return tfckpt.restore(
            self.prefix, **self.subject.objects, policy={"max_memory": "1 MiB", "api": "read"}
        )


class TensorFlowManager(Contestant):
    """``save`` of a manager that keeps one, and thus deletes the one before."""

    name = "tf.train.CheckpointManager"
    kinds: ClassVar[tuple[Any, Any]] = (tf.train.Checkpoint, tf.train.CheckpointManager)

    def __init__(self, subject: Subject, directory: str) -> None:
        super().__init__(subject, directory)
        checkpoint, manager = self.kinds
        self.checkpoint = checkpoint(**subject.objects)
        self.manager = manager(self.checkpoint, str(self.directory), max_to_keep=1)

    def save(self) -> None:
        self.manager.save()

    def restore(self) -> Any:
        return self.checkpoint.restore(self.manager.latest_checkpoint)

    def clear(self) -> None:
        if not self.directory.exists():
            super().clear()


class TfckptManager(TensorFlowManager):
    name = "tfckpt.CheckpointManager"
    kinds = (tfckpt.Checkpoint, tfckpt.CheckpointManager)


class KerasWeights(Contestant):
    """``save_weights`` and ``load_weights``, which leave the optimizer out."""

    name = "Keras .weights.h5 (no optimizer)"
    of_models = True

    def save(self) -> None:
        self.subject.model.save_weights(f"{self.prefix}.weights.h5")

    def restore(self) -> Any:
        return self.subject.model.load_weights(f"{self.prefix}.weights.h5")


class KerasArchive(Contestant):
    """``model.save`` and ``load_model``, which builds the model anew."""

    name = "Keras .keras"
    of_models = True

    def save(self) -> None:
        self.subject.model.save(f"{self.prefix}.keras")

    def restore(self) -> Any:
        import keras

        return keras.models.load_model(f"{self.prefix}.keras")


CORE: tuple[type[Contestant], ...] = (TensorFlow, Tfckpt, NoFsync)
FRAMEWORK: tuple[type[Contestant], ...] = (
    TensorFlowManager,
    TfckptManager,
    KerasWeights,
    KerasArchive,
)
