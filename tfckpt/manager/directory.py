"""The checkpoints of one directory: found by the directory itself, deleted record first.

TensorFlow's ``checkpoint`` state file is written for TensorFlow's tools and read for nothing but
the times that they are told: a damaged one costs nothing, and one that points elsewhere is not
followed.

Names tell what there is and in which order, so that a directory of very many checkpoints is listed
and its newest one found without reading their records. A record is read once, when a rule asks for
what only it says, or before its checkpoint is kept or deleted by a rule.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import TYPE_CHECKING

from absl import logging

from tfckpt.core.text import no_space
from tfckpt.errors import CheckpointError, SaveError
from tfckpt.manager.retention import Decision, SavedCheckpoint, decide, run_before
from tfckpt.stored.commits import discovery, record_file, recovery
from tfckpt.stored.commits.discovery import Candidate, CheckpointKind
from tfckpt.stored.io.files import Files, join, temporary
from tfckpt.stored.open import open_checkpoint
from tfckpt.stored.paths.state_file import STATE_FILE, CheckpointState, read_state, render

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.manager.retention import Committed
    from tfckpt.policy import Keep
    from tfckpt.stored.commits.record import CommitRecord


@dataclasses.dataclass(frozen=True)
class Directory:
    """A directory, and the name that its checkpoints begin with."""

    path: str
    checkpoint_name: str
    files: Files
    _heads: dict[str, CommitRecord | None] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def prefix(self) -> str:
        """What the paths of all of them begin with."""
        return join(self.path, self.checkpoint_name)

    def checkpoints(self) -> list[Candidate]:
        """In the order of their saves, oldest first; those with no index and no record are none."""
        return [one for one in self._in_order() if one.kind is not CheckpointKind.TORN]

    def _in_order(self) -> list[Candidate]:
        found = discovery.candidates(self.path, self.checkpoint_name, self.files)
        return sorted(found, key=lambda one: (self.order(one), one.prefix))

    def order(self, one: Candidate) -> tuple[int, int]:
        """The place of a checkpoint in the order of saves: its number, unless its record differs.

        It does where numbers were given by hand and went down.
        """
        in_order = one.kind is not CheckpointKind.COMMITTED or not one.out_of_order
        head = None if in_order else self.head(one.prefix)
        return (one.number, 0) if head is None else head.order

    def restorable(self) -> Iterator[tuple[str, str]]:
        """Prefixes in the order in which to try them, ``""`` with the reason not to try one.

        The newest first, but last one that tfckpt wrote and whose record is gone, since nobody says
        what it is. Where all have been tried and a writer has meanwhile saved more, those follow.
        """
        tried: set[str] = set()
        while fresh := [one for one in reversed(self._in_order()) if one.prefix not in tried]:
            committed = (self.order(one) for one in fresh if one.kind is CheckpointKind.COMMITTED)
            acknowledged = next(committed, None)
            doubtful = []
            for one in fresh:
                tried.add(one.prefix)
                newer = acknowledged is not None and self.order(one) > acknowledged
                if one.kind is CheckpointKind.TORN:
                    yield "", f"{one.prefix}: has data and no index, which was lost or not copied"
                elif (
                    newer
                    and one.kind is CheckpointKind.FOREIGN
                    and self._without_record(one.prefix)
                ):
                    doubtful.append(one.prefix)
                    yield "", f"{one.prefix}: tfckpt wrote it, and its commit record is missing"
                else:
                    yield one.prefix, ""
            for prefix in doubtful:
                yield prefix, ""

    def _without_record(self, prefix: str) -> bool:
        try:
            with open_checkpoint(prefix, files=self.files) as stored:
                return stored.kind == "uncommitted"
        except CheckpointError:
            return False  # whoever tries it will say what is wrong with it

    def head(self, prefix: str) -> CommitRecord | None:
        """What the record of a checkpoint says but its values, None where there is none."""
        try:
            return self._heads[prefix]
        except KeyError:
            pass
        try:
            found = record_file.read_head(record_file.path_of(prefix), prefix, self.files)
        except CheckpointError:  # whoever restores it will say what is wrong with it
            found = None
        self._heads[prefix] = found
        return found

    def saved(self, checkpoints: Iterable[Candidate]) -> list[SavedCheckpoint]:
        """Those that tfckpt committed, as the rules of what to keep see them."""
        result = []
        for one in checkpoints:
            head = self.head(one.prefix) if one.kind is CheckpointKind.COMMITTED else None
            if head is not None:
                facts = head.time, head.step, head.metrics, head.finite, head.sequence
                run = head.run_first, head.mid_epoch
                result.append(SavedCheckpoint(one.prefix, one.number, *facts, *run))
        return result

    def decide(
        self,
        checkpoints: Iterable[Candidate],
        rules: Sequence[Keep],
        *,
        anchor: float,
        preserved: Collection[int],
        in_use: Collection[str],
    ) -> Decision:
        """What to keep of those that tfckpt committed; one without a readable record is none.

        What is to be deleted is still to be made :meth:`sure` of.

        Args:
            checkpoints: what there is.
            rules: what is kept.
            anchor: as :func:`tfckpt.manager.retention.decide` has it, like the other two.
            preserved: numbers that are kept for good.
            in_use: prefixes that are never deleted.
        """
        unread = [_Unread(self, one) for one in checkpoints if one.kind is CheckpointKind.COMMITTED]
        while True:
            with contextlib.suppress(_UnreadableError):
                decision = decide(unread, rules, anchor=anchor, preserved=preserved, in_use=in_use)
                for prefix in decision.kept if rules else ():
                    self._readable(prefix)
                return decision
            unread = [one for one in unread if self._heads.get(one.prefix, ...) is not None]

    def sure(self, decision: Decision) -> Decision:
        """The same without deleting what has no readable record; those records are read now."""
        readable = tuple(prefix for prefix in decision.delete if self.head(prefix) is not None)
        return dataclasses.replace(decision, delete=readable)

    def _readable(self, prefix: str) -> CommitRecord:
        if (head := self.head(prefix)) is None:
            raise _UnreadableError
        return head

    def history(self) -> tuple[float, frozenset[int]]:
        """When the run began, and which numbers `every_n_hours` keeps for good, as records say."""
        preserved: frozenset[int] | None = None
        for one in reversed(self.checkpoints()):
            head = self.head(one.prefix) if one.kind is CheckpointKind.COMMITTED else None
            if head is None:
                continue
            if preserved is None:
                preserved = frozenset(head.preserved)
            if head.run_began is not None:
                return min(head.run_began, time.time()), preserved
        return time.time(), preserved or frozenset()

    def release(self, found: Iterable[Candidate], decision: Decision) -> dict[str, OSError]:
        """Delete what no rule keeps, once TensorFlow's tools are told what stays.

        Args:
            found: all checkpoints there are.
            decision: which of them to delete.

        Returns:
            Prefix → why it is still there; the next call goes on deleting it.
        """
        going = set(decision.delete)
        try:
            staying = [one for one in found if one.prefix not in going]
            self.write_state(staying, decision.last_preserved)
        except OSError as error:
            logging.warning("the state file for TensorFlow's tools was not written: %s", error)
        failed = {}
        for prefix in decision.delete:
            try:
                self.delete(prefix)
            except OSError as error:  # noqa: PERF203 (one that stays keeps no other from going)
                failed[prefix] = error
        return failed

    def run_before(self, step: int | None) -> Committed | None:
        """What would stay of the runs before one that begins now, at this step."""
        saved = self.saved(self.checkpoints())
        number = saved[-1].order[0] + 1 if saved else 1
        coming = SavedCheckpoint("", number, 0.0, step, {}, None, run_first=(number, 0))
        return run_before([*saved, coming])

    def claim(self) -> int:
        """Be the only process that saves here, and tidy what a dead one left.

        Returns:
            A number that the next one is to be above.

        Raises:
            InUseError: another process is.
            OSError: the directory cannot be made or written.
        """
        return recovery.claim(self.path, self.checkpoint_name, self.files)

    def claim_for(self, nbytes: int) -> None:
        """The same before a training, and see that a save of so many bytes could be made.

        Raises:
            InUseError: another process saves into the directory.
            SaveError: it cannot be made or written, or has no room.
        """
        try:
            self.claim()
            if self.files.renames:  # a store without renames keeps what was tried
                with temporary(self._file(".tfckpt.probe")) as probe:
                    self.files.create(probe).close()
                    self.files.remove(probe)
        except SaveError:
            raise
        except OSError as error:
            raise SaveError(
                f"{self.path}: cannot hold checkpoints: {error.strerror or error}",
                hint="nothing was trained; give a directory that this process can make and write",
            ) from error
        free = self.files.free(self.path)
        if free is not None and free < nbytes:
            raise SaveError(
                f"{self.path}: {no_space(nbytes, free)}",
                hint="make room, or save into a directory on another disk; old checkpoints are "
                "deleted only after a new one is saved",
            )

    def forget(self, prefix: str) -> None:
        """Read its record anew: it was saved again under the same number."""
        self._heads.pop(prefix, None)

    def write_state(self, checkpoints: Iterable[Candidate], last_preserved: float) -> None:
        """Tell TensorFlow's tools which checkpoints there are, the newest last.

        One that lost its index is none to them: `latest_checkpoint` would answer None for all.
        """
        whole = [one.prefix for one in checkpoints if one.kind is not CheckpointKind.DAMAGED]
        if not whole:
            return
        names, now = [os.path.split(prefix)[1] for prefix in whole], time.time()
        heads = [self._heads.get(prefix) for prefix in whole]
        known = self._stamps() if None in heads else {}
        for place, name in enumerate(names):
            if heads[place] is None and name not in known:
                heads[place] = self.head(whole[place])
        times = [
            min(known.get(name, now) if head is None else head.time, now)
            for name, head in zip(names, heads, strict=True)
        ]
        state = CheckpointState(names[-1], tuple(names), tuple(times), last_preserved)
        self.files.write_atomic(self._file(STATE_FILE), render(state).encode())

    def _stamps(self) -> dict[str, float]:
        """Name → Unix time, of what the state file tells, which may be damaged or older."""
        try:
            state = read_state(self._file(STATE_FILE), self.files)
        except CheckpointError as error:
            logging.warning("%s; it is written anew", error)
            state = None
        if state is None:
            return {}
        names = (os.path.split(path)[1] for path in state.all_model_checkpoint_paths)
        return dict(zip(names, state.all_model_checkpoint_timestamps, strict=False))

    def delete(self, prefix: str) -> None:
        """Delete a checkpoint of this directory: its record, then its index, then its data."""
        recovery.delete(prefix, self.files)
        self.forget(prefix)

    def _file(self, name: str) -> str:
        return join(self.path, name)


class _UnreadableError(Exception):
    """There is no record that can be read where a rule needs what it says."""


class _Unread:
    """A committed checkpoint as the rules see it: its record is read when one of them asks."""

    def __init__(self, directory: Directory, one: Candidate) -> None:
        self.prefix, self.number, self.order = one.prefix, one.number, directory.order(one)
        self._directory = directory

    @property
    def _head(self) -> CommitRecord:
        return self._directory._readable(self.prefix)

    @property
    def time(self) -> float:
        return self._head.time

    @property
    def step(self) -> int | None:
        return self._head.step

    @property
    def metrics(self) -> Mapping[str, float]:
        return self._head.metrics

    @property
    def finite(self) -> bool | None:
        return self._head.finite

    @property
    def run_first(self) -> tuple[int, int] | None:
        return self._head.run_first

    @property
    def mid_epoch(self) -> bool:
        return self._head.mid_epoch
