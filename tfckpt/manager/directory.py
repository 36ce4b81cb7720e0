"""The checkpoints of one directory: found by listing it, deleted record first.

TensorFlow's ``checkpoint`` state file is written for TensorFlow's tools; only its timestamps are
ever read. So a damaged one does no harm, and one that points to another directory is not followed.

File names say which checkpoints exist, and their numbers in which order they were saved. What the
rules need to know is in the records, each of which is read once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import time
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.core.inventory import Inventory
from tfckpt.core.text import no_space
from tfckpt.errors import CheckpointError, SaveError, TfckptError
from tfckpt.manager.remarks import Remarks
from tfckpt.manager.retention import Decision, decide, ranked
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.commits import commit, discovery, record_file
from tfckpt.stored.commits.discovery import COMMITTED, DAMAGED, FOREIGN, TORN, CheckpointInfo
from tfckpt.stored.commits.record_file import CommitRecord
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.files import Files, join
from tfckpt.stored.io.state_file import STATE_FILE, read_state, write_state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.live.checkpoint import Checkpoint
    from tfckpt.policy import Keep


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
        nbytes: size of the checkpoint's files, shared ones among them.
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


class Directory:
    """A directory, and the name of its checkpoints."""

    def __init__(self, path: str, checkpoint_name: str, files: Files) -> None:
        self.path, self.checkpoint_name, self.files = path, checkpoint_name, files
        self._rows: dict[str, tuple[tuple[int, float] | None, CheckpointInfo]] = {}
        self._lengths: dict[str, Mapping[str, int]] = {}
        self._is_behind = False

    @property
    def prefix(self) -> str:
        """The path of a checkpoint up to the dash before its number."""
        return join(self.path, self.checkpoint_name)

    def names(self) -> list[str]:
        """Those of all files in it, which it is listed for."""
        return discovery.listing(self.path, self.files)

    def checkpoints(self, names: Collection[str] | None = None) -> list[CheckpointInfo]:
        """What the file names say: the oldest first, without those that are torn."""
        return [one for one in reversed(self._candidates(names)) if one.state != TORN]

    @property
    def newest(self) -> str:
        """The newest committed checkpoint; "" where there is none."""
        found = (one for one in self._candidates() if one.state == COMMITTED)
        return next((one.prefix for one in found), "")

    def _candidates(self, names: Collection[str] | None = None) -> list[CheckpointInfo]:
        names = self.names() if names is None else names
        return discovery.listed(self.path, names, self.checkpoint_name)

    def restorable(self) -> Iterator[tuple[str, str]]:
        """Prefixes in the order in which to try them, ``""`` with the reason not to try one.

        The newest comes first, and last a newer one that tfckpt wrote and whose record is missing,
        since it may be incomplete. Checkpoints saved while the others were tried follow.
        """
        tried: set[str] = set()
        while fresh := [one for one in self._candidates() if one.prefix not in tried]:
            committed = (one.number or 0 for one in fresh if one.state == COMMITTED)
            acknowledged = next(committed, None)
            unrecorded = []
            for one in fresh:
                tried.add(one.prefix)
                newer = acknowledged is not None and (one.number or 0) > acknowledged
                if one.state == TORN:
                    yield "", f"{one.prefix}: has data but no index, which was lost or not copied"
                elif newer and one.state == FOREIGN and self._without_record(one.prefix):
                    unrecorded.append(one.prefix)
                    yield "", f"{one.prefix}: written by tfckpt, but its commit record is missing"
                else:
                    yield one.prefix, ""
            for prefix in unrecorded:
                yield prefix, ""

    def _without_record(self, prefix: str) -> bool:
        try:
            with open_checkpoint(prefix, files=self.files) as stored:
                return stored.kind == "uncommitted"
        except CheckpointError:
            return False  # trying it raises the error

    def recorded(
        self, found: Iterable[CheckpointInfo], *, again: bool = True
    ) -> list[CheckpointInfo]:
        """Those that tfckpt committed and whose records can be read, with these.

        ``again`` is whether one may have been saved again since it was read.
        """
        committed = (one for one in found if one.state == COMMITTED)
        rows = (self._with_record(one, again=again) for one in committed)
        return [one for one in rows if one.head is not None]

    def _with_record(self, one: CheckpointInfo, *, again: bool) -> CheckpointInfo:
        stamp, row = self._rows.get(one.prefix, (None, None))
        if row is not None and not again:
            return row
        now = self._stamp(one.prefix)
        if row is None or stamp != now:
            head = _head(one.prefix, self.files)
            row = dataclasses.replace(one, head=head, time=head.time if head else 0.0)
            self._rows[one.prefix] = now, row
        return row

    def _stamp(self, prefix: str) -> tuple[int, float] | None:
        """What changes when a checkpoint is saved again; None where that is a request for each."""
        with contextlib.suppress(OSError):
            return self.files.status(record_file.path_of(prefix)) if self.files.renames else None
        return None

    def saved(
        self, found: Iterable[CheckpointInfo], names: Collection[str] | None = None
    ) -> list[CheckpointInfo]:
        """Those that rules decide about: :meth:`recorded` with all files, none of which is cut.

        Others are neither counted nor deleted.
        """
        rows = self.recorded(found)
        names = {*(self.names() if names is None else names)} if rows else set()
        return [
            one
            for one in rows
            if names.issuperset(one.record.files) and self._is_long_enough(one.prefix, one.record)
        ]

    def _is_long_enough(self, prefix: str, head: CommitRecord) -> bool:
        """Whether no data file ends before its values do, by the index, which is read once."""
        if not self.files.renames:  # objects are never cut
            return True
        try:
            if prefix not in self._lengths:
                with Bundle.open(prefix, self.files) as bundle:
                    if bundle.digest != head.index_sha256:  # another program has written over it
                        return False
                    ends = bundle.index.ends.items()
                    self._lengths[prefix] = {bundle.path(shard): end for shard, end in ends}
            lengths = self._lengths[prefix]
            return all(self.files.status(path)[0] >= end for path, end in lengths.items())
        except (OSError, CheckpointError):
            return False

    def best(self, monitor: str, mode: str, run: str | None = None) -> list[CheckpointInfo]:
        """The checkpoints of a run that have this metric, the best first; by default the newest."""
        saved = self.saved(self.checkpoints())
        run = run or (saved[-1].record.run if saved else None)
        saved = [one for one in saved if one.record.run == run]
        return ranked(saved, len(saved), monitor, greatest=mode == "max")

    def end_of_fit(self, fit: int, later: str) -> str | None:
        """The checkpoint at the end of a ``fit`` of this number, of the run that saved ``later``.

        None if it is not kept.
        """
        of = _head(later, self.files)
        for one in reversed(self.recorded(self.checkpoints())):
            if of is not None and (one.record.fit, one.record.run) == (fit, of.run):
                at = one.record.training["fit"]
                over = at.get("ended") and (at.get("stopped") or at["epoch"] + 1 >= at["epochs"])
                return one.prefix if over else None
        return None

    def measure(self) -> tuple[str, str] | None:
        """The metric and the mode by which the newest save says that the best is chosen."""
        rows = reversed(self.recorded(self.checkpoints()))
        return next((one.record.best_by for one in rows if one.record.best_by), None)

    def release(
        self,
        found: Sequence[CheckpointInfo],
        saved: Iterable[CheckpointInfo],
        decision: Decision,
        names: Collection[str],
    ) -> dict[str, OSError]:
        """Write the state file, then delete what no rule keeps; prefix → why it is not deleted.

        What the state file on disk names is never deleted: plain TensorFlow would look for it.
        """
        failed, deleted = dict[str, OSError](), {*decision.delete}
        try:
            kept = [one for one in found if one.prefix not in deleted]
            self.write_state(kept, saved, decision.last_preserved)
            if deleted:
                self.files.fsync_dir(self.path)
            self._is_behind = False
        except SaveError as error:  # a directory or a link, say, which is never replaced
            logging.warning("there is no state file for TensorFlow's tools: %s", error)
        except OSError as error:
            self._is_behind = True
            named = self._state()
            maybe = (p for p in decision.delete if named is None or os.path.split(p)[1] in named)
            failed = dict.fromkeys(maybe, error)
            logging.warning(
                "could not write the state file `checkpoint` for TensorFlow's tools; the next save "
                "or `sync` tries again, and what the old one names is kept until then: %s",
                error,
            )
        of = self._by_number(names) if deleted else {}
        for prefix in decision.delete:
            if prefix in failed:
                continue
            try:
                commit.delete(prefix, self.files, of.get(os.path.split(prefix)[1], ()))
                self.forget(prefix)
            except OSError as error:
                failed[prefix] = error
        return failed

    def _by_number(self, names: Collection[str]) -> dict[str, list[str]]:
        """The names that begin with that of a checkpoint, by the latter."""
        of = re.compile(rf"{re.escape(self.checkpoint_name)}-[0-9]+")
        found = dict[str, list[str]]()
        for name in names:
            if match := of.match(name):
                found.setdefault(match[0], []).append(name)
        return found

    def _state(self) -> dict[str, float] | None:
        """Name → Unix time of what the state file names; None where that cannot be read."""
        try:
            state = read_state(join(self.path, STATE_FILE), self.files)
        except CheckpointError as error:
            logging.warning("%s; it will be rewritten", error)
            return None
        if state is None:
            return {}
        paths = state.all_model_checkpoint_paths
        names = [os.path.split(path)[1] for path in (*paths, state.model_checkpoint_path)]
        times = zip(names, state.all_model_checkpoint_timestamps, strict=False)
        return {**dict.fromkeys(names, time.time()), **dict(times)}

    def claim_for(self, nbytes: int) -> None:
        """Lock the directory before a training, and check that a save of ``nbytes`` is possible."""
        try:
            commit.claim(self.path, self.checkpoint_name, self.files)
            if self.files.renames:  # other stores may keep what was only a test
                commit.begin_named(join(self.path, ".tfckpt.probe"), self.files).give_back()
        except SaveError:
            raise
        except OSError as error:
            raise SaveError(
                f"{self.path}: checkpoints cannot be written: {error.strerror or error}",
                hint="nothing was trained; use a directory that this process may create and write",
            ) from error
        free = self.files.free(self.path)
        if free is not None and free < nbytes:
            raise SaveError(
                f"{self.path}: {no_space(nbytes, free)}",
                hint="free disk space, or save into a directory on another disk; old checkpoints "
                "are deleted only after a new one is saved",
            )

    def forget(self, prefix: str) -> None:
        """Drop the cached record: the checkpoint was saved again under the same number."""
        self._rows.pop(prefix, None)
        self._lengths.pop(prefix, None)

    def write_state(
        self,
        found: Iterable[CheckpointInfo],
        saved: Iterable[CheckpointInfo],
        last_preserved: float,
    ) -> None:
        """Write the state file for TensorFlow's tools, the newest last.

        One without an index is left out: `latest_checkpoint` would return None because of it.
        """
        whole = [one for one in found if one.state != DAMAGED]
        if not whole:
            return
        names, now = [os.path.split(one.prefix)[1] for one in whole], time.time()
        times = {os.path.split(one.prefix)[1]: one.time for one in saved}
        if not times.keys() >= {*names}:
            times = {**(self._state() or {}), **times}
        stamps = [min(times.get(name, now), now) for name in names]
        write_state(self.path, self.files, names, stamps, last_preserved)


def _head(prefix: str, files: Files) -> CommitRecord | None:
    """The record of a checkpoint without its values; None if there is no readable one."""
    with contextlib.suppress(CheckpointError):  # restoring it raises the error
        return record_file.read_head(prefix, files)
    return None


class RunDirectory(Directory):
    """The directory that a run saves into, with the rules of what it keeps."""

    def __init__(
        self,
        path: str,
        checkpoint_name: str,
        files: Files,
        *,
        rules: Sequence[Keep],
        checkpoint: Checkpoint,
        given: str,
    ) -> None:
        """``given`` is the path as the caller spells it."""
        super().__init__(path, checkpoint_name, files)
        self.checkpoints()  # raises where there is something else at the path
        self._rules, self._checkpoint, self._given = rules, checkpoint, given
        self._created = time.time()
        self._own: dict[str, None] = {}  # that this process has saved and not deleted, in order
        self._known: CommitRecord | None = None  # what the rules go on with after the last decision
        self._remarks = Remarks(rules, given)

    @property
    def monitored(self) -> tuple[str, str]:
        """The metric and the mode of the first ``best`` rule."""
        if (monitored := self._monitored()) is None:
            raise TfckptError(
                f"{self._given}: no rule says by which metric a checkpoint is the best",
                hint="add a rule, e.g. keep: [{best: 1, monitor: val_loss}]",
            )
        return monitored

    def _monitored(self) -> tuple[str, str] | None:
        rules = ((rule.monitor, rule.mode) for rule in self._rules)
        return next(((name, mode) for name, mode in rules if name and mode), None)

    def is_best(self, metrics: Mapping[str, float]) -> bool:
        """Whether a save with these metrics is the best so far, by the first ``best`` rule."""
        (monitor, mode), run = self.monitored, self._run()
        rows = self.saved(self.checkpoints())
        saved = [one for one in rows if not run or one.record.run == run]
        number = (saved[-1].number or 0) + 1 if saved else 1
        new = CheckpointInfo("", number, COMMITTED, CommitRecord(metrics=metrics))
        return new in ranked([*saved, new], 1, monitor, greatest=mode == "max")

    def describe(self, record: CommitRecord) -> None:
        """Add to the record of a save what the rules must know after a restart."""
        known = self._known
        if known is None or known.run != record.run:
            _, known = self._decide(self._now()[2])
        record.best_by = self._monitored()
        record.run_began, record.preserved = known.run_began, known.preserved

    def _run(self, *, begin: bool = False) -> str:
        """The id of the run that saves into the directory; "" where none has begun."""
        return self._checkpoint._lineage.run_of(f"{self.prefix}-1", begin=begin)

    def best(self, monitor: str, mode: str, run: str | None = None) -> list[CheckpointInfo]:
        """Those of the run, once it has begun."""
        return super().best(monitor, mode, run or self._run() or None)

    def retention(self) -> Decision:
        """What is kept and what is deleted; of the newest run where none has begun."""
        return self._decide(self._now()[2])[0]

    def _now(self) -> tuple[list[str], list[CheckpointInfo], list[CheckpointInfo]]:
        """The names in it, its checkpoints, and those that rules decide about.

        Without rules nothing is deleted, so that no file is looked at again.
        """
        found = self.checkpoints(names := self.names())
        saved = self.saved(found, names) if self._rules else self.recorded(found, again=False)
        return names, found, saved

    def _decide(self, saved: Sequence[CheckpointInfo]) -> tuple[Decision, CommitRecord]:
        """The decision, and what the next record of the run says of it."""
        records = [one.record for one in reversed(saved)]
        run = self._run() or next((one.run for one in records if one.run), "")
        if (known := self._known) is None or known.run != run:
            known = next((one for one in records if one.run == run), CommitRecord())
        began = self._created if known.run_began is None else known.run_began
        decision = decide(
            saved,
            self._rules,
            anchor=min(began, time.time()),
            preserved=known.preserved,
            run=run,
            restored=self._restored_before(saved, run),
        )
        preserved = tuple(sorted(decision.preserved))
        return decision, CommitRecord(run=run, run_began=began, preserved=preserved)

    def _restored_before(self, saved: Sequence[CheckpointInfo], run: str) -> str:
        """The restored checkpoint, while newer ones of its run that it was preferred to exist."""
        source = self._checkpoint._lineage.source_of(f"{self.prefix}-1")
        prefix = join(self.path, os.path.split(source)[1])
        newer = itertools.dropwhile(lambda one: one.prefix != prefix, saved)
        if next(newer, None) is None:
            return ""
        others = (one for one in newer if one.record.run == run and one.prefix not in self._own)
        return prefix if any(others) else ""

    def beside(self) -> Iterator[str]:
        """The warning for a new run beside checkpoints of another one."""
        workers, saved = self._checkpoint._workers(), self.saved(self.checkpoints())
        run = self._run()
        if not (workers is None or workers.chief) or any(one.record.run == run for one in saved):
            return
        yield from self._remarks.beside(saved)

    def add(self, prefix: str, record: CommitRecord) -> None:
        """Add what this process has just committed, so that nothing of it is read."""
        head = dataclasses.replace(record, inventory=Inventory(prefix, {}))
        row = CheckpointInfo(prefix, record.number, COMMITTED, head, time=record.time)
        self._own[prefix] = None
        self.forget(prefix)  # a record of the same number may be cached
        with contextlib.suppress(OSError):
            if self.files.renames:
                files = [join(self.path, name) for name in record.files]
                self._lengths[prefix] = {file: self.files.status(file)[0] for file in files}
            self._rows[prefix] = self._stamp(prefix), row

    def sweep(self, path: str) -> None:
        """Delete what no rule keeps; the checkpoint is committed even if this fails."""
        try:
            names, found, saved = self._now()
            decision, self._known = self._decide(saved)
        except CheckpointError as error:
            logging.warning("%s is saved, but no old checkpoint was deleted: %s", path, error)
            return
        failed = self.release(found, saved, decision, names)
        for prefix in decision.delete:
            if prefix in failed:
                reason = failed[prefix]
                logging.warning("%s: not deleted; the next save tries again: %s", prefix, reason)
            else:
                logging.info("deleted %s: no rule keeps it", prefix)
                self._own.pop(prefix, None)
        own = next((one for one in saved if one.prefix == path), None)
        if own is not None:
            staying = [one for one in saved if one.prefix not in decision.delete]
            for remark in self._remarks.after(own.record, decision, staying):
                logging.warning("%s", remark)

    def mend_state(self) -> None:
        """Write the state file if the newest checkpoint is not in it, as after a failed write."""
        found, state = self.checkpoints(), self._state()
        if found and state is not None and os.path.split(found[-1].prefix)[1] not in state:
            _, found, saved = self._now()
            decision, _ = self._decide(saved)
            with contextlib.suppress(OSError, SaveError):  # the next save tries again
                self.write_state(found, saved, decision.last_preserved)

    def catch_up(self) -> None:
        """Write the state file, and delete what it kept, if that has failed after the last save."""
        if self._is_behind:
            self.sweep(next(reversed(self._own), self.newest))

    def report(self, record: CommitRecord, prefix: str, path: str, seconds: float) -> SaveReport:
        """The report of a save; ``path`` is the prefix as the caller spells it."""
        own = (join(self.path, name) for name in record.files)
        parts = (index_path(prefix), record_file.path_of(prefix), *own)
        return SaveReport(
            path,
            record.number,
            record.step,
            record.epoch,
            record.metrics,
            record.metadata,
            sum(self.files.status(part)[0] for part in parts),
            seconds,
        )
