"""Which checkpoints to delete: a pure function of what there is and of the rules.

What any rule keeps is kept, and so is what no rule may delete. ``every_n_steps`` and
``every_n_hours`` keep for good: oldest first, each decision depends only on what the rule itself
kept before. So it comes out the same after the others are deleted, after a restart, and whenever
more are saved. ``best`` gives one up for a better one only. Nothing depends on the order in which
the directory lists its files, or on the clock.

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

_SECONDS = 3600.0


class Committed(Protocol):
    """What the rules ask of a committed checkpoint; :class:`Saved` says what each of it is."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class Saved:
    """A committed checkpoint, as the rules see it.

    Attributes:
        prefix: its path.
        number: of the checkpoint.
        time: Unix time of the save as its record says, even where that is in the future.
        step: of training, where known.
        metrics: what ``best`` compares.
        finite: whether all weights and slots are finite, None where that is not known.
        sequence: a later save has a higher one; None where the number says it.
    """

    prefix: str
    number: int
    time: float
    step: int | None
    metrics: Mapping[str, float]
    finite: bool | None
    sequence: tuple[int, int] | None = None

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
    >>> runs = [Saved(f"ckpt-{n}", n, 0.0, n, {"loss": 1 / n}, True) for n in (1, 2, 3, 4)]
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
        for one in _best(saved, rule.best, rule.monitor, greatest=rule.mode == "max"):
            yield one, f"best {rule.best} by {rule.monitor} ({one.metrics[rule.monitor]:g})"
    for one in kept:
        yield one, reason


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
