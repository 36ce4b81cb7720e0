"""What a manager keeps, by which rules and since when; what is deleted and said after a save."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.errors import CheckpointError, TfckptError
from tfckpt.manager.remarks import Remarks
from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.commits import record_file
from tfckpt.stored.io.files import join

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfckpt.live.companion import Companion
    from tfckpt.live.save import RecordMetadata
    from tfckpt.manager.directory import Directory
    from tfckpt.manager.retention import Decision
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
        self, files: Directory, rules: Sequence[Keep], directory: str, companion: Companion
    ) -> None:
        self._files = files
        self._rules = rules
        self._directory = directory
        self._companion = companion
        self._own: dict[str, None] = {}  # paths that this manager has saved, in this order
        self._run_began, self._preserved = files.history()
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

    def described(self, about: RecordMetadata, found: Sequence[Candidate]) -> RecordMetadata:
        """What a record says of a save, with what the rules must know after a restart."""
        return dataclasses.replace(
            about,
            best_by=self._measure(),
            run_began=self._run_began,
            preserved=tuple(sorted(self.decide(found).preserved)),
        )

    def beside(self, step: int | None) -> str:
        """The warning for a run that starts at this step beside checkpoints of another, if any."""
        workers = self._companion.workers()
        begun = self._companion.lineage.goes_on(f"{self._files.prefix}-1")
        if not self._rules or begun or not (workers is None or workers.chief):
            return ""
        before = self._files.run_before(step)
        return "" if before is None else self._remarks.beside(before.prefix, before.step)

    def decide(self, checkpoints: Sequence[Candidate]) -> Decision:
        """What is kept and what is deleted."""
        return self._files.decide(
            checkpoints,
            self._rules,
            anchor=self._run_began,
            preserved=self._preserved,
            in_use=self._files.in_use(checkpoints, self._companion.lineage.prefix, self._own),
        )

    def sweep(self, path: str) -> None:
        """Delete what no rule keeps; the checkpoint is committed even if this fails."""
        self._own[path] = None
        self._files.forget(path)  # a record of the same number may be cached
        try:
            found = self._files.checkpoints()
            decision = self.decide(found)
            self._preserved = decision.preserved
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
            self.sweep(next(reversed(self._own)))

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
