"""``tfckpt.Checkpoint``: TensorFlow's constructor, methods and files, safer underneath.

It subclasses ``tf.train.Checkpoint``, so it works wherever that one does, and it writes ordinary
TensorFlow checkpoints. Two things are different. A save holds every variable, is on disk when
``save`` returns, and has a commit record. A restore matches by canonical name, is checked against
the model's structure, and happens completely or not at all.

In graph mode (``tf.compat.v1``) every call goes to TensorFlow unchanged.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import Any

import tensorflow as tf

from tfckpt.errors import NamingError, SaveError
from tfckpt.live.arguments import RESERVED, check_arguments, check_attribute
from tfckpt.live.companion import Companion
from tfckpt.live.drop_in import restore
from tfckpt.live.paths import absolute_prefix, eager_prefix, eager_source
from tfckpt.live.private.tensorflow import has_saver_yet
from tfckpt.live.remote import files_of
from tfckpt.live.save import (
    SaveOptions,
    as_save_errors,
    write_state,
)
from tfckpt.live.turns import in_turn
from tfckpt.live.variables import as_int
from tfckpt.live.workers import Together
from tfckpt.policy import Policy
from tfckpt.stored.bundles.keys import EXTRA
from tfckpt.stored.commits.commit import claim
from tfckpt.stored.commits.numbering import Ticket
from tfckpt.stored.commits.record_file import path_of

TensorFlowManager: Any = tf.train.CheckpointManager
CheckpointOptions: Any = tf.train.CheckpointOptions
executing_eagerly = tf.executing_eagerly
# Missing and unused values are left to the assertions of the status, as in TensorFlow.
_READ = Policy(name="tfckpt.Checkpoint.read", api="read", expect_partial=True)
RESTORE = Policy(name="tfckpt.Checkpoint.restore", api="restore", expect_partial=True)


class Checkpoint(tf.train.Checkpoint):  # type: ignore[misc]
    r"""Saves and restores models, optimizers and other trackables, completely or not at all.

    Args:
        root: one object whose children are saved, as in ``tf.train.Checkpoint``.
        **kwargs: objects by keyword: Keras models and optimizers of either flavor, variables,
            ``tf.Module``\ s, iterators, lists and dicts of them.

    Raises:
        UntrackedError: an argument is a plain number, a function or the like. Also raised when an
            attribute is set to a number later, except in your own subclasses.
        ValueError: ``root`` already has another child with the name of a keyword.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> checkpoint = tfckpt.Checkpoint(model=model)
    >>> path = checkpoint.save(tempfile.mkdtemp() + "/ckpt")
    >>> print(checkpoint.restore(path).assert_consumed().report.counts)
    {<Status.LOADED: 'LOADED'>: 3}
    """

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        check_arguments(root, kwargs)
        super().__init__(root, **kwargs)

    @in_turn("_tfckpt.background")
    def save(self, file_prefix: Any, options: Any = None) -> str:
        """Save under the next number that no file next to ``file_prefix`` uses.

        Args:
            file_prefix: ``directory/ckpt`` becomes ``directory/ckpt-12``.
            options: ``tf.train.CheckpointOptions``. With ``experimental_enable_async_checkpoint``
                the files are written in the background and are complete once ``sync`` returns.

        Returns:
            The path, without ``.index``. The checkpoint is complete and on disk.

        Raises:
            InUseError: another process saves into that directory.
            SaveError: the checkpoint, or the previous one in the background, could not be written.
                Its files are removed and no counter has changed.
        """
        prefix = eager_prefix(file_prefix, "file_prefix")
        if prefix is None:
            return super().save(file_prefix, options)  # type: ignore[no-any-return]
        with Together(self._tfckpt.workers(), "save", SaveError) as together:
            self._tfckpt.background.finish()
            target, counter = absolute_prefix(prefix), self.save_counter
            save_options, before = SaveOptions(files_of(target)), as_int(counter)
            directory, name = os.path.split(target)
            ticket = None
            if together.chief:
                with as_save_errors(prefix):
                    recovered = claim(directory, name, save_options.files)
                    ticket = Ticket.take(target, recovered, before, save_options.files)
            ticket = together.ticket(ticket) or Ticket()
        ticket.advances(counter.assign, before, ticket.value)
        path, target = (f"{base}-{ticket.value}" for base in (prefix, target))
        then = partial(write_state, directory, f"{name}-{ticket.value}", save_options.files)
        self._tfckpt.save(path, target, options, save_options, ticket, then=then)
        return path

    def write(self, file_prefix: Any, options: Any = None) -> str:
        """Write under exactly this name, without a number and without the state file.

        An existing checkpoint of that name is replaced atomically: readers see the old or the new.
        In an object store it is a SaveError: use ``save``, which takes a number.
        """
        return self._write(file_prefix, options)

    @in_turn("_tfckpt.background")
    def sync(self) -> None:
        """Wait for a background save to finish.

        Raises:
            SaveError: the background save failed.
        """
        self._tfckpt.background.finish()
        super().sync()

    @in_turn("_tfckpt.background")
    def _write(self, file_prefix: Any, options: Any = None) -> str:
        # TensorFlow's CheckpointManager calls this.
        prefix = eager_prefix(file_prefix, "file_prefix")
        if prefix is None:
            _drop_record(file_prefix)
            return super()._write(file_prefix, options)  # type: ignore[no-any-return]
        self._tfckpt.background.finish()
        save_options = SaveOptions(files_of(prefix))
        self._tfckpt.save(prefix, absolute_prefix(prefix), options, save_options, Ticket())
        return prefix

    @in_turn("_tfckpt.background")
    def restore(self, save_path: Any, options: Any = None) -> Any:
        """Restore from what ``save`` wrote, completely or not at all.

        Args:
            save_path: the path that ``save`` returned, or the directory of a SavedModel. None, as
                ``tf.train.latest_checkpoint`` returns, restores nothing and logs a warning.
            options: ``tf.train.CheckpointOptions``.

        Returns:
            A status with TensorFlow's four assertions, and ``report``.

        Raises:
            CheckpointNotFoundError: no checkpoint has that name.
            DamagedCheckpointError: the checksum of a needed value does not match.
            NotBuiltError: a Keras object has no variables yet; the message says how to build it.
            RefusedError: shapes or dtypes differ, the values at a layer's position belong to
                another layer, or nothing would be restored.
        """
        prefix = eager_source(save_path, "restore")
        if prefix is None and not executing_eagerly():
            return super().restore(save_path, options)
        self._tfckpt.background.failure()
        _ = self.save_counter  # makes it
        if prefix is None:
            return super().read(None, options)
        return restore(self._tfckpt, prefix, RESTORE, options)

    @in_turn("_tfckpt.background")
    def read(self, save_path: Any, options: Any = None) -> Any:
        """Restore from what ``write`` wrote: like ``restore``, but without ``save_counter``."""
        prefix = eager_source(save_path, "read")
        if prefix is None:
            return super().read(save_path, options)
        self._tfckpt.background.failure()
        return restore(self._tfckpt, prefix, _READ, options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == EXTRA:
            raise NamingError(RESERVED)
        if type(self) is Checkpoint and has_saver_yet(self) and name[0] != "_":
            check_attribute(name, value)
        super().__setattr__(name, value)
        companion = self.__dict__.get("_tfckpt_companion")
        if companion is not None and companion.late is not None and self._root is None:
            companion.late.take(name, getattr(self, name))

    @property
    def _tfckpt(self) -> Companion:
        if "_tfckpt_companion" not in self.__dict__:  # not a tracked attribute
            self.__dict__["_tfckpt_companion"] = Companion(self)
        return self.__dict__["_tfckpt_companion"]  # type: ignore[no-any-return]


def _drop_record(file_prefix: Any) -> None:
    """Remove an older record of that name, which does not describe what TensorFlow writes now."""
    if isinstance(file_prefix, (str, os.PathLike)):
        with contextlib.suppress(FileNotFoundError):
            files_of(os.fspath(file_prefix)).remove(path_of(os.fspath(file_prefix)))
