"""``tfckpt.CheckpointManager``: TensorFlow's, whose saves are commits.

Constructor, methods, properties and return types are TensorFlow's. Different, each because a run
was lost otherwise: what there is, is asked of the directory and not of the state file; a number is
never used twice; a save that fails changes no counter, so that the retry saves; what plain
TensorFlow wrote is listed and restored, and never deleted.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.live.checkpoint import (
    RESTORE,
    Checkpoint,
    CheckpointOptions,
    TensorFlowManager,
    executing_eagerly,
)
from tfckpt.live.distribution.agreement import Restoring, chosen, saving
from tfckpt.live.io.remote_files import files_of
from tfckpt.live.saving.background import in_turn
from tfckpt.live.saving.save import RecordMetadata, SaveOptions, failing_as_save, needed
from tfckpt.live.variables.variables import as_int
from tfckpt.manager import arguments
from tfckpt.manager.directory import Directory
from tfckpt.manager.numbering import Begun, Numbers, give_back_number, given_back
from tfckpt.manager.remarks import Remarks
from tfckpt.stored.commits.discovery import Candidate, CheckpointKind
from tfckpt.stored.commits.numbering import Number
from tfckpt.stored.io.files import absolute, join, same_directory
from tfckpt.stored.paths.lookalikes import For, look

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Keep


class CheckpointManager(TensorFlowManager):  # type: ignore[misc]
    """Numbers, commits, keeps and deletes the checkpoints of a run.

    Args:
        checkpoint: a ``tfckpt.Checkpoint``.
        directory: where they are; made with the first save.
        max_to_keep: how many of the newest to keep; None keeps all.
        keep_checkpoint_every_n_hours: of those that age out, one per so many hours is kept.
        checkpoint_name: what their names begin with.
        step_counter: variable with the current step, for ``checkpoint_interval``.
        checkpoint_interval: the least number of steps between two saves.
        init_fn: called by ``restore_or_initialize`` where there is no checkpoint.
        last_checkpoint_step: the step that ``checkpoint_interval`` counts from.
        keep: further rules, as in YAML: ``[{"best": 2, "monitor": "val_loss", "mode": "min"}]``.
            What one rule keeps stays; without any rule, all do.
        durable: whether a save waits until it would survive a loss of power.
        enable_async: whether files are written in the background.
        if_busy: what a save does while one is being written: ``wait``, or ``skip`` it.
        on_nonfinite: what follows where weights or slots hold an infinity or a NaN: ``warn``,
            ``save``, or ``refuse`` to save.
        on_unsavable: what follows where something cannot be saved, such as an iterator over a
            generator: ``warn`` and leave it out, or ``error``.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: ``max_to_keep`` is not positive, ``checkpoint_name`` no plain file name, a rule
            or a word is none, or an interval is given without a counter.

    >>> import tempfile, tensorflow as tf, tfckpt
    >>> checkpoint = tfckpt.Checkpoint(step=tf.Variable(0))
    >>> manager = tfckpt.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2)
    >>> [manager.save()[-6:] for _ in range(3)]
    ['ckpt-1', 'ckpt-2', 'ckpt-3']
    >>> [path[-6:] for path in manager.checkpoints]
    ['ckpt-2', 'ckpt-3']
    """

    def __new__(cls, checkpoint: Any, directory: Any, *args: Any, **kwargs: Any) -> Any:
        """TensorFlow's own manager in graph mode."""
        if not executing_eagerly():
            return TensorFlowManager(checkpoint, directory, *args, **kwargs)
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
    ) -> None:
        # TensorFlow's own constructor would trust the state file; everything it sets is set here.
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"expected tfckpt.Checkpoint(model=model) first, found {type(checkpoint).__name__}"
            )
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError("checkpoint_interval needs a step_counter to count by")
        self._checkpoint = checkpoint
        self._directory = os.fspath(directory)
        place = absolute(self._directory)
        files = files_of(self._directory, durable=durable)
        self._terms = SaveOptions(
            files,
            arguments.one_of("on_nonfinite", on_nonfinite, ("save", "warn", "refuse")),
            arguments.one_of("on_unsavable", on_unsavable, ("warn", "error")),
        )
        name = arguments.checkpoint_name(checkpoint_name)
        self._files = Directory(place, name, files)
        self._checkpoint_prefix = join(self._directory, name)
        self._rules = arguments.rules(max_to_keep, keep_checkpoint_every_n_hours, keep)
        self._enable_async = enable_async
        self._if_busy = arguments.one_of("if_busy", if_busy, ("wait", "skip"))
        self._step_counter = step_counter
        self._checkpoint_interval = checkpoint_interval
        self._init_fn = init_fn
        self._last_checkpoint_step = last_checkpoint_step
        self._own: set[str] = set()  # what this manager has saved
        self._run_began, self._preserved = self._files.history()
        self._remarks = Remarks(self._rules, self._directory)

    @property
    def _latest_checkpoint(self) -> str | None:
        # What TensorFlow's `latest_checkpoint` returns.
        return next(reversed(self.checkpoints), None)

    @property
    def checkpoints(self) -> list[str]:
        """The paths of all checkpoints of that name in the directory, oldest first."""
        return [self._spelt(found.prefix) for found in self._files.checkpoints()]

    def _spelt(self, prefix: str) -> str:
        """A path as the directory was given."""
        return join(self._directory, os.path.split(prefix)[1])

    @in_turn("_checkpoint._tfckpt_background")
    def save(
        self,
        checkpoint_number: Any = None,
        check_interval: bool = True,
        options: Any = None,
        *,
        about: RecordMetadata | None = None,
    ) -> str | None:
        """Save, then delete what the rules release.

        Args:
            checkpoint_number: a number to use instead of the next one.
            check_interval: whether ``checkpoint_interval`` holds this save back.
            options: ``tf.train.CheckpointOptions``.
            about: step, epoch and metrics for the commit record.

        Returns:
            The path; None where no save was due. It is complete and on disk, or, with
            ``enable_async``, being written: it is there once ``sync`` or the next save returns.

        Raises:
            InUseError: another process saves into the directory.
            SaveError: it failed, or an argument is no number that a record can hold, or the one
                before, in the background, failed; no file of what failed is left, no counter has
                moved, and the next call saves.
        """
        with saving(self._checkpoint._tfckpt_workers()) as agreement:
            checkpoint_number = arguments.checkpoint_number(checkpoint_number)
            about = arguments.about(about or RecordMetadata())
            background = self._checkpoint._tfckpt_background
            if not background.busy:
                background.finish()
            step = None if self._checkpoint_interval is None else as_int(self._step_counter)
            if step is not None and not self._due(step, check_interval):
                return None
            if self._if_busy == "wait":
                background.finish()
            begun = self._begin(checkpoint_number) if agreement.chief else None
            with given_back(begun):
                told = agreement.meet(begun and dataclasses.asdict(begun.numbers))[0]
                if told is None:
                    return None
                background.finish()
        numbers, give_back = Numbers(**told), partial(give_back_number, begun)
        counter = self._checkpoint.save_counter
        before = as_int(counter), self._last_checkpoint_step
        path = f"{self._checkpoint_prefix}-{numbers.chosen}"

        def first() -> None:
            counter.assign(numbers.counted)
            self._last_checkpoint_step = step

        def undo() -> None:
            give_back()
            counter.assign(before[0])
            self._last_checkpoint_step = before[1]

        def then() -> None:
            give_back()
            self._sweep(f"{self._files.prefix}-{numbers.chosen}")

        self._checkpoint._tfckpt_save(
            path,
            f"{self._files.prefix}-{numbers.chosen}",
            self._with_async(options),
            self._terms,
            dataclasses.replace(
                about,
                sequence=begun.sequence if begun else None,
                run_began=self._run_began,
                preserved=begun.preserved if begun else (),
            ),
            first=first,
            then=then,
            undo=undo,
        )
        return path

    def claim(self) -> None:
        """Be the only process that saves into the directory, and see that a save can be made.

        Each save does the first; called before a training, this refuses what would fail later.

        Raises:
            InUseError: another process saves into the directory.
            SaveError: it cannot be made or written, or has no room for a save.
        """
        with saving(self._checkpoint._tfckpt_workers()) as agreement:
            if agreement.chief:
                objects = self._checkpoint._tfckpt_objects()
                live = self._checkpoint._tfckpt_known.live(*objects)
                self._files.claim_for(needed(live.inventory))
            agreement.meet(None)

    def beside(self, step: int | None) -> str:
        """What is said of a run that begins at this step where another one left checkpoints."""
        workers = self._checkpoint._tfckpt_workers()
        begun = self._checkpoint._tfckpt_lineage.goes_on(f"{self._files.prefix}-1")
        if not self._rules or begun or not (workers is None or workers.chief):
            return ""
        before = self._files.run_before(step)
        return "" if before is None else self._remarks.beside(before.prefix, before.step)

    def _begin(self, checkpoint_number: int | None) -> Begun | None:
        """Take a number in the directory that this process claims; None where it is busy."""
        if self._checkpoint._tfckpt_background.busy:
            logging.info("no save: the one before is still being written")
            return None
        counter = as_int(self._checkpoint.save_counter)
        with failing_as_save(self._checkpoint_prefix):
            tidied = self._files.claim()
            found = self._files.checkpoints()
            preserved = tuple(sorted(self._decide(found).preserved))
            last = self._files.order(found[-1]) if found else (0, -1)
            above = max(counter, last[0], tidied)
            number = Number(self._files.prefix, above, self._terms.files, checkpoint_number)
        chosen = number.value if checkpoint_number is None else checkpoint_number
        counted = number.value if checkpoint_number is None else counter + 1
        sequence = None if (chosen, 0) > last else (last[0], last[1] + 1)
        return Begun(number, Numbers(chosen, counted), sequence, preserved)

    def _with_async(self, options: Any) -> Any:
        if not self._enable_async:
            return options
        options = copy.copy(options) if options is not None else CheckpointOptions()
        options.experimental_enable_async_checkpoint = True
        return options

    def _due(self, step: int, check_interval: bool) -> bool:
        last = self._last_checkpoint_step
        if last is None:
            return True
        return step != last and not (
            check_interval and step < last + (self._checkpoint_interval or 0)
        )

    def retention(self) -> Decision:
        """What the rules keep, each with its reason, and what the next save deletes: a dry run."""
        return self._files.sure(self._decide(self._files.checkpoints()))

    def _decide(self, checkpoints: Sequence[Candidate]) -> Decision:
        return self._files.decide(
            checkpoints,
            self._rules,
            anchor=self._run_began,
            preserved=self._preserved,
            in_use=self._in_use(checkpoints),
        )

    def _in_use(self, checkpoints: Sequence[Candidate]) -> set[str]:
        """What was restored, where somebody preferred it to newer ones that are still there."""
        source = self._checkpoint._tfckpt_lineage.prefix
        if source is None or not same_directory(source, self._files.path):
            return set()
        name = os.path.split(source)[1]
        saved = [one for one in checkpoints if one.kind is CheckpointKind.COMMITTED]
        chosen = next((one for one in saved if os.path.split(one.prefix)[1] == name), None)
        order = self._files.order
        if chosen is None or all(
            order(one) <= order(chosen) or one.prefix in self._own for one in saved
        ):
            return set()
        return {chosen.prefix}

    def _sweep(self, path: str) -> None:
        """Delete what the rules release; the checkpoint is committed, whatever fails here."""
        self._own.add(path)
        self._files.forget(path)  # an older one of that number is known by another record
        try:
            found = self._files.checkpoints()
            decision = self._files.sure(self._decide(found))
            self._preserved = decision.preserved
        except CheckpointError as error:
            logging.warning("%s is saved, and nothing was deleted: %s", path, error)
            return
        failed = self._files.release(found, decision)
        for prefix in decision.delete:
            if prefix in failed:
                logging.warning("%s: the next save goes on deleting it: %s", prefix, failed[prefix])
            else:
                logging.info("deleted %s: no rule keeps it", prefix)
        staying = [one for one in found if one.prefix not in decision.delete]
        for remark in self._remarks.after(path, decision, self._files, staying):
            logging.warning("%s", remark)

    @in_turn("_checkpoint._tfckpt_background")
    def restore_or_initialize(self) -> str | None:
        """Restore the newest checkpoint that can be read, or call ``init_fn`` where there is none.

        What the checkpoint does not have keeps its values, as in TensorFlow; a warning names it,
        since no status is returned.

        Returns:
            The path restored from; None where there was no checkpoint.

        Raises:
            DamagedCheckpointError: there are checkpoints, and none can be read.
            RefusedError: the newest readable one does not fit.
        """
        self._checkpoint._tfckpt_background.failure()
        workers = self._checkpoint._tfckpt_workers()
        if path := chosen(workers, self._restore_newest, self._restore_told, lambda _: None):
            return path
        found = look(self._directory, self._terms.files)
        if found.notable:
            nothing = f"no checkpoint called {self._files.checkpoint_name} is there to restore"
            logging.warning("%s", "\n  ".join([nothing, *found.lines(For.TRAINING)]))
        if self._init_fn is not None:
            self._init_fn()
        return None

    def _restore_newest(self) -> str | None:
        """Restore the newest checkpoint that can be read, None where there is none."""
        rejected: list[str] = []
        for path, reason in self._files.restorable():
            if reason:
                logging.warning("passed over: %s", reason)
                rejected.append(reason)
                continue
            try:
                return self._restore_one(path, choice=os.path.split(path)[1])
            except CheckpointError as error:
                logging.warning("passed over: %s", error)
                rejected.append(str(error))
        if rejected:
            raise DamagedCheckpointError(
                "none of the checkpoints can be read:\n  " + "\n  ".join(rejected),
                path=self._directory,
                hint="to start anew, use another directory",
            )
        return None

    def _restore_told(self, name: str | None) -> str | None:
        """Restore what the chief restores."""
        return None if name is None else self._restore_one(join(self._files.path, name))

    def _restore_one(self, path: str, choice: str | None = None) -> str:
        self._checkpoint._maybe_create_save_counter()
        workers = Restoring(self._checkpoint._tfckpt_workers(), choice, follows=choice is None)
        self._checkpoint._tfckpt_restore(
            path, RESTORE, None, workers, returned=False
        ).expect_partial()
        if self._checkpoint_interval is not None:
            self._last_checkpoint_step = as_int(self._step_counter)
        return self._spelt(path)
