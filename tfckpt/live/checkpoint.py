"""``tfckpt.Checkpoint``: TensorFlow's constructor, methods and files, safer underneath.

It is a ``tf.train.Checkpoint``, so that whatever takes one takes it too, and what it writes is an
ordinary checkpoint. Four things are different. A save has every variable, is on disk when ``save``
returns, and is told by its commit record. A restore matches by canonical name, is checked against
the structure, and happens completely or not at all.

Graph mode (``tf.compat.v1``) is TensorFlow's own business as before.
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
from tfckpt.live.advice import PolicyCall, advising, say
from tfckpt.live.distribution.agreement import saving, workers_among
from tfckpt.live.drop_in import restore
from tfckpt.live.io.remote_files import files_of
from tfckpt.live.io.tf_paths import eager_prefix, eager_source, place_of
from tfckpt.live.objects.thread_lock import live_objects
from tfckpt.live.restoring.lineage import Lineage
from tfckpt.live.saving.background import Background, in_turn
from tfckpt.live.saving.coverage import EXTRA
from tfckpt.live.saving.name_cache import NameCache
from tfckpt.live.saving.save import (
    SaveOptions,
    about_now,
    failing_as_save,
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
# What is missing or left over is for the status's assertions to judge, as in TensorFlow.
_READ = Policy(name="tfckpt.Checkpoint.read", api="read", expect_partial=True)
RESTORE = Policy(name="tfckpt.Checkpoint.restore", expect_partial=True)


class Checkpoint(tf.train.Checkpoint):  # type: ignore[misc]
    r"""Saves and restores models, optimizers and other trackables, completely or not at all.

    Args:
        root: one object whose children are the checkpoint's, as in ``tf.train.Checkpoint``.
        **kwargs: objects by keyword: Keras models and optimizers of either flavour, variables,
            ``tf.Module``\ s, iterators, lists and dicts of them.

    Raises:
        UntrackedError: an argument is a plain number, a function or the like. So is an attribute
            that is set to a number later; classes of your own may have such attributes.
        ValueError: ``root`` has another child of that name.

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
        """Save under the next number that no file beside ``file_prefix`` has used.

        Args:
            file_prefix: ``directory/ckpt`` becomes ``directory/ckpt-12``.
            options: ``tf.train.CheckpointOptions``. With ``experimental_enable_async_checkpoint``
                the files are written in the background: they are there once ``sync`` returns.

        Returns:
            The path, without ``.index``. The checkpoint is complete and on disk.

        Raises:
            InUseError: another process saves into that directory.
            SaveError: it could not be written, or, in the background, the one before could not; no
                file of that is left, no counter has moved.
        """
        prefix = eager_prefix(file_prefix, "file_prefix")
        if prefix is None:
            return super().save(file_prefix, options)  # type: ignore[no-any-return]
        with saving(self._tfckpt_workers()) as agreement:
            self._tfckpt_background.finish()
            place, counter = place_of(prefix), self.save_counter
            terms, before = SaveOptions(files_of(place)), as_int(counter)
            directory, name = os.path.split(place)
            with failing_as_save(prefix), contextlib.ExitStack() as taken:
                if agreement.chief:
                    tidied = claim(directory, name, terms.files)
                    above = max(before, tidied, last_in_order(place, terms.files))
                    taken.callback((number := Number(place, above, terms.files)).give_back)
                value = agreement.meet(number.value if agreement.chief else None)[0]
                give_back = taken.pop_all().close

        def undo() -> None:
            give_back()
            counter.assign(before)

        def then() -> None:
            give_back()
            write_state(directory, f"{name}-{value}", terms.files)

        counted = partial(counter.assign, value)
        path, place = (f"{where}-{value}" for where in (prefix, place))
        self._tfckpt_save(path, place, options, terms, first=counted, then=then, undo=undo)
        return path

    def write(self, file_prefix: Any, options: Any = None) -> str:
        """Write under exactly this name: as ``save``, without number and state file.

        A checkpoint of that name is replaced at one moment: readers see the old one or the new.
        """
        return self._write(file_prefix, options)

    @in_turn("_tfckpt_background")
    def sync(self) -> None:
        """Wait for a save in the background.

        Raises:
            SaveError: it failed.
        """
        self._tfckpt_background.finish()
        super().sync()

    @in_turn("_tfckpt_background")
    def _write(self, file_prefix: Any, options: Any = None) -> str:
        # TensorFlow's CheckpointManager comes in here.
        prefix = eager_prefix(file_prefix, "file_prefix")
        if prefix is None:
            _drop_record(file_prefix)
            return super()._write(file_prefix, options)  # type: ignore[no-any-return]
        self._tfckpt_background.finish()
        self._tfckpt_save(prefix, place_of(prefix), options, SaveOptions(files_of(prefix)))
        return prefix

    def _tfckpt_save(
        self,
        prefix: str,
        place: str,
        options: Any,
        terms: SaveOptions,
        about: RecordMetadata | None = None,
        *,
        first: Callable[[], object] | None = None,
        then: Callable[[], object] | None = None,
        undo: Callable[[], object] | None = None,
    ) -> None:
        """Take a snapshot now, and write it now or in the background.

        Args:
            prefix: where to, as the caller spells it.
            place: the same, whatever the working directory becomes.
            options: ``tf.train.CheckpointOptions``.
            terms: how to save.
            about: what the record says.
            first: moves the counters that are saved, too.
            then: called after the commit, by the thread that wrote.
            undo: called where it failed before the commit, by the thread that tried.
        """
        with _or(undo), saving(self._tfckpt_workers(), meetings=2) as agreement, live_objects():
            if first is not None:
                first()
            in_background = options is not None and options.experimental_enable_async_checkpoint
            options = synchronous(options)
            callbacks = options.experimental_write_callbacks or ()
            options.experimental_write_callbacks = None
            with failing_as_save(prefix):
                if agreement.workers is not None:
                    agreement.same(self._tfckpt_known.live(*self._tfckpt_objects()).inventory)
                snapshot = self._tfckpt_known.snapshot(
                    self._saver,
                    *self._tfckpt_objects(),
                    leave_out=terms.on_unsavable == "warn",
                    by_tensorflow=by_tensorflow(options),
                )
                about = about_now(about, snapshot, self._tfckpt_lineage, place)
            agreement.meet(None)

        in_background = in_background and not snapshot.savers  # they write live objects themselves
        if in_background:
            terms = dataclasses.replace(terms, pace=BACKGROUND)

        def commit() -> None:
            # Savers of the user's own read what they write.
            with _or(undo), live_objects() if snapshot.savers else contextlib.nullcontext():
                write(place, snapshot, options, terms, about)
            if then is not None:
                then()
            run_callbacks(callbacks, prefix)

        work = agreement.by_chief(commit, undo, snapshot.live.inventory)
        if in_background:
            self._tfckpt_background.start(work)
        else:
            work()

    def _tfckpt_workers(self) -> Workers | None:
        """The workers that make the same calls, None where this process is alone."""
        return workers_among(*self._tfckpt_objects())

    @property
    def _tfckpt_lineage(self) -> Lineage:
        """What was restored."""
        found: Lineage = self.__dict__.setdefault("_tfckpt_from", Lineage())
        return found

    @_tfckpt_lineage.setter
    def _tfckpt_lineage(self, lineage: Lineage) -> None:
        self.__dict__["_tfckpt_from"] = lineage

    def _tfckpt_comes_from(self, prepared: Prepared) -> Callable[[], None]:
        """Note what was restored; returns what forgets it."""
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
        if "_tfckpt_saving" not in self.__dict__:  # past the tracking of attributes
            self.__dict__["_tfckpt_saving"] = Background()
        return self.__dict__["_tfckpt_saving"]  # type: ignore[no-any-return]

    @in_turn("_tfckpt_background")
    def restore(self, save_path: Any, options: Any = None) -> Any:
        """Restore from what ``save`` wrote, completely or not at all.

        Args:
            save_path: the path that ``save`` returned, or the directory of a SavedModel. None means
                that there is none, as from ``tf.train.latest_checkpoint``: a warning says so.
            options: ``tf.train.CheckpointOptions``.

        Returns:
            A status with TensorFlow's four assertions, and ``report``.

        Raises:
            CheckpointNotFoundError: there is no checkpoint of that name.
            DamagedCheckpointError: a needed value cannot be trusted.
            NotBuiltError: a Keras object has no variables yet; the message says how to build it.
            RefusedError: shapes or dtypes differ, somebody else's weights stand at a layer's
                position, or nothing would be restored.
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
        """Restore from what ``write`` wrote: as ``restore``, without ``save_counter``."""
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
        late = self.__dict__.get("_tfckpt_late")
        if late is not None and self._root is None:
            late.take(name, getattr(self, name))

    def _tfckpt_restore(
        self,
        prefix: str,
        policy: Policy,
        options: Any,
        workers: Restoring | None = None,
        *,
        returned: bool = True,
    ) -> LoadStatus:
        """Restore, together with other workers where there are any."""
        with advising(call := PolicyCall.of(prefix, *self._tfckpt_objects())):
            status = restore(self, prefix, policy, options, workers)
        say(status, call, self._tfckpt_known.told, returned=returned)
        return status

    def _tfckpt_objects(self) -> tuple[dict[str, Any], Any]:
        """The objects by keyword, and the root object."""
        if self._root is None:
            return dict(tf.train.TrackableView.children(self)), None
        root = self._root() if isinstance(self._root, weakref.ref) else self._root
        attached = {name: ref for name, ref in self._attached_dependencies if name != "root"}
        return attached, root


@contextlib.contextmanager
def _or(undo: Callable[[], object] | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if undo is not None:
            undo()
        raise


def _drop_record(file_prefix: Any) -> None:
    """Where TensorFlow writes alone, an older record of that name would vouch for it: remove it."""
    if isinstance(file_prefix, (str, os.PathLike)):
        with contextlib.suppress(FileNotFoundError):
            files_of(os.fspath(file_prefix)).remove(path_of(os.fspath(file_prefix)))
