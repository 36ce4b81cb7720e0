"""When a save is due, and which checkpoints stay."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tfckpt.manager.retention import SavedCheckpoint, decide
from tfckpt.manager.triggers import Triggers
from tfckpt.policy import Keep


class Clock:
    """Minutes, set by hand."""

    def __init__(self) -> None:
        self.minutes = 1_000.0  # of any origin

    def __call__(self) -> float:
        return self.minutes * 60


@pytest.fixture
def clock() -> Clock:
    return Clock()


def saved_at_steps(due: Triggers, steps: list[int]) -> list[int]:
    """The steps of a run at which a save was due and succeeded."""
    saved = []
    for step in steps:
        if due.at_step(step):
            due.saved(step)
            saved.append(step)
    return saved


@pytest.mark.parametrize(
    ("every", "begun", "steps", "saved"),
    [
        (3, None, range(1, 11), [3, 6, 9]),  # nothing said where it begins: from 0
        (1, None, range(1, 4), [1, 2, 3]),
        (3, 0, range(1, 11), [3, 6, 9]),
        (3, 7, range(8, 15), [10, 13]),  # from the step at which it began
        (3, 7, range(6, 9), []),
        (4, 0, range(0, 30, 3), [6, 12, 18, 24]),  # steps that skip: from the save, not the grid
        (10, 0, [25, 26, 34, 35], [25, 35]),
        (5, None, [], []),
    ],
)
def test_so_many_steps_after_the_last_save(clock, every, begun, steps, saved) -> None:
    due = Triggers(every_steps=every, clock=clock)
    if begun is not None:
        due.begin(begun)
    assert saved_at_steps(due, list(steps)) == saved


def test_steps_count_from_the_restored_one(clock) -> None:
    due = Triggers(every_steps=10, clock=clock)
    due.restored(42)
    due.begin(42)
    assert saved_at_steps(due, list(range(43, 75))) == [52, 62, 72]
    due.restored(52)  # a step back
    assert saved_at_steps(due, list(range(53, 75))) == [62, 72]


def test_beginning_again_starts_no_count_anew(clock) -> None:
    due = Triggers(every_steps=10, every_minutes=10, clock=clock)
    due.begin(0)
    clock.minutes += 9
    due.begin(9)
    assert not due.at_step(9)
    assert due.at_step(10)
    clock.minutes += 1
    assert due.at_step(9)


def test_a_save_that_failed_is_due_again_at_once(clock) -> None:
    due = Triggers(every_steps=3, every_minutes=5, clock=clock)
    due.begin(0)
    assert [due.at_step(step) for step in (2, 3, 4, 5)] == [False, True, True, True]
    due.saved(5)
    assert [due.at_step(step) for step in (6, 7, 8)] == [False, False, True]
    clock.minutes += 5
    assert due.at_step(6)
    assert due.at_step(6)


@pytest.mark.parametrize(
    ("every", "moments", "saved"),
    [
        (10, [1, 9, 9.99, 10, 11, 19.99, 20, 20.5, 31], [10, 20, 31]),
        (0.5, [0.25, 0.5, 0.75, 1.25], [0.5, 1.25]),
        (10, [35, 36, 44.9, 45], [35, 45]),  # from the save, not the grid
    ],
)
def test_so_many_minutes_after_training_began_or_the_last_save(
    clock, every, moments, saved
) -> None:
    due = Triggers(every_minutes=every, clock=clock)
    due.begin(0)
    start, found = clock.minutes, []
    for step, moment in enumerate(moments):
        clock.minutes = start + moment
        if due.at_step(step):
            due.saved(step)
            found.append(moment)
    assert found == saved


def test_minutes_do_not_count_between_restore_and_training(clock) -> None:
    due = Triggers(every_minutes=10, clock=clock)
    due.begin(0)
    clock.minutes += 9
    due.restored(5)
    clock.minutes += 9
    due.begin(5)
    assert not due.at_step(6)
    clock.minutes += 10
    assert due.at_step(7)


def test_many_short_trainings_put_no_save_off(clock) -> None:
    due = Triggers(every_minutes=10, clock=clock)
    found = []
    for epoch in range(1, 7):  # a `fit` of four minutes each
        due.begin(None)
        clock.minutes += 4
        if due.at_epoch(epoch):
            due.saved(None)
            found.append(epoch)
    assert found == [3, 6]


@pytest.mark.parametrize(("every", "saved"), [(1, [1, 2, 3, 4, 5, 6]), (2, [2, 4, 6]), (4, [4])])
def test_every_so_many_epochs(clock, every, saved) -> None:
    due = Triggers(every_epochs=every, clock=clock)
    assert [epoch for epoch in range(1, 7) if due.at_epoch(epoch)] == saved
    assert not due.at_step(10**6)


def test_any_rule_is_enough(clock) -> None:
    due = Triggers(every_steps=100, every_epochs=5, every_minutes=30, clock=clock)
    due.begin(0)
    assert not due.at_step(99)
    assert not due.at_epoch(4)
    assert due.at_step(100)
    assert due.at_epoch(5)
    clock.minutes += 30
    assert due.at_step(1)
    assert due.at_epoch(1)
    due.saved(1)
    assert not due.at_step(100)
    assert due.at_step(101)
    assert not due.at_epoch(1)


HOUR = 3600.0
NAN, INF = math.nan, math.inf


def run(
    *,
    times: list[float] | None = None,
    steps: list[int | None] | None = None,
    losses: list[float | None] | None = None,
    finite: list[bool | None] | None = None,
) -> list[SavedCheckpoint]:
    """Checkpoints 1, 2, 3, … with what is given of each; unless told, ten minutes apart."""
    count = len(times or steps or losses or finite or ())
    return [
        SavedCheckpoint(
            f"ckpt-{index + 1}",
            index + 1,
            600.0 * (index + 1) if times is None else times[index],
            None if steps is None else steps[index],
            {} if losses is None or losses[index] is None else {"loss": losses[index]},
            None if finite is None else finite[index],
        )
        for index in range(count)
    ]


def kept(saved: list[SavedCheckpoint], *rules: Keep, anchor: float = 0.0) -> list[int]:
    """The numbers of those that the rules themselves keep, and not only what no rule may delete."""
    decision = decide(saved, rules, anchor=anchor)
    assert [*decision.kept, *decision.delete] != []
    free = {"newest", "last with only finite values", "last that may be finite"}
    return [int(p[5:]) for p, reasons in decision.kept.items() if not free >= set(reasons)]


def steps(*values: int | None) -> list[SavedCheckpoint]:
    return run(steps=list(values))


def losses(*values: float | None) -> list[SavedCheckpoint]:
    return run(losses=list(values))


def hours(*values: float) -> list[SavedCheckpoint]:
    return run(times=[HOUR * value for value in values])


LEAST = {"monitor": "loss", "mode": "min"}
GREATEST = {"monitor": "loss", "mode": "max"}


@pytest.mark.parametrize(
    ("values", "count", "mode", "stay"),
    [
        ([0.5, 0.1, 0.3, 0.2, 0.4], 2, LEAST, [2, 4]),
        ([0.5, 0.1, 0.3, 0.2, 0.4], 2, GREATEST, [1, 5]),
        ([0.5, 0.1], 9, LEAST, [1, 2]),
        ([1.0, 1.0, 1.0, 0.9], 2, GREATEST, [2, 3]),  # of equals the newer
        ([NAN, 0.2, NAN, 0.1], 3, LEAST, [2, 4]),  # NaN never counts
        ([NAN, 0.2, NAN, 0.1], 3, GREATEST, [2, 4]),
        ([-INF, 0.2, 0.1], 2, LEAST, [2, 3]),  # infinite only where there is nothing better
        ([INF, 0.2, 0.1], 2, GREATEST, [2, 3]),
        ([INF, 0.2, INF], 2, GREATEST, [2, 3]),
        ([None, 0.2, None, 0.1], 3, LEAST, [2, 4]),  # without the metric
        ([NAN, None], 1, LEAST, [1, 2]),  # nothing to compare: nothing is given up
        ([-2.0, 0.0, -3.0], 1, LEAST, [3]),
        ([-2.0, 0.0, -3.0], 1, GREATEST, [2]),
    ],
)
def test_best(values: list[float], count: int, mode: dict[str, str], stay: list[int]) -> None:
    assert kept(losses(*values), Keep(best=count, **mode)) == stay


def test_by_a_metric_that_none_has_nothing_is_given_up() -> None:
    rules = [Keep(latest=1), Keep(best=1, monitor="los", mode="min")]
    decision = decide(losses(0.5, 0.1, 0.4), rules, anchor=0.0)
    assert decision.delete == ()
    assert decision.kept["ckpt-2"] == ("no checkpoint has the metric 'los' yet",)
    decision = decide(losses(NAN, NAN), [Keep(best=1, **LEAST)], anchor=0.0)
    assert decision.kept["ckpt-1"] == ("the metric 'loss' is NaN in every checkpoint so far",)
    decision = decide(losses(NAN, NAN, 0.5), [Keep(best=1, **LEAST)], anchor=0.0)
    assert decision.delete == ("ckpt-1", "ckpt-2")


@pytest.mark.parametrize(
    ("values", "every", "stay"),
    [
        ([500, 1000, 1500, 2000, 2500], 1000, [2, 4]),
        ([0, 1, 2], 1, [2, 3]),
        ([999, 1001, 1999, 2003, 2999], 1000, [2, 4]),  # the first at or after
        ([700, 5200, 5900, 6100], 1000, [2, 4]),  # one for all that were passed at once
        ([None, 1000, None, 2000], 1000, [2, 4]),
        ([None, None], 1000, []),
        ([100, 200], 1000, []),
    ],
)
def test_every_n_steps_keeps_the_first_from_each_multiple_on(
    values: list[int], every: int, stay: list[int]
) -> None:
    assert kept(steps(*values), Keep(every_n_steps=every)) == stay


@pytest.mark.parametrize(
    ("values", "stay"),
    [
        # restored from step 1000, saved every 1000: both histories stay
        ([1000, 2000, 3000, 2000, 3000, 4000], [1, 2, 3, 4, 5, 6]),
        # restored from the last step but one: the same step again
        ([1000, 2000, 3000, 3000, 4000], [1, 2, 3, 4, 5]),
        # restored from step 1500, saved every 500; the first that follows shows that steps go back
        ([1000, 1500, 2000, 2500, 3000, 2000, 2500, 3000], [1, 3, 5, 6, 8]),
        # begun anew in the same directory
        ([1000, 2000, 500, 1000, 1500, 2000], [1, 2, 4, 6]),
        # back, but not behind the last that was kept: it belongs to both
        ([1000, 1500, 1900, 1600, 2000], [1, 5]),
    ],
)
def test_a_run_that_goes_back_keeps_its_newer_history(values: list[int], stay: list[int]) -> None:
    assert kept(steps(*values), Keep(every_n_steps=1000)) == stay


@pytest.mark.parametrize(
    ("times", "every", "anchor", "stay"),
    [
        ([0, 1, 2, 3, 4, 5], 2, 0, [3, 5]),
        ([0, 1, 2, 3, 4, 5], 2, 1, [4, 6]),
        ([0, 1, 2, 3, 4, 5], 2, -2, [1, 3, 5]),
        ([1, 2.9, 3.1, 5.9, 6.2], 3, 0, [3, 5]),  # three hours after 3.1, not after 3
        ([0.5, 1.0, 1.5], 0.5, 0, [1, 2, 3]),
        ([1, 1, 1], 1, 0, [1]),
        ([100], 12, 0, [1]),
    ],
)
def test_every_n_hours(times: list[float], every: float, anchor: float, stay: list[int]) -> None:
    rule = Keep(every_n_hours=every)
    saved = hours(*times)
    assert kept(saved, rule, anchor=HOUR * anchor) == stay
    last = saved[stay[-1] - 1].time
    assert decide(saved, [rule], anchor=HOUR * anchor).last_preserved == last


@pytest.mark.parametrize(
    ("times", "stay"),
    [
        ([1, 2, 3, 2.5, 3.5, 4.5], [2, 6]),  # back by half an hour: no more than that is lost
        ([1, 2, 1000, 3, 4, 5, 6], [2, 3, 4, 6]),  # ahead by weeks, then right again
        ([1000, 1001, 1002, 1, 2, 3], [1, 3, 4, 6]),  # wrong from the beginning
        ([2, 1, 0], [1, 3]),
    ],
)
def test_a_clock_that_was_wrong_stops_no_rule(times: list[float], stay: list[int]) -> None:
    assert kept(hours(*times), Keep(every_n_hours=2)) == stay


def test_pins_go_by_number() -> None:
    assert kept(hours(1, 2, 3, 4), Keep(pin=(2, 4, 77))) == [2, 4]


def test_the_union_stays_with_every_reason() -> None:
    saved = [
        SavedCheckpoint("run/ckpt-1", 1, 1 * HOUR, 1000, {"val_loss": 0.25}, True),
        SavedCheckpoint("run/ckpt-2", 2, 2 * HOUR, 1500, {"val_loss": 0.5}, True),
        SavedCheckpoint("run/ckpt-3", 3, 3 * HOUR, 2000, {"val_loss": 0.125}, True),
        SavedCheckpoint("run/ckpt-4", 4, 4 * HOUR, 2500, {"val_loss": 0.75}, True),
        SavedCheckpoint("run/ckpt-5", 5, 5 * HOUR, 2600, {"val_loss": NAN}, False),
        SavedCheckpoint("run/ckpt-6", 6, 6 * HOUR, 2700, {"val_loss": NAN}, False),
    ]
    rules = [
        Keep(latest=1),
        Keep(best=2, monitor="val_loss", mode="min"),
        Keep(every_n_steps=1000),
        Keep(every_n_hours=3),
        Keep(pin=(1,)),
    ]
    decision = decide(saved, rules, anchor=0.0)
    assert list(decision.kept.items()) == [
        ("run/ckpt-1", ("best 2 by val_loss (0.25)", "every 1000 steps", "pinned")),
        ("run/ckpt-3", ("best 2 by val_loss (0.125)", "every 1000 steps", "every 3 h")),
        ("run/ckpt-4", ("last with only finite values",)),
        ("run/ckpt-6", ("latest 1", "every 3 h", "newest")),
    ]
    assert decision.delete == ("run/ckpt-2", "run/ckpt-5")
    assert decision.last_preserved == 6 * HOUR


def in_runs(*runs: str) -> list[SavedCheckpoint]:
    """Checkpoints of the runs with these ids, one after the other; "" for an unknown one."""
    saved = run(steps=list(range(1, len(runs) + 1)))
    return [dataclasses.replace(one, run=of or None) for one, of in zip(saved, runs, strict=True)]


@pytest.mark.parametrize(
    ("runs", "own", "stay"),
    [
        ("aaa", "a", [3]),
        ("aaab", "b", [1, 2, 3, 4]),
        ("aaabbb", "b", [1, 2, 3, 6]),
        ("aaabba", "a", [4, 5, 6]),  # it went on from ckpt-3
        ("abab", "c", [1, 2, 3, 4]),
    ],
)
def test_a_run_deletes_only_its_own(runs: str, own: str, stay: list[int]) -> None:
    decision = decide(in_runs(*runs), [Keep(latest=1)], anchor=0.0, run=own)
    assert list(decision.kept) == [f"ckpt-{number}" for number in stay]
    others = {p for p, why in decision.kept.items() if why == ("of another run",)}
    assert others == {f"ckpt-{n}" for n, of in enumerate(runs, 1) if of != own}


def test_what_tells_no_run_is_of_another_one() -> None:
    saved = in_runs("", "", "a", "a")
    decision = decide(saved, [Keep(latest=1)], anchor=0.0, run="a")
    assert decision.delete == ("ckpt-3",)
    assert decide(saved, [Keep(latest=1)], anchor=0.0).delete == ("ckpt-1", "ckpt-2", "ckpt-3")


def test_the_best_of_another_run_is_no_rival() -> None:
    rule = Keep(best=1, monitor="loss", mode="min")
    ids = ["a", "a", "b", "b"]
    saved = [
        dataclasses.replace(one, run=of)
        for one, of in zip(losses(0.1, 0.2, 0.4, 0.5), ids, strict=True)
    ]
    decision = decide(saved, [rule], anchor=0.0, run="b")
    assert decision.kept["ckpt-3"] == ("best 1 by loss (0.4)",)
    assert decision.delete == ()


@pytest.mark.parametrize(
    ("finite", "stay"),
    [
        ([True, True, False, False], [2, 4]),
        ([True, None, False, False], [1, 4]),  # one that is known beats one that is not
        ([None, None, False, False], [2, 4]),  # saved before records told it
        ([True, True, True, True], [4]),
        ([False, False, False, False], [4]),
        ([True, False, None, None], [1, 4]),
    ],
)
def test_the_last_with_only_finite_values_stays(finite: list[bool], stay: list[int]) -> None:
    decision = decide(run(finite=finite), [Keep(latest=1)], anchor=0.0)
    assert list(decision.kept) == [f"ckpt-{number}" for number in stay]
