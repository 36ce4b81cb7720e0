"""What a manager keeps, by which rules and since when; what is deleted and said after a save."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.errors import CheckpointError, TfckptError
from tfckpt.manager.remarks import Remarks
from tfckpt.manager.retention import Decision, decide
from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.commits import record_file
from tfckpt.stored.io.files import join

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.live.checkpoint import Checkpoint
    from tfckpt.live.save import RecordMetadata
    from tfckpt.manager.directory import Directory
    from tfckpt.policy import Keep
    from tfckpt.stored.commits.discovery import Candidate


@dataclasses.dataclass(frozen=True)
class SaveReport:
    """What was saved, for ``on_saved``.

    Attributes:
        path: of the checkpoint.
        number: at the end of the path.
        step: of training; None if unknown.
        epoch: number of finished epochs; None if unknown.
        metrics: measured at this step.
        metadata: the caller's own.
        nbytes: size of the checkpoint's files.
        seconds: from the call of ``save`` until the checkpoint was complete and the old ones were
            deleted.
    """

    path: str
    number: int
    step: int | None
    epoch: int | None
    metrics: Mapping[str, float]
    metadata: Mapping[str, Any]
    nbytes: int
    seconds: float


class Keeper:
    """The rules of a manager, applied to its directory."""

    def __init__(
        self, files: Directory, rules: Sequence[Keep], directory: str, checkpoint: Checkpoint
    ) -> None:
        self._files = files
        self._rules = rules
        self._directory = directory
        self._checkpoint = checkpoint
        files.checkpoints()  # raises where there is something else at the path
        self._created = time.time()
        self._last = ""  # the path of the last save
        self._decided: Decision | None = None
        self._remarks = Remarks(rules, directory)

    @property
    def measure(self) -> tuple[str, str]:
        """The metric and the mode of the first ``best`` rule."""
        if (measure := self._measure()) is None:
            raise TfckptError(
                f"{self._directory}: no rule says by which metric a checkpoint is the best",
                hint="add a rule, e.g. keep: [{best: 1, monitor: val_loss, mode: min}]",
            )
        return measure

    def _measure(self) -> tuple[str, str] | None:
        rules = ((rule.monitor, rule.mode) for rule in self._rules)
        return next(((name, mode) for name, mode in rules if name and mode), None)

    def is_best(self, metrics: Mapping[str, float]) -> bool:
        """Whether a save with these metrics is the best so far, by the first ``best`` rule."""
        return self._files.would_be_best(metrics, *self.measure)

    def end_of_fit(self, fit: int) -> str | None:
        """The path of the checkpoint at the end of a ``fit``; None if it is not kept."""
        return self._files.end_of_fit(fit)

    def described(self, about: RecordMetadata) -> RecordMetadata:
        """What a record says of a save, with what the rules must know after a restart."""
        decided = self._decided or self.decide(self._files.checkpoints())
        preserved = tuple(sorted(decided.preserved))
        began, _ = self._files.history(self._run)
        began = self._created if began is None else began
        return dataclasses.replace(
            about, best_by=self._measure(), run_began=began, preserved=preserved
        )

    @property
    def _run(self) -> str:
        """The id of the run that saves into the directory."""
        return self._checkpoint._lineage.run_of(f"{self._files.prefix}-1")

    def decide(self, checkpoints: Sequence[Candidate]) -> Decision:
        """What is kept and what is deleted."""
        saved, run = self._files.saved(checkpoints), self._run
        began, preserved = self._files.history(run)
        if self._decided is not None:
            preserved = self._decided.preserved
        anchor = self._created if began is None else min(began, time.time())
        return decide(saved, self._rules, anchor=anchor, preserved=preserved, run=run)

    def beside(self) -> Iterator[str]:
        """The warning for a new run beside checkpoints of another one."""
        workers, saved = self._checkpoint._workers(), self._files.saved(self._files.checkpoints())
        if not (workers is None or workers.chief) or any(one.run == self._run for one in saved):
            return
        yield from self._remarks.beside(saved)

    def sweep(self, path: str) -> None:
        """Delete what no rule keeps; the checkpoint is committed even if this fails."""
        self._last = path
        self._files.forget(path)  # a record of the same number may be cached
        try:
            found = self._files.checkpoints()
            decision = self._decided = self.decide(found)
        except CheckpointError as error:
            logging.warning("%s is saved, but no old checkpoint was deleted: %s", path, error)
            return
        failed = self._files.release(found, decision)
        for prefix in decision.delete:
            if prefix in failed:
                reason = failed[prefix]
                logging.warning("%s: not deleted; the next save tries again: %s", prefix, reason)
            else:
                logging.info("deleted %s: no rule keeps it", prefix)
        staying = [one for one in found if one.prefix not in decision.delete]
        for remark in self._remarks.after(path, decision, self._files, staying):
            logging.warning("%s", remark)

    def catch_up(self) -> None:
        """Write the state file, and delete what it kept, if that has failed after the last save."""
        if self._files.is_behind:
            self.sweep(self._last)

    def report(self, prefix: str, path: str, seconds: float) -> SaveReport:
        """The report of a save; ``path`` is the prefix as the caller spells it."""
        if (head := self._files.head(prefix)) is None:
            raise CheckpointError("the commit record cannot be read", path=prefix)
        own = (join(self._files.path, name) for name in head.files)
        parts = (index_path(prefix), record_file.path_of(prefix), *own)
        return SaveReport(
            path,
            head.number,
            head.step,
            head.epoch,
            head.metrics,
            head.metadata,
            sum(self._files.files.status(part)[0] for part in parts),
            seconds,
        )
