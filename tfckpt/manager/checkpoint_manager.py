"""``tfckpt.CheckpointManager``: TensorFlow's, whose saves are commits.

Constructor, methods, properties and return types are TensorFlow's. Different, each because a run
was lost otherwise: what there is, is asked of the directory and not of the state file; a number is
never used twice; a save that fails changes no counter, so that the retry saves; what plain
TensorFlow wrote is listed and restored, and never deleted.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.live.checkpoint import Checkpoint, TensorFlowManager, local_path
from tfckpt.live.save import About, last_number
from tfckpt.live.variables import as_int
from tfckpt.manager import arguments
from tfckpt.manager.directory import Directory
from tfckpt.manager.retention import sweep
from tfckpt.planning import Status
from tfckpt.records import Role
from tfckpt.stored.discover import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt.planning import RestoreReport

_SHOWN = 10


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

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: ``max_to_keep`` is not positive, ``checkpoint_name`` no plain file name, or an
            interval is given without a counter.

    >>> import tempfile, tensorflow as tf, tfckpt
    >>> checkpoint = tfckpt.Checkpoint(step=tf.Variable(0))
    >>> manager = tfckpt.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2)
    >>> [manager.save()[-6:] for _ in range(3)]
    ['ckpt-1', 'ckpt-2', 'ckpt-3']
    >>> [path[-6:] for path in manager.checkpoints]
    ['ckpt-2', 'ckpt-3']
    """

    def __new__(cls, checkpoint: Any, directory: Any, *args: Any, **kwargs: Any) -> Any:
        """TensorFlow's own manager in graph mode and for remote directories, which are its own."""
        if local_path(directory) is None:
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
    ) -> None:
        # TensorFlow's own constructor would trust the state file; everything it sets is set here.
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(f"expected a tfckpt.Checkpoint, found {type(checkpoint).__name__}")
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError("checkpoint_interval needs a step_counter to count by")
        self._checkpoint = checkpoint
        self._directory = os.fspath(directory)
        self._files = Directory(self._directory, arguments.checkpoint_name(checkpoint_name))
        self._max_to_keep = arguments.max_to_keep(max_to_keep)
        self._every_n_hours = arguments.hours(keep_checkpoint_every_n_hours)
        self._checkpoint_prefix = str(Path(self._directory) / checkpoint_name)
        self._step_counter = step_counter
        self._checkpoint_interval = checkpoint_interval
        self._init_fn = init_fn
        self._last_checkpoint_step = last_checkpoint_step
        self._read_state()

    def _read_state(self) -> None:
        """What became of earlier checkpoints: their times, and which are kept for ever.

        Those are, as in TensorFlow, the ones no newer than the last that was so kept.
        """
        now = time.time()
        state = self._files.state()
        self._times: dict[str, float] = {}
        self._preserved: set[str] = set()
        found = [one.prefix for one in self._files.checkpoints() if one.kind is Kind.COMMITTED]
        if state is not None:
            stamps = zip(
                state.all_model_checkpoint_paths,
                state.all_model_checkpoint_timestamps,
                strict=False,  # older files have none
            )
            self._times = {Path(path).name: min(when, now) for path, when in stamps}
        if state is not None and state.last_preserved_timestamp is not None:
            self._last_preserved = min(state.last_preserved_timestamp, now)
            self._preserved = {p for p in found if self._time_of(p) <= self._last_preserved}
        else:
            self._last_preserved = min([now, *map(self._time_of, found)]) - 1

    def _time_of(self, prefix: str) -> float:
        """When a checkpoint was saved: as the state file knows it, else its record, else now."""
        name = Path(prefix).name
        if name not in self._times:
            self._times[name] = min(self._files.created(prefix) or math.inf, time.time())
        return self._times[name]

    @property
    def _latest_checkpoint(self) -> str | None:
        # What TensorFlow's `latest_checkpoint` returns.
        return next(reversed(self.checkpoints), None)

    @property
    def checkpoints(self) -> list[str]:
        """The paths of all checkpoints of that name in the directory, oldest first."""
        return [found.prefix for found in self._files.checkpoints()]

    def save(
        self,
        checkpoint_number: Any = None,
        check_interval: bool = True,
        options: Any = None,
        *,
        about: About | None = None,
    ) -> str | None:
        """Save, then delete what the rules release.

        Args:
            checkpoint_number: a number to use instead of the next one.
            check_interval: whether ``checkpoint_interval`` holds this save back.
            options: ``tf.train.CheckpointOptions``.
            about: step, epoch and metrics for the commit record.

        Returns:
            The path, complete and on disk; None where no save was due.

        Raises:
            SaveError: it failed, or an argument is no number that a record can hold; no file of it
                is left and no counter has moved.
        """
        if checkpoint_number is not None:
            checkpoint_number = arguments.checkpoint_number(checkpoint_number)
        if about is not None:
            about = arguments.about(about)
        step = None if self._checkpoint_interval is None else as_int(self._step_counter)
        if step is not None and not self._due(step, check_interval):
            return None
        counter = self._checkpoint.save_counter
        before = as_int(counter)
        number = last_number(self._checkpoint_prefix, before) + 1
        if checkpoint_number is not None:
            number = checkpoint_number
        counter.assign(number if checkpoint_number is None else before + 1)
        try:
            path = self._checkpoint._write(f"{self._checkpoint_prefix}-{number}", options, about)
        except BaseException:
            counter.assign(before)
            raise
        self._last_checkpoint_step = step
        self._times[Path(path).name] = time.time()
        self._preserved.discard(path)
        self._sweep(path)
        return path

    def _due(self, step: int, check_interval: bool) -> bool:
        last = self._last_checkpoint_step
        if last is None:
            return True
        return step != last and not (
            check_interval and step < last + (self._checkpoint_interval or 0)
        )

    def _sweep(self, saved: str) -> None:
        """Delete what the rules release; the checkpoint is committed, whatever fails here."""
        found = [(one.prefix, one.kind) for one in self._files.checkpoints()]
        self._write_state([prefix for prefix, _ in found])
        ours = [
            (prefix, self._time_of(prefix))
            for prefix, kind in found
            if kind is Kind.COMMITTED and prefix not in {saved, *self._preserved}
        ]
        result = sweep(
            [*ours, (saved, self._time_of(saved))],
            self._max_to_keep,
            self._every_n_hours,
            self._last_preserved,
        )
        self._last_preserved = result.last_preserved
        self._preserved.update(result.preserve)
        for prefix in result.delete:
            try:
                self._files.delete(prefix)
            except OSError as error:  # noqa: PERF203 (one that stays keeps no other from going)
                logging.warning("%s was to be deleted, and stays: %s", prefix, error)
        if result.delete or result.preserve:
            self._write_state([prefix for prefix, _ in found if prefix not in result.delete])

    def _write_state(self, prefixes: list[str]) -> None:
        times = {prefix: self._time_of(prefix) for prefix in prefixes}
        try:
            self._files.write_state(times, self._last_preserved)
        except OSError as error:
            logging.warning("the state file for TensorFlow's tools was not written: %s", error)

    def restore_or_initialize(self) -> str | None:
        """Restore the newest checkpoint that can be read, or call ``init_fn`` where there is none.

        Weights of the model that the checkpoint does not have keep their values, as in TensorFlow;
        a warning names them, since no status is returned.

        Returns:
            The path restored from; None where there was no checkpoint.

        Raises:
            DamagedCheckpointError: there are checkpoints, and none can be read.
            RefusedError: the newest readable one does not fit.
        """
        rejected: list[str] = []
        for path, doubt in self._files.restorable():
            if doubt:
                logging.warning("tried because none that was committed can be read: %s", doubt)
            try:
                status = self._checkpoint.restore(path).expect_partial()
            except CheckpointError as error:
                logging.warning("passed over: %s", error)
                rejected.append(str(error))
                continue
            if self._checkpoint_interval is not None:
                self._last_checkpoint_step = as_int(self._step_counter)
            _warn_of_missing(status.report)
            return path
        if rejected:
            raise DamagedCheckpointError(
                "none of the checkpoints can be read:\n  " + "\n  ".join(rejected),
                path=self._directory,
                hint="to start anew, use another directory",
            )
        if self._init_fn is not None:
            self._init_fn()
        return None


def _warn_of_missing(report: RestoreReport) -> None:
    missing = [
        step.name
        for step in report.plan.steps
        if step.status is Status.MISSING and step.entry.role is Role.WEIGHT
    ]
    if missing:
        more = len(missing) - _SHOWN
        logging.warning(
            "%s has no value for %d of the weights, which stay as they were: %s",
            report.path,
            len(missing),
            ", ".join(missing[:_SHOWN]) + (f" and {more} more" if more > 0 else ""),
        )
