"""``tfckpt.Checkpoint``: TensorFlow's constructor, methods and files, safer underneath.

It subclasses ``tf.train.Checkpoint``, so it works wherever that one does, and it writes ordinary
TensorFlow checkpoints. Two things are different. A save holds every variable, is on disk when
``save`` returns, and has a commit record. A restore matches by canonical name, is checked against
the model's structure, and happens completely or not at all.

In graph mode (``tf.compat.v1``) every call goes to TensorFlow unchanged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import NamingError
from tfckpt.live.advice import PolicyCall, adding_advice, log_restore
from tfckpt.live.distribution.agreement import saving, workers_among
from tfckpt.live.drop_in import restore
from tfckpt.live.io.remote_files import files_of
from tfckpt.live.io.tf_paths import absolute_prefix, eager_prefix, eager_source
from tfckpt.live.objects.thread_lock import live_objects
from tfckpt.live.restoring.lineage import Lineage
from tfckpt.live.saving.background import Background, in_turn
from tfckpt.live.saving.coverage import EXTRA
from tfckpt.live.saving.name_cache import NameCache
from tfckpt.live.saving.save import (
    SaveOptions,
    as_save_errors,
    completed_metadata,
    run_callbacks,
    synchronous,
    write,
    write_state,
)
from tfckpt.live.saving.untracked import check_arguments, check_attribute
from tfckpt.live.saving.write_files import by_tensorflow
from tfckpt.live.variables.variables import as_int
from tfckpt.policy import Policy
from tfckpt.stored.bundles.writing.shard import BACKGROUND
from tfckpt.stored.commits.numbering import Number, last_in_order
from tfckpt.stored.commits.record_file import path_of
from tfckpt.stored.commits.recovery import claim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfckpt.live.deferred.status import LoadStatus
    from tfckpt.live.distribution.agreement import Restoring
    from tfckpt.live.distribution.workers import Workers
    from tfckpt.live.restoring.restore import Prepared
    from tfckpt.live.saving.save import RecordMetadata

TensorFlowManager: Any = tf.train.CheckpointManager
CheckpointOptions: Any = tf.train.CheckpointOptions
executing_eagerly = tf.executing_eagerly
# Missing and unused values are left to the assertions of the status, as in TensorFlow.
_READ = Policy(name="tfckpt.Checkpoint.read", api="read", expect_partial=True)
RESTORE = Policy(name="tfckpt.Checkpoint.restore", expect_partial=True)


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

    @in_turn("_tfckpt_background")
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
        with saving(self._tfckpt_workers()) as agreement:
            self._tfckpt_background.finish()
            target, counter = absolute_prefix(prefix), self.save_counter
            save_options, before = SaveOptions(files_of(target)), as_int(counter)
            directory, name = os.path.split(target)
            with as_save_errors(prefix), contextlib.ExitStack() as cleanup:
                if agreement.chief:
                    recovered = claim(directory, name, save_options.files)
                    highest = max(before, recovered, last_in_order(target, save_options.files))
                    cleanup.callback(
                        (number := Number(target, highest, save_options.files)).give_back
                    )
                value = agreement.meet(number.value if agreement.chief else None)[0]
                give_back = cleanup.pop_all().close

        def undo() -> None:
            give_back()
            counter.assign(before)

        def then() -> None:
            give_back()
            write_state(directory, f"{name}-{value}", save_options.files)

        count = partial(counter.assign, value)
        path, target = (f"{base}-{value}" for base in (prefix, target))
        self._tfckpt_save(path, target, options, save_options, first=count, then=then, undo=undo)
        return path

    def write(self, file_prefix: Any, options: Any = None) -> str:
        """Write under exactly this name, without a number and without the state file.

        An existing checkpoint of that name is replaced atomically: readers see the old or the new.
        """
        return self._write(file_prefix, options)

    @in_turn("_tfckpt_background")
    def sync(self) -> None:
        """Wait for a background save to finish.

        Raises:
            SaveError: the background save failed.
        """
        self._tfckpt_background.finish()
        super().sync()

    @in_turn("_tfckpt_background")
    def _write(self, file_prefix: Any, options: Any = None) -> str:
        # TensorFlow's CheckpointManager calls this.
        prefix = eager_prefix(file_prefix, "file_prefix")
        if prefix is None:
            _drop_record(file_prefix)
            return super()._write(file_prefix, options)  # type: ignore[no-any-return]
        self._tfckpt_background.finish()
        self._tfckpt_save(prefix, absolute_prefix(prefix), options, SaveOptions(files_of(prefix)))
        return prefix

    def _tfckpt_save(
        self,
        prefix: str,
        target: str,
        options: Any,
        save_options: SaveOptions,
        metadata: RecordMetadata | None = None,
        *,
        first: Callable[[], object] | None = None,
        then: Callable[[], object] | None = None,
        undo: Callable[[], object] | None = None,
    ) -> None:
        """Take a snapshot now, and write it now or in the background.

        Args:
            prefix: the path as the caller spells it, for messages and callbacks.
            target: the same path, absolute.
            options: ``tf.train.CheckpointOptions``.
            save_options: how to save.
            metadata: what the commit record says besides the values.
            first: called before the snapshot; advances counters that are saved too.
            then: called after the commit, by the thread that wrote.
            undo: called by the thread that wrote if the save fails before the commit.
        """
        with (
            _undo_on_error(undo),
            saving(self._tfckpt_workers(), meetings=2) as agreement,
            live_objects(),
        ):
            if first is not None:
                first()
            in_background = options is not None and options.experimental_enable_async_checkpoint
            options = synchronous(options)
            callbacks = options.experimental_write_callbacks or ()
            options.experimental_write_callbacks = None
            with as_save_errors(prefix):
                if agreement.workers is not None:
                    agreement.same(self._tfckpt_known.live(*self._tfckpt_objects()).inventory)
                snapshot = self._tfckpt_known.snapshot(
                    self._saver,
                    *self._tfckpt_objects(),
                    leave_out=save_options.on_unsavable == "warn",
                    by_tensorflow=by_tensorflow(options),
                )
                metadata = completed_metadata(metadata, snapshot, self._tfckpt_lineage, target)
            agreement.meet(None)

        in_background = in_background and not snapshot.savers  # these write live objects directly
        if in_background:
            save_options = dataclasses.replace(save_options, chunk_sizes=BACKGROUND)

        def commit() -> None:
            # Registered savers read live objects while they write.
            with (
                _undo_on_error(undo),
                live_objects() if snapshot.savers else contextlib.nullcontext(),
            ):
                write(target, snapshot, options, save_options, metadata)
            if then is not None:
                then()
            run_callbacks(callbacks, prefix)

        work = agreement.by_chief(commit, undo, snapshot.live.inventory)
        if in_background:
            self._tfckpt_background.start(work)
        else:
            work()

    def _tfckpt_workers(self) -> Workers | None:
        """The workers that make the same calls; None for a single process."""
        return workers_among(*self._tfckpt_objects())

    @property
    def _tfckpt_lineage(self) -> Lineage:
        """Where the values of the objects come from."""
        found: Lineage = self.__dict__.setdefault("_tfckpt_from", Lineage())
        return found

    @_tfckpt_lineage.setter
    def _tfckpt_lineage(self, lineage: Lineage) -> None:
        self.__dict__["_tfckpt_from"] = lineage

    def _tfckpt_comes_from(self, prepared: Prepared) -> Callable[[], None]:
        """Record the restore in the lineage; returns a function that undoes that."""
        before = self._tfckpt_lineage
        self._tfckpt_lineage = before.after(prepared)
        return partial(setattr, self, "_tfckpt_lineage", before)

    @property
    def _tfckpt_known(self) -> NameCache:
        if "_tfckpt_names" not in self.__dict__:
            self.__dict__["_tfckpt_names"] = NameCache(keep=not isinstance(self._root, weakref.ref))
        return self.__dict__["_tfckpt_names"]  # type: ignore[no-any-return]

    @property
    def _tfckpt_background(self) -> Background:
        if "_tfckpt_saving" not in self.__dict__:  # not a tracked attribute
            self.__dict__["_tfckpt_saving"] = Background()
        return self.__dict__["_tfckpt_saving"]  # type: ignore[no-any-return]

    @in_turn("_tfckpt_background")
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
        self._tfckpt_background.failure()
        self._maybe_create_save_counter()
        if prefix is None:
            return super().read(None, options)
        return self._tfckpt_restore(prefix, RESTORE, options)

    @in_turn("_tfckpt_background")
    def read(self, save_path: Any, options: Any = None) -> Any:
        """Restore from what ``write`` wrote: like ``restore``, but without ``save_counter``."""
        prefix = eager_source(save_path, "read")
        if prefix is None:
            return super().read(save_path, options)
        self._tfckpt_background.failure()
        return self._tfckpt_restore(prefix, _READ, options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == EXTRA:
            raise NamingError(f"the keyword {EXTRA!r} is reserved; use another keyword")
        if type(self) is Checkpoint and "_saver" in self.__dict__ and name[0] != "_":
            check_attribute(name, value)
        super().__setattr__(name, value)
        deferred = self.__dict__.get("_tfckpt_deferred")
        if deferred is not None and self._root is None:
            deferred.take(name, getattr(self, name))

    def _tfckpt_restore(
        self,
        prefix: str,
        policy: Policy,
        options: Any,
        workers: Restoring | None = None,
        *,
        returned: bool = True,
    ) -> LoadStatus:
        """Restore, in step with the other workers if there are any."""
        with adding_advice(call := PolicyCall.of(prefix, *self._tfckpt_objects())):
            status = restore(self, prefix, policy, options, workers)
        log_restore(status, call, self._tfckpt_known.logged, returned=returned)
        return status

    def _tfckpt_objects(self) -> tuple[dict[str, Any], Any]:
        """The objects by keyword, and the root object."""
        if self._root is None:
            return dict(tf.train.TrackableView.children(self)), None
        root = self._root() if isinstance(self._root, weakref.ref) else self._root
        attached = {name: ref for name, ref in self._attached_dependencies if name != "root"}
        return attached, root


@contextlib.contextmanager
def _undo_on_error(undo: Callable[[], object] | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if undo is not None:
            undo()
        raise


def _drop_record(file_prefix: Any) -> None:
    """Remove an older record of that name, which does not describe what TensorFlow writes now."""
    if isinstance(file_prefix, (str, os.PathLike)):
        with contextlib.suppress(FileNotFoundError):
            files_of(os.fspath(file_prefix)).remove(path_of(os.fspath(file_prefix)))
