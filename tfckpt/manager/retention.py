"""Which checkpoints to delete: a pure function of what there is and of the rules.

What any rule keeps is kept, and so is what no rule may delete. ``every_n_steps`` and
``every_n_hours`` keep for good: oldest first, each decision depends only on what the rule itself
kept before. So it comes out the same after the others are deleted, after a restart, and whenever
more are saved. ``best`` gives one up for a better one only, and gives up none before it has a value
to compare: its metric may be misspelt. Nothing depends on the order in which the directory lists
its files, or on the clock.

A run that begins anew in the directory of another one has nothing yet, and must not age the other
one out: of the runs before it, the checkpoint that came furthest stays until the new run has come
as far.

``every_n_hours`` means what ``keep_checkpoint_every_n_hours`` means in TensorFlow's
CheckpointManager (tensorflow/python/checkpoint/checkpoint_management.py): of those that age out,
one is kept for ever whenever that many hours have passed since the last one that was.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import operator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.policy import Keep

RUN_BEFORE = "newest of the run before"
_SECONDS = 3600.0


class Committed(Protocol):
    """What the rules ask of a committed checkpoint, as :class:`SavedCheckpoint` describes it."""

    @property
    def prefix(self) -> str: ...

    @property
    def number(self) -> int: ...

    @property
    def time(self) -> float: ...

    @property
    def step(self) -> int | None: ...

    @property
    def metrics(self) -> Mapping[str, float]: ...

    @property
    def finite(self) -> bool | None: ...

    @property
    def order(self) -> tuple[int, int]: ...

    @property
    def run_first(self) -> tuple[int, int] | None: ...

    @property
    def mid_epoch(self) -> bool: ...


@dataclasses.dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A committed checkpoint, as the rules see it.

    Attributes:
        prefix: its path.
        number: of the checkpoint.
        time: Unix time of the save as its record says, even where that is in the future.
        step: of training, where known.
        metrics: what ``best`` compares.
        finite: whether all weights and slots are finite, None where that is not known.
        sequence: a later save has a higher one; None where the number says it.
        run_first: the order of the first save of its run, None where that is not known.
        mid_epoch: whether ``fit`` saved it before the end of an epoch.
    """

    prefix: str
    number: int
    time: float
    step: int | None
    metrics: Mapping[str, float]
    finite: bool | None
    sequence: tuple[int, int] | None = None
    run_first: tuple[int, int] | None = None
    mid_epoch: bool = False

    @property
    def order(self) -> tuple[int, int]:
        return self.sequence or (self.number, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What stays and what goes.

    Attributes:
        kept: prefix → the reasons why it stays, oldest first.
        delete: the other prefixes, oldest first.
        preserved: numbers of those that ``every_n_hours`` keeps for good.
        last_preserved: time of the newest of those, else the anchor.
    """

    kept: Mapping[str, tuple[str, ...]]
    delete: tuple[str, ...]
    preserved: frozenset[int]
    last_preserved: float

    def __repr__(self) -> str:
        return f"<Decision: {len(self.kept):,} kept, {len(self.delete):,} to delete>"


def decide(
    saved: Iterable[Committed],
    rules: Sequence[Keep],
    *,
    anchor: float,
    preserved: Collection[int] = (),
    in_use: Collection[str] = (),
) -> Decision:
    """What to keep and what to delete.

    Args:
        saved: the committed checkpoints, in any order.
        rules: what is kept; without any, everything.
        anchor: Unix time at which the run began; ``every_n_hours`` counts from there.
        preserved: numbers that ``every_n_hours`` has kept, as far as is known; they stay even
            where that rule was dropped since, as in TensorFlow.
        in_use: prefixes that are never deleted.

    >>> from tfckpt.policy import Keep
    >>> losses = {n: {"loss": 1 / n} for n in (1, 2, 3, 4)}
    >>> runs = [SavedCheckpoint(f"ckpt-{n}", n, 0.0, n, loss, True) for n, loss in losses.items()]
    >>> decision = decide(runs, [Keep(latest=2), Keep(pin=(1,))], anchor=0.0)
    >>> decision.delete
    ('ckpt-2',)
    >>> decision.kept["ckpt-1"], decision.kept["ckpt-3"]
    (('pinned',), ('latest 2',))
    """
    ordered = sorted(saved, key=operator.attrgetter("order"))
    reasons: dict[str, list[str]] = {}
    for_good = [one for one in ordered if one.number in preserved]
    for rule in rules:
        for one, reason in _kept_by(rule, ordered, anchor):
            reasons.setdefault(one.prefix, []).append(reason)
            if rule.every_n_hours is not None:
                for_good.append(one)
    for one in for_good:
        reasons.setdefault(one.prefix, ["kept for good"])
    for one, reason in _protected(ordered, in_use):
        reasons.setdefault(one.prefix, []).append(reason)
    if rules and (before := run_before(ordered)) is not None:
        reasons.setdefault(before.prefix, []).append(RUN_BEFORE)
    if not rules:
        reasons = {one.prefix: ["no rule", *reasons.get(one.prefix, ())] for one in ordered}
    return Decision(
        {one.prefix: tuple(reasons[one.prefix]) for one in ordered if one.prefix in reasons},
        tuple(one.prefix for one in ordered if one.prefix not in reasons),
        frozenset(one.number for one in for_good),
        max(for_good, key=operator.attrgetter("order")).time if for_good else anchor,
    )


def _kept_by(rule: Keep, saved: list[Committed], anchor: float) -> Iterator[tuple[Committed, str]]:
    kept: Iterable[Committed] = ()
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
        best = _best(saved, rule.best, rule.monitor, greatest=rule.mode == "max")
        for one in best:
            yield one, f"best {rule.best} by {rule.monitor} ({one.metrics[rule.monitor]:g})"
        if not best and rule.expected:
            kept = (one for one in saved if may_have(one.mid_epoch, rule.monitor))
            reason = without_metric(saved, rule.monitor)
    for one in kept:
        yield one, reason


def may_have(mid_epoch: bool, monitor: str) -> bool:
    """Whether a save can bring this metric: validation comes at the end of an epoch."""
    return not (mid_epoch and monitor.startswith("val_"))


def without_metric(saved: Iterable[Committed], monitor: str) -> str:
    """Why nothing can be compared by a metric of which no checkpoint has a number."""
    if any(monitor in one.metrics for one in saved):
        return f"the metric {monitor!r} is NaN in every checkpoint so far"
    return f"no checkpoint has the metric {monitor!r} yet"


def run_before(saved: Sequence[Committed]) -> Committed | None:
    """What came furthest before the run of the newest began, until that run has come as far.

    By step, else by the number of saves.

    Args:
        saved: in the order of saves.
    """
    newest = saved[-1] if saved else None
    if newest is None or newest.run_first is None:
        return None
    ahead = [one for one in saved if one.order < newest.run_first and _is_ahead(one, newest)]
    return max(ahead, key=lambda one: (one.step or 0, _saves(one), one.order), default=None)


def _is_ahead(one: Committed, newest: Committed) -> bool:
    if one.step is not None and newest.step is not None:
        return one.step > newest.step
    return _saves(one) > _saves(newest)


def _saves(one: Committed) -> int:
    """How many saves its run had made, by the numbers."""
    first = (1, 0) if one.run_first is None else one.run_first
    return one.order[0] - first[0] + 1


def _best(saved: list[Committed], count: int, monitor: str, *, greatest: bool) -> list[Committed]:
    """Of equals the newer, which has been trained longer; an infinite one after all others."""
    sign = 1.0 if greatest else -1.0
    known = [
        (math.isfinite(value), sign * value, one.order, one.prefix, one)
        for one in saved
        if not math.isnan(value := one.metrics.get(monitor, math.nan))
    ]
    return [one for *_, one in heapq.nlargest(count, known)]


def _by_steps(saved: list[Committed], steps: int) -> Iterator[Committed]:
    """The first at or after each multiple, counted anew where the steps go back.

    A run that was restored from an earlier step passes the multiples again, and its checkpoints
    are not those of the run that was given up. Whether the steps went back shows only against the
    last that was kept, since others may be deleted.
    """
    last = 0
    for one in saved:
        step = one.step
        if step is not None and step >= steps and (step // steps != last // steps or step <= last):
            last = step
            yield one


def _by_hours(saved: list[Committed], hours: float, anchor: float) -> Iterator[Committed]:
    """One whenever the hours have passed, in either direction.

    A clock that was wrong by years, and then set right, would else keep none for years.
    """
    span = hours * _SECONDS
    last = anchor
    for one in saved:
        if one.time - span >= last or one.time + span <= last:
            last = one.time
            yield one


def _protected(saved: list[Committed], in_use: Collection[str]) -> Iterator[tuple[Committed, str]]:
    """What no rule may delete.

    Where none is known to be finite, the newest of which nothing is known may be.
    """
    if saved:
        yield saved[-1], "newest"
    for one in saved:
        if one.prefix in in_use:
            yield one, "in use"
    for finite, reason in ((True, "last with only finite values"), (None, "perhaps finite")):
        for one in reversed(saved):
            if one.finite is finite:
                yield one, reason
                return
