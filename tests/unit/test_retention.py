"""Which checkpoints stay, by each rule and by all, against cases worked out by hand."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from tfckpt.manager.retention import SavedCheckpoint, decide
from tfckpt.policy import Keep
from tfckpt.policy.manager import KeepWhereMeasured

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


def test_without_a_rule_everything_stays() -> None:
    decision = decide(hours(1, 2, 3), (), anchor=5.0)
    assert list(decision.kept) == ["ckpt-1", "ckpt-2", "ckpt-3"]
    assert decision.delete == ()
    assert decision.last_preserved == 5.0
    assert decision.kept["ckpt-1"] == ("no rule",)


def test_of_nothing_nothing_stays() -> None:
    decision = decide([], [Keep(latest=1)], anchor=5.0)
    assert (decision.kept, decision.delete, decision.last_preserved) == ({}, (), 5.0)


@pytest.mark.parametrize(("latest", "stay"), [(1, [4]), (3, [2, 3, 4]), (4, [1, 2, 3, 4])])
def test_latest_keeps_the_highest_numbers(latest: int, stay: list[int]) -> None:
    assert kept(hours(4, 3, 2, 1), Keep(latest=latest)) == stay
    assert kept(hours(4, 3, 2, 1), Keep(latest=99)) == [1, 2, 3, 4]


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


def test_a_metric_that_nobody_asked_for_keeps_nothing_until_it_comes() -> None:
    best = KeepWhereMeasured(best=1, **LEAST)
    assert kept(losses(None, None, None), Keep(latest=1), best) == [3]
    assert kept(losses(None, 0.1, None), Keep(latest=1), best) == [2, 3]


def test_in_the_middle_of_an_epoch_no_metric_of_validation_is_missed() -> None:
    saved = [dataclasses.replace(one, mid_epoch=True) for one in losses(0.5, 0.4, 0.3, 0.2)]
    by_validation = Keep(best=1, monitor="val_loss", mode="min")
    assert kept(saved, Keep(latest=1), by_validation) == [4]
    assert kept([*saved[:2], *losses(0.5, 0.4, 0.3)[2:]], Keep(latest=1), by_validation) == [3]
    assert kept(saved, Keep(latest=1), Keep(best=1, monitor="los", mode="min")) == [1, 2, 3, 4]


def test_best_by_two_metrics() -> None:
    saved = [
        SavedCheckpoint("ckpt-1", 1, 0.0, 1, {"val_loss": 0.1, "accuracy": 0.7}, None),
        SavedCheckpoint("ckpt-2", 2, 0.0, 2, {"val_loss": 0.2, "accuracy": 0.9}, None),
        SavedCheckpoint("ckpt-3", 3, 0.0, 3, {"val_loss": 0.3, "accuracy": 0.8}, None),
    ]
    by_loss = Keep(best=1, monitor="val_loss", mode="min")
    by_accuracy = Keep(best=1, monitor="accuracy", mode="max")
    assert kept(saved, by_loss, by_accuracy) == [1, 2]


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


def test_a_run_that_began_in_the_future_is_kept_all_the_same() -> None:
    assert kept(hours(1, 2, 3), Keep(every_n_hours=2), anchor=1000 * HOUR) == [1, 3]


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


def test_the_newest_stays_whatever_the_rules_say() -> None:
    decision = decide(hours(1, 2, 3), [Keep(pin=(1,))], anchor=0.0)
    assert list(decision.kept) == ["ckpt-1", "ckpt-3"]
    assert decision.kept["ckpt-3"][0] == "newest"


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


def test_what_goes_is_the_oldest_first_by_number_and_not_by_name() -> None:
    saved = [SavedCheckpoint(f"ckpt-{n}", n, 0.0, None, {}, None) for n in (10, 9, 100, 1)]
    assert decide(saved, [Keep(latest=1)], anchor=0.0).delete == ("ckpt-1", "ckpt-9", "ckpt-10")


def test_a_year_of_saves_keeps_what_a_year_should() -> None:
    """5,000 saves of 105 minutes each, after each of them what is released goes."""
    seed = 20
    loss = random.Random(seed)
    minutes, count = 105, 5_000
    losses = {number: loss.random() for number in range(1, count + 1)}
    rules = [
        Keep(latest=3),
        Keep(best=2, **LEAST),
        Keep(every_n_hours=12),
        Keep(every_n_steps=1_000),
        Keep(pin=(17, 400)),
    ]
    here: dict[str, SavedCheckpoint] = {}
    for number in range(1, count + 1):
        one = SavedCheckpoint(
            f"ckpt-{number}",
            number,
            60.0 * minutes * number,
            10 * number,
            {"loss": losses[number]},
            True,
        )
        here[one.prefix] = one
        for gone in decide(here.values(), rules, anchor=0.0).delete:
            del here[gone]
    # seven saves of 105 minutes are the first to pass twelve hours, each time anew
    expected = {4998, 4999, 5000, 17, 400, *range(7, count + 1, 7), *range(100, count + 1, 100)}
    expected.update(sorted(losses, key=losses.__getitem__)[:2])
    assert {one.number for one in here.values()} == expected, f"seed {seed}"
