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
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.gc_pause import gc_paused
from tfckpt.errors import CheckpointNotFoundError, NamingError, NotInstalledError, SaveError
from tfckpt.live import generators, outputs
from tfckpt.live.advice import PolicyCall, adding_advice, log_once, log_restore, other_keyword
from tfckpt.live.arguments import OBJECTS, OWN, RESERVED, check_arguments, check_attribute
from tfckpt.live.by_tensorflow import readable
from tfckpt.live.inventory import collect, gather
from tfckpt.live.late import (
    Late,
    assigned_by_tensorflow,
    created_since,
    is_tensor,
    may_come,
    no_values_at_all,
    not_there_yet,
    nothing_left,
    refuse_waiting,
    restore_rest,
)
from tfckpt.live.lineage import Lineage
from tfckpt.live.paths import absolute_prefix, also, eager_prefix, eager_source
from tfckpt.live.private.tensorflow import Trackable
from tfckpt.live.rebuild import builds_of, trainables
from tfckpt.live.restore import RestoreSource, assign, permitted, prepare
from tfckpt.live.save import (
    Destination,
    NumberedDestination,
    as_save_errors,
    by_tensorflow,
    disk_space,
    frozen_values,
    run_callbacks,
    synchronous,
    write,
)
from tfckpt.live.snapshot import take
from tfckpt.live.status import LoadStatus, may_fail_an_assertion
from tfckpt.live.turns import Background, in_turn, live_objects
from tfckpt.live.variables import as_int, is_variable
from tfckpt.live.workers import Together, workers_among
from tfckpt.policy import Policy
from tfckpt.stored.bundles.keys import OBJECT_GRAPH
from tfckpt.stored.bundles.write import BACKGROUND, FOREGROUND
from tfckpt.stored.commits.commit import saving
from tfckpt.stored.commits.record_file import CommitRecord, path_of
from tfckpt.stored.io.files import files_of, lies_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfckpt.live.inventory import Live
    from tfckpt.live.restore import Prepared
    from tfckpt.live.workers import Workers

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
        check_arguments(root, kwargs, OBJECTS)
        super().__init__(root, **kwargs)
        self._background = Background()
        self._lineage = Lineage()
        self._logged = set[str]()
        self._late: Late | None = None
        self._resumes_in = ""  # directory from which a restore goes on with the random generators

    @in_turn
    def save(self, file_prefix: Any, options: Any = None, *, probe: Any = None) -> str:
        """Save under the next number that no file next to ``file_prefix`` uses.

        Args:
            file_prefix: ``directory/ckpt`` becomes ``directory/ckpt-12``.
            options: ``tf.train.CheckpointOptions``. With ``experimental_enable_async_checkpoint``
                the files are written in the background and are complete once ``sync`` returns.
            probe: a small batch: the record keeps what the model returns for it, which
                ``report.check_outputs()`` and ``tfckpt check`` compare. Of several models, a dict
                with a batch of each.

        Returns:
            The path, without ``.index``. The checkpoint is complete and on disk.

        Raises:
            InUseError: another process saves into that directory.
            SaveError: the checkpoint, or the previous one in the background, could not be written.
                Its files are removed and no counter has changed.
        """
        given = eager_prefix(file_prefix, "file_prefix")
        if given is None:
            return super().save(file_prefix, options)  # type: ignore[no-any-return]
        prefix = absolute_prefix(given)
        to = NumberedDestination(given, prefix, files_of(prefix))
        save = self._save(to, CommitRecord(), options, probe)
        return self._background.run(save)  # type: ignore[no-any-return]

    def write(self, file_prefix: Any, options: Any = None, *, probe: Any = None) -> str:
        """Write under exactly this name, without a number and without the state file.

        An existing checkpoint of that name is replaced atomically: readers see the old or the new.
        In an object store it is a SaveError: use ``save``, which takes a number.
        """
        return self._write(file_prefix, options, probe)

    @in_turn
    def sync(self) -> None:
        """Wait for a background save to finish.

        Raises:
            SaveError: the background save failed.
        """
        self._background.finish()
        super().sync()

    @in_turn
    def _write(self, file_prefix: Any, options: Any = None, probe: Any = None) -> str:
        # TensorFlow's CheckpointManager calls this.
        given = eager_prefix(file_prefix, "file_prefix")
        if given is None:
            _drop_record(file_prefix)
            return super()._write(file_prefix, options)  # type: ignore[no-any-return]
        to = Destination(given, absolute_prefix(given), files_of(given))
        save = self._save(to, CommitRecord(), options, probe)
        return self._background.run(save)  # type: ignore[no-any-return]

    def _save(
        self, to: Destination, record: CommitRecord, options: Any, probe: Any = None
    ) -> Iterator[tuple[str, bool]]:
        """A save, from its number to its end; from its ``yield`` on, training may go on.

        That is the path, and whether what follows may happen in a thread; nothing if no save is
        due. A number that is not used is given back, and so are the counters.
        """
        wanted = options is not None and options.experimental_enable_async_checkpoint
        options = synchronous(options)
        callbacks = options.experimental_write_callbacks or ()
        options.experimental_write_callbacks = None
        with (
            Together(self._workers(), "save", SaveError) as workers,
            contextlib.ExitStack() as undo,
        ):
            if (number := to.take_number(self, workers, undo)) is None:
                return
            if number.counted:
                to.path, to.prefix = (f"{path}-{number.value}" for path in (to.path, to.prefix))
            with live_objects(), gc_paused(), as_save_errors(to.path):
                if number.counted and to.counts:  # it is saved, too
                    undo.callback(self.save_counter.assign, as_int(self.save_counter))
                    self.save_counter.assign(number.counted)
                objects = gather(*self._objects())
                if objects.plain:
                    refuse_waiting(objects.live)
                workers.gathered(objects)
                snapshot = take(
                    self._saver,
                    objects,
                    leave_out=to.on_unsavable == "warn",
                    logged=self._logged,
                    by_tensorflow=by_tensorflow(options),
                )
                if to.before is not None:
                    to.frozen = frozen_values(snapshot.live)
                may_train = frozenset(id(v) for each in objects.layers for v in trainables(each))
                record.run = self._lineage.run_of(to.prefix, begin=True)
                record.lineage = self._lineage.lineage(os.path.split(to.prefix)[0])
                if probe is not None:
                    record.outputs = outputs.record(objects.live, probe, workers.workers)
                if workers.chief:
                    to.describe(record)
                (written, *_) = workers.exchange("snapshot", to.prefix)
            # Registered savers read live objects while they write.
            in_background = wanted and not snapshot.savers
            to.chunk = BACKGROUND if in_background else FOREGROUND
            yield to.path, in_background
            with workers.chief_writes(snapshot):
                if workers.chief:
                    with (
                        live_objects() if snapshot.savers else contextlib.nullcontext(),
                        as_save_errors(to.prefix, partial(disk_space, snapshot, to)),
                        saving(to.prefix, to.files, number.mark) as commit,
                    ):
                        record.builds = builds_of(snapshot.live, may_train)
                        index = write(snapshot, options, to, record, commit)
                        commit.commit(record, index)
                    undo.pop_all()
                    to.committed(record)
                    run_callbacks(callbacks, to.path)
            undo.pop_all()
            if written != to.prefix:
                log_once(self._logged, *to.is_elsewhere(written))

    @in_turn
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
        self._background.failure()
        _ = self.save_counter  # makes it
        if prefix is None:
            return super().read(None, options)
        return self._restore(prefix, RESTORE, options)

    @in_turn
    def read(self, save_path: Any, options: Any = None) -> Any:
        """Restore from what ``write`` wrote: like ``restore``, but without ``save_counter``."""
        prefix = eager_source(save_path, "read")
        if prefix is None:
            return super().read(save_path, options)
        self._background.failure()
        return self._restore(prefix, _READ, options)

    def _restore(
        self,
        prefix: str,
        policy: Policy,
        options: Any = None,
        workers: Together | None = None,
        *,
        returned: bool = True,
    ) -> LoadStatus:
        """Plan, then assign existing variables; TensorFlow waits for those that come later.

        ``returned`` is whether the caller gets the status and can assert on it.
        """
        objects, root = self._objects()
        skip_slots = options is not None and options.experimental_skip_slot_variables
        workers = workers or Together(self._workers())
        with adding_advice(call := PolicyCall.of(prefix, objects, root)), workers:
            source = RestoreSource(prefix, policy)
            prepared = prepare([source], objects, root, skip_slots=skip_slots, workers=workers)
            with contextlib.ExitStack() as stack:
                try:
                    ready = stack.enter_context(prepared)
                except CheckpointNotFoundError as error:
                    raise also(error, tf.errors.NotFoundError(None, None, "")) from None
                plain = bool(ready.stored.graph) and not ready.live.keras_roots
                if plain and not nothing_left(ready):
                    status = self._assign_without_keras(ready, options, workers)
                else:
                    status = self._assign(ready, options, workers)
        log_restore(status, call, self._logged, returned=returned)
        return status

    def _assign(self, prepared: Prepared, options: Any, workers: Together) -> LoadStatus:
        late = Late(prepared, self._objects()[0], options, self._live)
        waiting = bool(late.objects) or no_values_at_all(prepared)
        prepared = permitted(prepared, may_come=waiting)
        undo = assign(prepared, workers)
        with assigned_by_tensorflow(undo, prepared.stored.prefix):
            later = late.read(prepared)
        if not may_fail_an_assertion(prepared.plan):
            undo.forget()
        self._late = late
        log_once(self._logged, prepared.stored.prefix, other_keyword(prepared))
        log_once(self._logged, prepared.stored.prefix, not_there_yet(prepared, late))
        forget = self._comes_from(prepared)

        def created() -> list[str]:
            restored = late.created()
            return [n for n in created_since(prepared.live, self._live()) if n not in restored]

        return LoadStatus(prepared.report(), undo, forget, later=later, late=late, created=created)

    def _assign_without_keras(
        self, prepared: Prepared, options: Any, workers: Together
    ) -> LoadStatus:
        """TensorFlow restores tables and iterators, and waits for what may be created later."""
        prepared = permitted(prepared, may_come=may_come(prepared, *self._objects()))
        live, assignments = prepared.live.variables, prepared.plan.assignments
        # A table chooses its own keys.
        by_tensorflow = [s.stored for s in assignments if s.stored and s.stored.shape is None]
        prepared.stored.values.verify([*(e.key for e in by_tensorflow if e.nbytes), OBJECT_GRAPH])
        steps = [s for s in assignments if is_variable(live[s.name]) and is_tensor(s)]
        path = readable(prepared.stored.prefix, without=[s.stored.key for s in steps if s.stored])
        undo = assign(prepared, workers, objects=False)
        restored = [step.name for step in steps]
        others = live.keys() - set(restored)
        undo.watch(v for name, v in live.items() if name in others and is_variable(v))
        with assigned_by_tensorflow(undo, prepared.stored.prefix):
            read = partial(self._saver.restore, path, synchronous(options))
            later = restore_rest(read, live, restored)
            workers.exchange("rest", last=True)
        undo.resolve()
        self._late = None  # later values come from this checkpoint
        return LoadStatus(prepared.report(), undo, self._comes_from(prepared), later=later)

    def _comes_from(self, prepared: Prepared) -> Callable[[], None]:
        """Record the restore, and go on with its random generators; returns what undoes that."""
        drawn = dict[str, Any]()
        record, prefix = prepared.stored.record, prepared.stored.prefix
        saved = record.training.get(generators.KEY) if record and self._resumes_in else None
        # Each of several workers draws from its own.
        if saved and lies_in(prefix, self._resumes_in) and self._workers() is None:
            drawn = generators.take()
            generators.restore(saved, prefix)
        forget = self._lineage.add(prepared)

        def undo() -> None:
            forget()
            generators.put(drawn)

        return undo

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN and isinstance(value, Trackable):
            raise NamingError(RESERVED.format(name=name))
        if type(self) is Checkpoint and "_saver" in vars(self) and name[0] != "_":
            check_attribute(name, value)
        super().__setattr__(name, value)
        late = self.__dict__.get("_late")
        if late is not None and self._root is None:
            late.take(name, getattr(self, name))

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        """Saves and restores of other threads wait while the body runs."""
        return self._background.turn()

    def _objects(self) -> tuple[dict[str, Any], Any]:
        """The objects by keyword, and the root object."""
        root = self._root
        if root is None:
            return dict(tf.train.TrackableView.children(self)), None
        objects = {name: ref for name, ref in self._attached_dependencies if name != "root"}
        return objects, root() if isinstance(root, weakref.ref) else root

    def _live(self) -> Live:
        """The current values of the objects."""
        with live_objects():
            return collect(*self._objects())

    def _workers(self) -> Workers | None:
        """The workers that make the same calls; None for a single process."""
        return workers_among(*self._objects())


def _drop_record(file_prefix: Any) -> None:
    """Remove an older record of that name, which does not describe what TensorFlow writes now."""
    if isinstance(file_prefix, (str, os.PathLike)):
        with contextlib.suppress(OSError, NotInstalledError):
            files_of(os.fspath(file_prefix)).remove(path_of(os.fspath(file_prefix)))
