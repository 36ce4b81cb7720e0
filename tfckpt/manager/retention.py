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
import time
from typing import TYPE_CHECKING

from tfckpt.stored.commits.discovery import COMMITTED, CheckpointInfo
from tfckpt.stored.commits.record_file import CommitRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.policy import Keep

ANOTHER_RUN = "of another run"
FIT_BEFORE = "last of the previous fit"
_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What is kept and what is deleted.

    Attributes:
        kept: prefix → the reasons why it is kept, oldest first.
        delete: the other prefixes, oldest first.
        preserved: numbers of those that ``every_n_hours`` keeps permanently.
        last_preserved: Unix time of the newest of those, else of the anchor, before all that stay.
    """

    kept: Mapping[str, tuple[str, ...]]
    delete: tuple[str, ...]
    preserved: frozenset[int]
    last_preserved: float

    def __repr__(self) -> str:
        return f"<Decision: {len(self.kept):,} kept, {len(self.delete):,} to delete>"


def decide(
    saved: Iterable[CheckpointInfo],
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
    >>> saved = [CheckpointInfo(f"ckpt-{n}", n, COMMITTED, CommitRecord(n)) for n in (1, 2, 3, 4)]
    >>> decision = decide(saved, [Keep(latest=2), Keep(pin=(1,))], anchor=0.0)
    >>> decision.delete
    ('ckpt-2',)
    >>> decision.kept["ckpt-1"], decision.kept["ckpt-3"]
    (('pinned',), ('latest 2',))
    """
    everything = sorted(saved, key=operator.attrgetter("number"))
    ordered = [one for one in everything if run is None or one.record.run == run]
    reasons: dict[str, list[str]] = {
        one.prefix: [ANOTHER_RUN] for one in everything if run is not None and one.record.run != run
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
    # TensorFlow takes what is not later for one that stays for good; a clock may be set back.
    kept = [one.time for one in ordered if one.prefix in reasons]
    begun = min([anchor, *(math.nextafter(each, 0.0) for each in kept)])
    return Decision(
        {one.prefix: tuple(reasons[one.prefix]) for one in everything if one.prefix in reasons},
        tuple(one.prefix for one in ordered if one.prefix not in reasons),
        frozenset(one.number for one in for_good if one.number is not None),
        max(for_good, key=operator.attrgetter("number")).time if for_good else begun,
    )


def undamaged(found: Iterable[CheckpointInfo]) -> list[CheckpointInfo]:
    """Those that rules decide about, the oldest first."""
    numbered = (one for one in found if one.head and one.number is not None)
    whole = [one for one in numbered if one.state == COMMITTED and not one.problem]
    return sorted(whole, key=operator.attrgetter("number"))


def decide_by_run(found: Iterable[CheckpointInfo], rules: Sequence[Keep]) -> Decision:
    """What the rules decide about each run of a directory by itself.

    Damaged checkpoints are neither kept nor deleted, but tell when their run began.
    """
    ordered = sorted((one for one in found if one.head), key=operator.attrgetter("number"))
    newest = {one.record.run: one.record for one in ordered}
    saved, decided = undamaged(ordered), list[Decision]()
    for run in dict.fromkeys(one.record.run for one in saved):
        own = [one for one in saved if one.record.run == run]
        began, preserved = newest[run].run_began, newest[run].preserved
        decided.append(decide(own, rules, anchor=began or time.time(), preserved=preserved))
    kept = {prefix: why for each in decided for prefix, why in each.kept.items()}
    return Decision(
        {one.prefix: kept[one.prefix] for one in saved if one.prefix in kept},
        tuple(one.prefix for one in saved if one.prefix not in kept),
        frozenset().union(*(each.preserved for each in decided)),
        max((each.last_preserved for each in decided), default=0.0),
    )


def following(saved: Sequence[CheckpointInfo]) -> CheckpointInfo:
    """The save after these, as far from the last one as that is from the one before.

    Its metrics are unknown.
    """
    before, last = saved[-2:] if len(saved) > 1 else (saved[0], saved[0])
    earlier, step = before.record.step, last.record.step
    step = None if step is None or earlier is None else step + max(step - earlier, 1)
    record = CommitRecord(step=step, finite=last.record.finite, run=last.record.run)
    seconds = max(last.time - before.time, 0.0)
    return CheckpointInfo("", (last.number or 0) + 1, COMMITTED, record, time=last.time + seconds)


def _kept_by(
    rule: Keep, saved: list[CheckpointInfo], anchor: float
) -> Iterator[tuple[CheckpointInfo, str]]:
    kept: Iterable[CheckpointInfo] = ()
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
            kept = (one for one in saved if may_have(one.record.mid_epoch, rule.monitor))
            reason = without_metric(saved, rule.monitor)
    for one in kept:
        yield one, reason


def may_have(mid_epoch: bool, monitor: str) -> bool:
    """Whether a save can have this metric: validation runs at the end of an epoch."""
    return not (mid_epoch and monitor.startswith("val_"))


def without_metric(saved: Iterable[CheckpointInfo], monitor: str) -> str:
    """Why a metric that is missing or NaN in every checkpoint cannot be compared."""
    if any(monitor in one.metrics for one in saved):
        return f"the metric {monitor!r} is NaN in every checkpoint so far"
    return f"no checkpoint has the metric {monitor!r} yet"


def _fit_before(saved: Sequence[CheckpointInfo]) -> CheckpointInfo | None:
    """The last checkpoint that the run's previous ``fit`` saved; None if there is none."""
    newest = saved[-1] if saved else None
    if newest is None or (fit := newest.record.fit) is None:
        return None
    of_run = [one for one in saved if one.record.run == newest.record.run]
    earlier = [one for one in of_run if one.record.fit is not None and one.record.fit < fit]
    return max(earlier, key=lambda one: (one.record.fit, one.number), default=None)


def ranked(
    saved: Sequence[CheckpointInfo], count: int, monitor: str, *, greatest: bool
) -> list[CheckpointInfo]:
    """The best first; of equal values the newer, which was trained longer; infinite ones last."""
    sign = 1.0 if greatest else -1.0
    known = [
        (math.isfinite(value), sign * value, one.number or 0, one.prefix, one)
        for one in saved
        if not math.isnan(value := one.metrics.get(monitor, math.nan))
    ]
    return [one for *_, one in heapq.nlargest(count, known)]


def _by_steps(saved: list[CheckpointInfo], steps: int) -> Iterator[CheckpointInfo]:
    """The first at or after each multiple; the count restarts when the steps go back.

    A run that was restored from an earlier step passes the multiples again, with checkpoints of its
    own. Steps are compared with those of the last kept checkpoint, since others may be deleted.
    """
    last = 0
    for one in saved:
        step = one.record.step
        if step is not None and step >= steps and (step // steps != last // steps or step <= last):
            last = step
            yield one


def _by_hours(saved: list[CheckpointInfo], hours: float, anchor: float) -> Iterator[CheckpointInfo]:
    """One whenever the hours have passed, in either direction.

    Otherwise a clock that was years ahead, then corrected, would keep none for years.
    """
    span = hours * _SECONDS
    last = anchor
    for one in saved:
        if one.time - span >= last or one.time + span <= last:
            last = one.time
            yield one


def _protected(saved: list[CheckpointInfo], restored: str) -> Iterator[tuple[CheckpointInfo, str]]:
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
            if one.record.finite is finite:
                yield one, reason
                return
