"""Which checkpoints to delete: a pure function of the committed checkpoints and the rules.

A checkpoint is kept if any rule keeps it, or if no rule may delete it. ``every_n_steps`` and
``every_n_hours`` keep permanently: going from the oldest to the newest, each decision depends only
on what the same rule kept before. So the result is the same after the others are deleted, after a
restart, and when more are saved. ``best`` deletes one only for a better one, and none before it has
a value to compare, since its metric may be misspelt. Nothing depends on the order in which the
directory lists its files, or on the clock.

A run deletes only what it has saved, or the run that it goes on from; the rules do not count the
checkpoints of others. While a ``fit`` runs, the last checkpoint of the one before it is kept, too,
for the code between the two.

``every_n_hours`` means what ``keep_checkpoint_every_n_hours`` means in TensorFlow's
CheckpointManager (tensorflow/python/checkpoint/checkpoint_management.py): of those that age out,
one is kept permanently whenever that many hours have passed since the last one kept.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import operator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from tfckpt.policy import Keep
    from tfckpt.stored.commits.record_file import CommitRecord

ANOTHER_RUN = "of another run"
FIT_BEFORE = "last of the previous fit"
_SECONDS = 3600.0


class SavedCheckpoint(NamedTuple):
    """A committed checkpoint, as the rules see it.

    Attributes:
        time: Unix time of the save as its record says, even if that is in the future.
        step: training step; None if unknown.
        finite: whether all weights and slots are finite; None if unknown.
        run: the id of the run that saved it; None if unknown.
        mid_epoch: whether ``fit`` saved it before the end of an epoch.
        fit: the number of that ``fit``; None for a loop of one's own.
    """

    prefix: str
    number: int
    time: float
    step: int | None
    metrics: Mapping[str, float]
    finite: bool | None
    run: str | None = None
    mid_epoch: bool = False
    fit: int | None = None

    @classmethod
    def of(cls, prefix: str, number: int, head: CommitRecord) -> Self:
        about = head.time, head.step, head.metrics, head.finite, head.run, head.mid_epoch
        return cls(prefix, number, *about, head.fit)


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What is kept and what is deleted.

    Attributes:
        kept: prefix → the reasons why it is kept, oldest first.
        delete: the other prefixes, oldest first.
        preserved: numbers of those that ``every_n_hours`` keeps permanently.
        last_preserved: Unix time of the newest of those, else the anchor.
    """

    kept: Mapping[str, tuple[str, ...]]
    delete: tuple[str, ...]
    preserved: frozenset[int]
    last_preserved: float

    def __repr__(self) -> str:
        return f"<Decision: {len(self.kept):,} kept, {len(self.delete):,} to delete>"


def decide(
    saved: Iterable[SavedCheckpoint],
    rules: Sequence[Keep],
    *,
    anchor: float,
    preserved: Collection[int] = (),
    run: str | None = None,
    restored: str = "",
) -> Decision:
    """What to keep and what to delete.

    Args:
        saved: the committed checkpoints, in any order.
        rules: without any, everything is kept.
        anchor: Unix time at which the run began; ``every_n_hours`` counts from there.
        preserved: numbers that ``every_n_hours`` has kept so far; they are kept even if that rule
            was removed since, as in TensorFlow.
        run: the id of the run that may delete; without one, every checkpoint counts as its own.
        restored: prefix of the one that the run was restored from, though there were newer ones.

    >>> from tfckpt.policy import Keep
    >>> losses = {n: {"loss": 1 / n} for n in (1, 2, 3, 4)}
    >>> runs = [SavedCheckpoint(f"ckpt-{n}", n, 0.0, n, loss, True) for n, loss in losses.items()]
    >>> decision = decide(runs, [Keep(latest=2), Keep(pin=(1,))], anchor=0.0)
    >>> decision.delete
    ('ckpt-2',)
    >>> decision.kept["ckpt-1"], decision.kept["ckpt-3"]
    (('pinned',), ('latest 2',))
    """
    everything = sorted(saved, key=operator.attrgetter("number"))
    ordered = [one for one in everything if run is None or one.run == run]
    reasons: dict[str, list[str]] = {
        one.prefix: [ANOTHER_RUN] for one in everything if run is not None and one.run != run
    }
    for_good = [one for one in ordered if one.number in preserved]
    for rule in rules:
        for one, reason in _kept_by(rule, ordered, anchor):
            reasons.setdefault(one.prefix, []).append(reason)
            if rule.every_n_hours is not None:
                for_good.append(one)
    for one in for_good:
        reasons.setdefault(one.prefix, ["kept permanently"])
    for one, reason in _protected(ordered, restored):
        reasons.setdefault(one.prefix, []).append(reason)
    if rules and (ended := _fit_before(ordered)) is not None:
        reasons.setdefault(ended.prefix, []).append(FIT_BEFORE)
    if not rules:
        reasons = {one.prefix: ["no rule", *reasons.get(one.prefix, ())] for one in everything}
    return Decision(
        {one.prefix: tuple(reasons[one.prefix]) for one in everything if one.prefix in reasons},
        tuple(one.prefix for one in ordered if one.prefix not in reasons),
        frozenset(one.number for one in for_good),
        max(for_good, key=operator.attrgetter("number")).time if for_good else anchor,
    )


def united(decided: Sequence[Decision], saved: Iterable[SavedCheckpoint]) -> Decision:
    """What was decided about the runs of a directory, each by itself."""
    prefixes = [one.prefix for one in sorted(saved, key=operator.attrgetter("number"))]
    kept = {prefix: why for each in decided for prefix, why in each.kept.items()}
    deleted = {prefix for each in decided for prefix in each.delete}
    return Decision(
        {prefix: kept[prefix] for prefix in prefixes if prefix in kept},
        tuple(prefix for prefix in prefixes if prefix in deleted),
        frozenset().union(*(each.preserved for each in decided)),
        max((each.last_preserved for each in decided), default=0.0),
    )


def _kept_by(
    rule: Keep, saved: list[SavedCheckpoint], anchor: float
) -> Iterator[tuple[SavedCheckpoint, str]]:
    kept: Iterable[SavedCheckpoint] = ()
    reason = ""
    if rule.latest is not None:
        kept, reason = saved[-rule.latest :], f"latest {rule.latest}"
    elif rule.every_n_steps is not None:
        kept, reason = _by_steps(saved, rule.every_n_steps), f"every {rule.every_n_steps} steps"
    elif rule.every_n_hours is not None:
        kept = _by_hours(saved, rule.every_n_hours, anchor)
        reason = f"every {rule.every_n_hours:g} h"
    elif rule.pin is not None:
        kept, reason = (one for one in saved if one.number in rule.pin), "pinned"
    elif rule.best is not None and rule.monitor is not None:
        best = ranked(saved, rule.best, rule.monitor, greatest=rule.mode == "max")
        for one in best:
            yield one, f"best {rule.best} by {rule.monitor} ({one.metrics[rule.monitor]:g})"
        if not best and rule.expected:
            kept = (one for one in saved if may_have(one.mid_epoch, rule.monitor))
            reason = without_metric(saved, rule.monitor)
    for one in kept:
        yield one, reason


def may_have(mid_epoch: bool, monitor: str) -> bool:
    """Whether a save can have this metric: validation runs at the end of an epoch."""
    return not (mid_epoch and monitor.startswith("val_"))


def without_metric(saved: Iterable[SavedCheckpoint], monitor: str) -> str:
    """Why a metric that is missing or NaN in every checkpoint cannot be compared."""
    if any(monitor in one.metrics for one in saved):
        return f"the metric {monitor!r} is NaN in every checkpoint so far"
    return f"no checkpoint has the metric {monitor!r} yet"


def _fit_before(saved: Sequence[SavedCheckpoint]) -> SavedCheckpoint | None:
    """The last checkpoint that the run's previous ``fit`` saved; None if there is none."""
    newest = saved[-1] if saved else None
    if newest is None or newest.fit is None:
        return None
    of_run = (one for one in saved if one.run == newest.run)
    earlier = [(one.fit, one.number, one) for one in of_run if one.fit is not None]
    return max((each for each in earlier if each[0] < newest.fit), default=(0, 0, None))[2]


def ranked(
    saved: Sequence[SavedCheckpoint], count: int, monitor: str, *, greatest: bool
) -> list[SavedCheckpoint]:
    """The best first; of equal values the newer, which was trained longer; infinite ones last."""
    sign = 1.0 if greatest else -1.0
    known = [
        (math.isfinite(value), sign * value, one.number, one.prefix, one)
        for one in saved
        if not math.isnan(value := one.metrics.get(monitor, math.nan))
    ]
    return [one for *_, one in heapq.nlargest(count, known)]


def _by_steps(saved: list[SavedCheckpoint], steps: int) -> Iterator[SavedCheckpoint]:
    """The first at or after each multiple; the count restarts when the steps go back.

    A run that was restored from an earlier step passes the multiples again, with checkpoints of its
    own. Steps are compared with those of the last kept checkpoint, since others may be deleted.
    """
    last = 0
    for one in saved:
        step = one.step
        if step is not None and step >= steps and (step // steps != last // steps or step <= last):
            last = step
            yield one


def _by_hours(
    saved: list[SavedCheckpoint], hours: float, anchor: float
) -> Iterator[SavedCheckpoint]:
    """One whenever the hours have passed, in either direction.

    Otherwise a clock that was years ahead, then corrected, would keep none for years.
    """
    span = hours * _SECONDS
    last = anchor
    for one in saved:
        if one.time - span >= last or one.time + span <= last:
            last = one.time
            yield one


def _protected(
    saved: list[SavedCheckpoint], restored: str
) -> Iterator[tuple[SavedCheckpoint, str]]:
    """What no rule may delete: the newest, the restored one, and the newest with finite values.

    If none is known to be finite, the newest whose values were not checked is kept instead.
    """
    if saved:
        yield saved[-1], "newest"
    for one in saved:
        if one.prefix == restored:
            yield one, "restored, though there are newer ones"
    for finite, reason in (
        (True, "last with only finite values"),
        (None, "last that may be finite"),
    ):
        for one in reversed(saved):
            if one.finite is finite:
                yield one, reason
                return
