"""What a manager keeps: by which rules, since when, and what is deleted after a save."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from absl import logging

from tfckpt.errors import CheckpointError, TfckptError
from tfckpt.manager.remarks import Remarks
from tfckpt.stored.commits.discovery import Candidate, CheckpointKind
from tfckpt.stored.io.files import same_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.live.companion import Companion
    from tfckpt.live.saving.save import RecordMetadata
    from tfckpt.manager.directory import Directory
    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Keep


class Keeper:
    """The rules of a manager, applied to its directory."""

    def __init__(
        self, files: Directory, rules: Sequence[Keep], directory: str, companion: Companion
    ) -> None:
        self._files = files
        self._rules = rules
        self._directory = directory
        self._companion = companion
        self._own: set[str] = set()  # paths that this manager has saved
        self._run_began, self._preserved = files.history()
        self._remarks = Remarks(rules, directory)

    @property
    def measure(self) -> tuple[str, str]:
        """The metric and the mode of the first ``best`` rule.

        Raises:
            TfckptError: there is none.
        """
        if (measure := self._measure()) is None:
            raise TfckptError(
                f"{self._directory}: no rule says by which metric a checkpoint is the best",
                hint="add a rule, e.g. keep: [{best: 1, monitor: val_loss, mode: min}]",
            )
        return measure

    def _measure(self) -> tuple[str, str] | None:
        rules = ((rule.monitor, rule.mode) for rule in self._rules)
        return next(((name, mode) for name, mode in rules if name and mode), None)

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
            in_use=self._in_use(checkpoints),
        )

    def _in_use(self, checkpoints: Sequence[Candidate]) -> set[str]:
        """The restored checkpoint, if it was preferred to newer ones that still exist."""
        source = self._companion.lineage.prefix
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

    def sweep(self, path: str) -> None:
        """Delete what no rule keeps; the checkpoint is committed even if this fails."""
        self._own.add(path)
        self._files.forget(path)  # a record of the same number may be cached
        try:
            found = self._files.checkpoints()
            decision = self._files.deletable(self.decide(found))
            self._preserved = decision.preserved
        except CheckpointError as error:
            logging.warning("%s is saved, but no old checkpoint was deleted: %s", path, error)
            return
        failed = self._files.release(found, decision)
        for prefix in decision.delete:
            if prefix in failed:
                logging.warning("%s: not deleted, the next save tries: %s", prefix, failed[prefix])
            else:
                logging.info("deleted %s: no rule keeps it", prefix)
        staying = [one for one in found if one.prefix not in decision.delete]
        for remark in self._remarks.after(path, decision, self._files, staying):
            logging.warning("%s", remark)
