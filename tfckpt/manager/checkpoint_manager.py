"""``tfckpt.CheckpointManager``: a drop-in for TensorFlow's, whose saves are commits.

Constructor, methods, properties and return types are TensorFlow's. The differences, each of which
prevents the loss of a run: checkpoints are found by listing the directory, not from the state file;
a number is never used twice; a failed save changes no counter, so the retry does save; checkpoints
of plain TensorFlow are listed and restored, but never deleted.
"""

from __future__ import annotations

import copy
import os
import time
from typing import TYPE_CHECKING, Any, NoReturn

from absl import logging

from tfckpt.errors import CheckpointError, DamagedCheckpointError, SaveError, TfckptError
from tfckpt.live import generators
from tfckpt.live.checkpoint import (
    RESTORE,
    Checkpoint,
    CheckpointOptions,
    TensorFlowManager,
    executing_eagerly,
)
from tfckpt.live.restore import warn_of_fallback
from tfckpt.live.save import Destination, as_save_errors, frozen_values, needed
from tfckpt.live.turns import in_turn
from tfckpt.live.variables import as_int
from tfckpt.live.workers import Together, agreed, attempts
from tfckpt.manager import arguments
from tfckpt.manager.directory import RunDirectory
from tfckpt.stored.commits.numbering import take_number
from tfckpt.stored.commits.record_file import CommitRecord
from tfckpt.stored.io.explain import look
from tfckpt.stored.io.files import absolute, files_of, join

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Generator, Mapping, Sequence

    from tfckpt.manager.directory import SaveReport
    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Keep
    from tfckpt.stored.commits.numbering import SaveNumber


class CheckpointManager(TensorFlowManager):  # type: ignore[misc]
    """Numbers, commits, keeps and deletes the checkpoints of a run.

    Args:
        checkpoint: a ``tfckpt.Checkpoint``.
        directory: where the checkpoints are saved; created by the first save.
        max_to_keep: how many of the newest to keep; None keeps all.
        keep_checkpoint_every_n_hours: of those that age out, one is kept per this many hours.
        checkpoint_name: file name of the checkpoints, before the number.
        step_counter: variable with the current step, for ``checkpoint_interval``.
        checkpoint_interval: minimum number of steps between two saves.
        init_fn: called by ``restore_or_initialize`` if there is no checkpoint.
        last_checkpoint_step: the step that ``checkpoint_interval`` counts from.
        keep: further rules, as in YAML: ``[{"best": 2, "monitor": "val_loss", "mode": "min"}]``.
            What any rule keeps is kept; without rules, everything is.
        durable: whether a save waits until it would survive a loss of power.
        enable_async: whether files are written in the background.
        if_busy: while the previous save is being written, ``wait`` for it or ``skip`` this one.
        on_nonfinite: what to do if weights or slots have an infinity or a NaN: ``warn``, ``save``
            silently, or ``refuse`` to save.
        on_unsavable: what to do if an object cannot be saved, such as an iterator over a generator:
            ``warn`` and leave it out, or ``error``.
        include: ``all``, or ``trainable``: what does not train is written once, into a file that
            the saves after it share, as long as it is unchanged.
        api: ``save``, or ``write``: files without ``save_counter``, as those of
            ``Checkpoint.write``.
        on_saved: called with a :class:`SaveReport` after each save; see the attribute.
        random_generators: whether a save keeps the state of the global random generators of Python,
            NumPy, TensorFlow and Keras, and a restore from this directory goes on with it.

    Attributes:
        on_saved: called with a :class:`SaveReport` when a checkpoint is complete and the old ones
            are deleted, in the thread that wrote it: with ``enable_async`` not the training's. What
            it raises is logged as a warning, and fails no save. Of several workers, the chief calls
            it.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: ``max_to_keep`` is not positive, ``checkpoint_name`` is not a plain file name, a
            rule or another argument is not valid, or an interval has no ``step_counter``.

    >>> import tempfile, tensorflow as tf, tfckpt
    >>> checkpoint = tfckpt.Checkpoint(step=tf.Variable(0))
    >>> manager = tfckpt.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2)
    >>> [manager.save()[-6:] for _ in range(3)]
    ['ckpt-1', 'ckpt-2', 'ckpt-3']
    >>> [path[-6:] for path in manager.checkpoints]
    ['ckpt-2', 'ckpt-3']
    """

    def __new__(cls, checkpoint: Any, directory: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns TensorFlow's own manager in graph mode."""
        if not executing_eagerly():
            return TensorFlowManager(checkpoint, directory, *args, **kwargs)
        arguments.check_keywords(cls, kwargs)
        return super().__new__(cls)

    def __init__(  # noqa: PLR0917 (TensorFlow's signature)
        self,
        checkpoint: Checkpoint,
        directory: Any,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], object] | None = None,
        last_checkpoint_step: int | None = None,
        *,
        keep: Sequence[Keep | Mapping[str, Any]] = (),
        durable: bool = True,
        enable_async: bool = False,
        if_busy: str = "wait",
        on_nonfinite: str = "warn",
        on_unsavable: str = "warn",
        include: str = "all",
        api: str = "save",
        on_saved: Callable[[SaveReport], object] | None = None,
        random_generators: bool = True,
    ) -> None:
        # Sets what TensorFlow's constructor sets, which would trust the state file.
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                "the first argument must be a tfckpt.Checkpoint, such as "
                f"tfckpt.Checkpoint(model=model), found {type(checkpoint).__name__}"
            )
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError("checkpoint_interval requires a step_counter")
        self._checkpoint = checkpoint
        self._given = os.fspath(directory)
        path = absolute(self._given)
        files = files_of(self._given, durable=durable)
        words = ("save", "warn", "refuse")
        self._on_nonfinite = arguments.one_of("on_nonfinite", on_nonfinite, words)
        self._on_unsavable = arguments.one_of("on_unsavable", on_unsavable, ("warn", "error"))
        self._sound = set[tuple[str, float, str]]()  # of shared files, what has been checked
        name = arguments.checkpoint_name(checkpoint_name)
        rules = arguments.rules(max_to_keep, keep_checkpoint_every_n_hours, keep)
        self._files = RunDirectory(
            path, name, files, rules=rules, checkpoint=checkpoint, given=self._given
        )
        self._trainable = arguments.included(include, files) == "trainable"
        self._counts = arguments.one_of("api", api, ("save", "write")) == "save"
        self._enable_async = enable_async
        self._if_busy = arguments.one_of("if_busy", if_busy, ("wait", "skip"))
        self._step_counter = step_counter
        self._checkpoint_interval = checkpoint_interval
        self._init_fn = init_fn
        self._last_checkpoint_step = last_checkpoint_step
        self.on_saved = on_saved
        self._random_generators = random_generators
        checkpoint._resumes_in = path if random_generators else ""

    @property
    def _directory(self) -> str:
        # TensorFlow's `directory` returns it: as given, until the process works elsewhere.
        return self._given if absolute(self._given) == self._files.path else self._files.path

    @property
    def _checkpoint_prefix(self) -> str:
        return join(self._directory, self._files.checkpoint_name)

    @property
    def _latest_checkpoint(self) -> str | None:
        # What TensorFlow's `latest_checkpoint` returns.
        return next(reversed(self.checkpoints), None)

    @property
    def checkpoints(self) -> list[str]:
        """The paths of all checkpoints of that name in the directory, oldest first."""
        return [self._as_given(each.prefix) for each in self._files.checkpoints()]

    def _as_given(self, prefix: str) -> str:
        """The path of a checkpoint, relative if the caller's directory was."""
        return join(self._directory, os.path.split(prefix)[1])

    @in_turn
    def save(
        self,
        checkpoint_number: Any = None,
        check_interval: bool = True,
        options: Any = None,
        *,
        step: Any = None,
        epoch: Any = None,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        probe: Any = None,
    ) -> str | None:
        """Save, then delete the checkpoints that no rule keeps.

        Args:
            checkpoint_number: a number to use instead of the next one, not below an existing one.
            check_interval: whether to skip this save if ``checkpoint_interval`` says so.
            options: ``tf.train.CheckpointOptions``.
            step: of training; by default the optimizer's iterations.
            epoch: number of finished epochs.
            metrics: measured at this step; ``keep: best`` compares them.
            metadata: anything else, as JSON values of at most 64 KiB; ``tfckpt inspect`` shows it.
            probe: a small batch, as for :meth:`tfckpt.Checkpoint.save`.

        Returns:
            The path; None if no save was due. The checkpoint is complete and on disk; with
            ``enable_async``, it is once ``sync`` or the next save returns.

        Raises:
            InUseError: another process saves into the directory.
            SaveError: the save failed, an argument cannot be written into a record, the number is
                below an existing one, or the previous save in the background failed. No file of the
                failed save is left, no counter has changed, and the next call saves.
        """
        record = CommitRecord(
            step=step, epoch=epoch, metrics=metrics or {}, metadata=metadata or {}
        )
        if self._random_generators:
            record.training = {generators.KEY: generators.take()}
        return self.save_as(record, checkpoint_number, check_interval, options, probe)

    @in_turn
    def save_as(
        self,
        record: CommitRecord,
        checkpoint_number: Any = None,
        check_interval: bool = True,
        options: Any = None,
        probe: Any = None,
    ) -> str | None:
        """:meth:`save`, with everything that the record says besides the values."""
        if self._enable_async:
            options = copy.copy(options) if options is not None else CheckpointOptions()
            options.experimental_enable_async_checkpoint = True
        to = _ManagedDestination(self, record, checkpoint_number, check_interval)
        save = self._checkpoint._save(to, record, options, probe)
        return self._checkpoint._background.run(save)  # type: ignore[no-any-return]

    def set_model(self, model: Any) -> NoReturn:
        """Called by Keras if the manager itself is passed to ``fit`` as a callback.

        Raises:
            TfckptError: always.
        """
        raise TfckptError(
            "a manager is not a callback",
            hint=f"pass callbacks=[tfckpt.callbacks.resume(model, {self._given!r})] to `fit`",
        )

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        return self._checkpoint._turn()

    @in_turn
    def sync(self) -> None:
        """Wait for a background save, and write the state file if that has failed.

        Raises:
            SaveError: the background save failed.
        """
        super().sync()
        self._files.catch_up()

    def claim(self) -> None:
        """Lock the directory for this process, and check that a save is possible.

        Every save locks the directory; call this before a training to fail before it starts.

        Raises:
            InUseError: another process saves into the directory.
            SaveError: the directory cannot be created or written, or the disk has too little space.
        """
        with Together(self._checkpoint._workers(), "save", SaveError) as workers:
            if workers.chief:
                live = self._checkpoint._live()
                written = self._trainable and self._files.newest
                frozen = frozen_values(live) if written else frozenset[str]()
                self._files.claim_for(needed(live.inventory, frozen))
                self._files.mend_state()
            workers.exchange("claim")

    @property
    def best(self) -> str | None:
        """The path of the best checkpoint, by the first ``best`` rule; None if none is measured.

        Raises:
            TfckptError: no rule says by which metric.
        """
        found = self._files.best(*self._files.monitored)
        return self._as_given(found[0].prefix) if found else None

    def retention(self) -> Decision:
        """A dry run: what the rules keep and why, and what the next save deletes."""
        return self._files.retention()

    @in_turn
    def restore_or_initialize(self) -> str | None:
        """Restore the newest checkpoint that can be read, or call ``init_fn`` if there is none.

        Variables that the checkpoint does not have keep their values, as in TensorFlow; a warning
        names them, since no status is returned.

        Returns:
            The path restored from; None if there was no checkpoint.

        Raises:
            DamagedCheckpointError: there are checkpoints, but none can be read.
            RefusedError: the newest readable one does not match the objects.
        """
        checkpoint, rejected = self._checkpoint, list[str]()
        checkpoint._background.failure()
        if self._counts:
            _ = checkpoint.save_counter  # makes it
        candidates = agreed(
            checkpoint._workers(),
            self._restorable(rejected),
            lambda path: path and os.path.split(path)[1],
            lambda name: name and join(self._files.path, name),
        )
        for attempt in attempts(candidates):
            with attempt as (path, workers):
                checkpoint._restore(path, RESTORE, workers=workers, returned=False).silence()
                if self._checkpoint_interval is not None:
                    self._last_checkpoint_step = as_int(self._step_counter)
                warn_of_fallback(rejected, self._as_given(path))
                return self._as_given(path)
        found = look(self._directory, self._files.files)
        if found.notable:
            nothing = f"no checkpoint named {self._files.checkpoint_name!r} to restore"
            logging.warning("%s", "\n  ".join([nothing, *found.lines]))
        if self._init_fn is not None:
            self._init_fn()
        return None

    def _restorable(self, rejected: list[str]) -> Generator[str, None, None]:
        """The checkpoints to try, newest first; raises at the end if there were only others."""
        for path, why_not in self._files.restorable():
            reason = why_not
            if not reason:
                try:
                    yield path
                except CheckpointError as error:  # the next one may be readable
                    reason = str(error)
            rejected.append(reason)
        if rejected:
            raise DamagedCheckpointError(
                "none of the checkpoints can be read:\n  " + "\n  ".join(rejected),
                path=self._directory,
                hint="to start from scratch, use another directory",
            )


class _ManagedDestination(Destination):
    """Under the next number of a manager, or the caller's; then others are deleted."""

    def __init__(
        self, manager: CheckpointManager, record: CommitRecord, number: Any, check_interval: bool
    ) -> None:
        self._manager, self._directory = manager, manager._files
        super().__init__(manager._checkpoint_prefix, self._directory.prefix, manager._files.files)
        self.on_nonfinite, self.on_unsavable = manager._on_nonfinite, manager._on_unsavable
        self.sound, self.counts = manager._sound, manager._counts
        self._record, self._number, self._check_interval = record, number, check_interval
        self._began = time.monotonic()

    def take_number(
        self, checkpoint: Checkpoint, workers: Together, undo: contextlib.ExitStack
    ) -> SaveNumber | None:
        manager, background = self._manager, checkpoint._background
        chosen = arguments.checkpoint_number(self._number)
        arguments.check_record(self._record)
        if not background.busy:
            background.finish()  # raises the error of the last save
        interval, last = manager._checkpoint_interval, manager._last_checkpoint_step
        step = None if interval is None else as_int(manager._step_counter)
        if step is not None and last is not None:
            soon = self._check_interval and step < last + (interval or 0)
            if soon or step == last:
                return None
        if manager._if_busy == "wait":
            background.finish()
        number = None
        if workers.chief and background.busy:
            logging.info("save skipped: the previous one is still being written")
        elif workers.chief:
            with as_save_errors(self.path):
                counter = as_int(checkpoint.save_counter) if self.counts else 0
                number = take_number(self.prefix, self.files, counter, chosen)
            undo.callback(number.give_back)
        if (number := workers.number(number)) is not None:
            background.finish()  # of another worker than the chief
            undo.callback(setattr, manager, "_last_checkpoint_step", last)
            manager._last_checkpoint_step = step
            if manager._trainable and workers.chief:
                self.before = self._directory.newest
        return number

    def describe(self, record: CommitRecord) -> None:
        self._directory.describe(record)

    def committed(self, record: CommitRecord) -> None:
        self._directory.add(self.prefix, record)
        self._directory.sweep(self.prefix)
        if self._manager.on_saved is None:
            return
        seconds = time.monotonic() - self._began
        try:
            report = self._directory.report(record, self.prefix, self.path, seconds)
            self._manager.on_saved(report)
        except Exception:
            logging.warning("%s is saved, but on_saved failed", self.prefix, exc_info=True)
