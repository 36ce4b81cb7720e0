"""When a save is due and which checkpoints stay: by hand, for any, and as TensorFlow does."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import tempfile
import time
from pathlib import Path
from unittest import mock

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tfckpt
from tfckpt.manager.retention import Decision, decide
from tfckpt.manager.triggers import Triggers
from tfckpt.policy import Keep
from tfckpt.stored.commits.discovery import COMMITTED, CheckpointInfo
from tfckpt.stored.commits.record_file import CommitRecord

HOUR = 3600.0

# The rules, what happens, and when a save is due. `b7` begins at step 7 and `b` at none, `r42` is
# restored at 42, `e3` the end of epoch 3, `+9` nine minutes later, `@9` the ninth minute, `5` a
# step and `1-3` three; what is due is saved there, but for `!5`, where the save fails.
DUE: list[tuple[dict[str, float], str, str]] = [
    ({"every_steps": 3}, "1-10", "3 6 9"),  # nothing said where it begins: from 0
    ({"every_steps": 1}, "1-3", "1 2 3"),
    ({"every_steps": 3}, "b0 1-10", "3 6 9"),
    ({"every_steps": 3}, "b7 8-14", "10 13"),  # from the step at which it began
    ({"every_steps": 3}, "b7 6-8", ""),
    ({"every_steps": 4}, "b0 0 3 6 9 12 15 18 21 24 27", "6 12 18 24"),  # from the save, not a grid
    ({"every_steps": 10}, "b0 25 26 34 35", "25 35"),
    ({"every_steps": 10}, "r42 b42 43-74 r52 53-74", "52 62 72 62 72"),  # from the restored one
    ({"every_steps": 3, "every_minutes": 5}, "b0 2 !3 !4 5 6 7 !8 +5 !6 !6", "!3 !4 5 !8 !6 !6"),
    ({"every_steps": 10, "every_minutes": 10}, "b0 +9 b9 9 !10 +1 9", "!10 9"),  # begun but once
    ({"every_minutes": 10}, "b0 @1 @9 @9.99 @10 @11 @19.99 @20 @20.5 @31", "@10 @20 @31"),
    ({"every_minutes": 0.5}, "b0 @0.25 @0.5 @0.75 @1.25", "@0.5 @1.25"),
    ({"every_minutes": 10}, "b0 @35 @36 @44.9 @45", "@35 @45"),
    ({"every_minutes": 10}, "b0 +9 r5 +9 b5 6 +10 7", "7"),  # not between restore and training
    ({"every_minutes": 10}, "b +4 e1 b +4 e2 b +4 e3 b +4 e4 b +4 e5 b +4 e6", "e3 e6"),
    ({"every_epochs": 1}, "e1 e2 e3", "e1 e2 e3"),
    ({"every_epochs": 2}, "e1 e2 e3 e4 e5 e6 1000000", "e2 e4 e6"),
    ({"every_epochs": 4}, "e1 e2 e3 e4 e5 e6", "e4"),
    (
        {"every_steps": 100, "every_epochs": 5, "every_minutes": 30},  # any of them is enough
        "b0 99 e4 !100 !e5 +30 !e1 1 100 !101 e1",
        "!100 !e5 !e1 1 !101",
    ),
]


@pytest.mark.parametrize(("rules", "happens", "expected"), DUE)
def test_when_a_save_is_due(rules, happens, expected) -> None:
    start = minutes = 1_000.0  # of any origin
    due, found = Triggers(**rules, clock=lambda: minutes * 60), []
    words = re.sub(r"(?<= )(\d+)-(\d+)", _steps, f" {happens}").split()
    for word in words:
        kind, number = re.fullmatch(r"(\D*)([\d.]*)", word).groups()  # type: ignore[union-attr]
        step = int(number) if number.isdigit() else None
        if kind == "b":
            due.begin(step)
        elif kind == "r":
            due.restored(step)
        elif kind == "+":
            minutes += float(number)
        else:
            minutes = start + float(number) if kind == "@" else minutes
            if due.at_epoch(step or 0) if "e" in kind else due.at_step(step):
                found.append(word)
                if "!" not in kind:
                    due.saved(None if "e" in kind else step)
    assert " ".join(found) == expected


def _steps(match: re.Match[str]) -> str:
    return " ".join(map(str, range(int(match[1]), int(match[2]) + 1)))


TRUTHS = {"yes": True, "no": False, "?": None}


def checkpoint(
    number: int,
    time: float,
    step: int | None,
    metrics: dict[str, float],
    finite: bool | None,
    run: str | None = None,
    mid_epoch: bool = False,
) -> CheckpointInfo:
    record = CommitRecord(number, step=step, metrics=metrics, finite=finite, run=run)
    record.training = {"fit": {"ended": not mid_epoch}}
    return CheckpointInfo(f"ckpt-{number}", number, COMMITTED, record, time=time)


def saved(**columns: str) -> list[CheckpointInfo]:
    """Checkpoints 1, 2, 3, … with what each column has of them; `-` for nothing.

    Columns are hours, step, finite, run and metrics; unless told, they are ten minutes apart.
    """
    rows = {name: text.split() for name, text in columns.items()}
    found = []
    for index in range(max(map(len, rows.values()))):
        row = {name: words[index] for name, words in rows.items() if words[index] != "-"}
        about = (
            HOUR * float(row.pop("hours", (index + 1) / 6)),
            int(row.pop("step")) if "step" in row else None,
        )
        more = TRUTHS[row.pop("finite", "?")], row.pop("run", None)
        metrics = {name: float(text) for name, text in row.items()}
        found.append(checkpoint(index + 1, *about, metrics, *more))
    return found


def best(count: int, mode: str) -> Keep:
    return Keep(best=count, monitor="loss", mode=mode)


def steps(every: int) -> Keep:
    return Keep(every_n_steps=every)


def hours(every: float) -> Keep:
    return Keep(every_n_hours=every)


# What each save has, the rule, and the saves that the rule keeps.
RULES: list[tuple[str, str, Keep, str]] = [
    ("loss", "0.5 0.1 0.3 0.2 0.4", best(2, "min"), "2 4"),
    ("loss", "0.5 0.1 0.3 0.2 0.4", best(2, "max"), "1 5"),
    ("loss", "0.5 0.1", best(9, "min"), "1 2"),
    ("loss", "1 1 1 0.9", best(2, "max"), "2 3"),  # of equals the newer
    ("loss", "nan 0.2 nan 0.1", best(3, "min"), "2 4"),  # NaN never counts
    ("loss", "nan 0.2 nan 0.1", best(3, "max"), "2 4"),
    ("loss", "-inf 0.2 0.1", best(2, "min"), "2 3"),  # infinite only where there is no better one
    ("loss", "inf 0.2 0.1", best(2, "max"), "2 3"),
    ("loss", "inf 0.2 inf", best(2, "max"), "2 3"),
    ("loss", "- 0.2 - 0.1", best(3, "min"), "2 4"),
    ("loss", "nan -", best(1, "min"), "1 2"),  # nothing to compare: nothing is given up
    ("loss", "-2 0 -3", best(1, "min"), "3"),
    ("loss", "-2 0 -3", best(1, "max"), "2"),
    ("step", "500 1000 1500 2000 2500", steps(1000), "2 4"),
    ("step", "0 1 2", steps(1), "2 3"),
    ("step", "999 1001 1999 2003 2999", steps(1000), "2 4"),  # the first at or after
    ("step", "700 5200 5900 6100", steps(1000), "2 4"),  # one for all that were passed at once
    ("step", "- 1000 - 2000", steps(1000), "2 4"),
    ("step", "- -", steps(1000), ""),
    ("step", "100 200", steps(1000), ""),
    # Restored from step 1000, saved every 1000: both histories stay.
    ("step", "1000 2000 3000 2000 3000 4000", steps(1000), "1 2 3 4 5 6"),
    ("step", "1000 2000 3000 3000 4000", steps(1000), "1 2 3 4 5"),  # the same step again
    ("step", "1000 1500 2000 2500 3000 2000 2500 3000", steps(1000), "1 3 5 6 8"),
    ("step", "1000 2000 500 1000 1500 2000", steps(1000), "1 2 4 6"),  # begun anew
    ("step", "1000 1500 1900 1600 2000", steps(1000), "1 5"),  # back, but not behind the last kept
    ("hours", "0 1 2 3 4 5", hours(2), "3 5"),
    ("hours from 1", "0 1 2 3 4 5", hours(2), "4 6"),
    ("hours from -2", "0 1 2 3 4 5", hours(2), "1 3 5"),
    ("hours", "1 2.9 3.1 5.9 6.2", hours(3), "3 5"),  # three hours after 3.1, not after 3
    ("hours", "0.5 1 1.5", hours(0.5), "1 2 3"),
    ("hours", "1 1 1", hours(1), "1"),
    ("hours", "100", hours(12), "1"),
    ("hours", "1 2 3 2.5 3.5 4.5", hours(2), "2 6"),  # a clock that went back by half an hour,
    ("hours", "1 2 1000 3 4 5 6", hours(2), "2 3 4 6"),  # ahead by weeks, then right again,
    ("hours", "1000 1001 1002 1 2 3", hours(2), "1 3 4 6"),  # wrong from the beginning
    ("hours", "2 1 0", hours(2), "1 3"),
    ("hours", "1 2 3 4", Keep(pin=(2, 4, 77)), "2 4"),
]


@pytest.mark.parametrize(("column", "values", "rule", "stay"), RULES)
def test_what_a_rule_keeps(column, values, rule, stay) -> None:
    name, _, anchor = column.partition(" from ")
    given = saved(**{name: values})
    decision = decide(given, [rule], anchor=HOUR * float(anchor or 0))
    assert {*decision.kept, *decision.delete} == {one.prefix for one in given}
    free = {"newest", "last with only finite values", "last that may be finite"}
    by_rule = [path[5:] for path, reasons in decision.kept.items() if not free >= set(reasons)]
    assert by_rule == stay.split()
    if rule.every_n_hours:
        assert decision.last_preserved == given[int(by_rule[-1]) - 1].time


# What each save has, and all that stays where the rule is to keep the last one, of the run or any.
ALL: list[tuple[dict[str, str], str | None, str]] = [
    ({"finite": "yes yes no no"}, None, "2 4"),
    ({"finite": "yes ? no no"}, None, "1 4"),  # one that is known beats one that is not
    ({"finite": "? ? no no"}, None, "2 4"),
    ({"finite": "yes yes yes yes"}, None, "4"),
    ({"finite": "no no no no"}, None, "4"),
    ({"finite": "yes no ? ?"}, None, "1 4"),
    ({"run": "a a a"}, "a", "3"),
    ({"run": "a a a b"}, "b", "1 2 3 4"),
    ({"run": "a a a b b b"}, "b", "1 2 3 6"),
    ({"run": "a a a b b a"}, "a", "4 5 6"),  # it went on from ckpt-3
    ({"run": "a b a b"}, "c", "1 2 3 4"),
    ({"run": "- - a a"}, "a", "1 2 4"),  # what tells no run is of another one
    ({"run": "- - a a"}, None, "4"),
]


@pytest.mark.parametrize(("columns", "run", "stay"), ALL)
def test_what_stays(columns, run, stay) -> None:
    given = saved(**columns)
    decision = decide(given, [Keep(latest=1)], anchor=0.0, run=run)
    assert [path[5:] for path in decision.kept] == stay.split()
    others = {path for path, why in decision.kept.items() if why == ("of another run",)}
    assert others == {one.prefix for one in given if run and one.record.run != run}


def test_every_reason_is_said() -> None:
    given = saved(
        hours="1 2 3 4 5 6",
        step="1000 1500 2000 2500 2600 2700",
        val_loss="0.25 0.5 0.125 0.75 nan nan",
        finite="yes yes yes yes no no",
    )
    least = Keep(best=2, monitor="val_loss", mode="min")
    rules = [Keep(latest=1), least, steps(1000), hours(3), Keep(pin=(1,))]
    decision = decide(given, rules, anchor=0.0)
    assert list(decision.kept.items()) == [
        ("ckpt-1", ("best 2 by val_loss (0.25)", "every 1000 steps", "pinned")),
        ("ckpt-3", ("best 2 by val_loss (0.125)", "every 1000 steps", "every 3 h")),
        ("ckpt-4", ("last with only finite values",)),
        ("ckpt-6", ("latest 1", "every 3 h", "newest")),
    ]
    assert decision.delete == ("ckpt-2", "ckpt-5")
    assert decision.last_preserved == 6 * HOUR


def test_by_a_metric_that_none_has_nothing_is_given_up() -> None:
    for values, metric, reason in (
        ("0.5 0.1 0.4", "los", "no checkpoint has the metric 'los' yet"),
        ("nan nan nan", "loss", "the metric 'loss' is NaN in every checkpoint so far"),
    ):
        rules = [Keep(latest=1), Keep(best=1, monitor=metric, mode="min")]
        decision = decide(saved(loss=values), rules, anchor=0.0)
        assert (decision.delete, decision.kept["ckpt-2"]) == ((), (reason,))
    assert decide(saved(loss="nan nan 1"), [best(1, "min")], anchor=0.0).delete == (
        "ckpt-1",
        "ckpt-2",
    )


def test_the_best_of_another_run_is_no_rival() -> None:
    given = saved(loss="0.1 0.2 0.4 0.5", run="a a b b")
    decision = decide(given, [best(1, "min")], anchor=0.0, run="b")
    assert decision.kept["ckpt-3"] == ("best 1 by loss (0.4)",)
    assert decision.delete == ()


@pytest.mark.parametrize(
    ("fits", "stay"), [("0 0 1 1", "2 4"), ("0 1 2 2", "2 4"), ("0 0 0", "3"), ("0 - 1", "1 3")]
)
def test_of_the_fit_before_the_last_one_stays(fits, stay) -> None:
    given = saved(step=" ".join(map(str, range(len(fits.split())))))
    for one, fit in zip(given, fits.split(), strict=True):
        one.record.training = {} if fit == "-" else {"fit": {"fit": int(fit)}}
    decision = decide(given, [Keep(latest=1)], anchor=0.0)
    assert [path[5:] for path in decision.kept] == stay.split()


# Of any checkpoints

METRIC = st.sampled_from([0.0, 0.1, 0.2, 0.3, -1.0, math.nan, math.inf, -math.inf]) | st.floats()
METRICS = st.dictionaries(st.sampled_from(["loss", "accuracy"]), METRIC)
TIME = st.integers(0, 60).map(lambda half_hours: HOUR * half_hours / 2) | st.floats(0, 1e10)
STEP = st.none() | st.integers(0, 60)
FACTS = st.tuples(TIME, STEP, METRICS, st.sampled_from([True, False, None]))
MONITOR = st.sampled_from(["loss", "accuracy", "absent"])
RULE = st.one_of(
    st.builds(Keep, latest=st.integers(1, 5)),
    st.builds(Keep, best=st.integers(1, 4), monitor=MONITOR, mode=st.sampled_from(["min", "max"])),
    st.builds(Keep, every_n_steps=st.integers(1, 20)),
    st.builds(Keep, every_n_hours=st.sampled_from([0.1, 0.5, 1, 2.5, 12, 1e6])),
    st.builds(Keep, pin=st.lists(st.integers(0, 40), min_size=1, max_size=3).map(tuple)),
)
RULES = st.lists(RULE, min_size=1, max_size=5)
ANCHOR = st.sampled_from([0.0, HOUR, 20 * HOUR, 1e10])
OWN = st.none() | st.integers(1, 9).map(lambda number: f"run {number}")


@st.composite
def runs(draw: st.DrawFn, restarts: bool = True) -> list[CheckpointInfo]:
    """Up to 25 saves of any steps, the oldest first; some numbers were never given.

    Any of them may begin another run than the one before, or be of an earlier one again.
    """
    facts = draw(st.lists(FACTS, max_size=25))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(facts), max_size=len(facts)))
    saved: list[CheckpointInfo] = []
    for number, about in zip(itertools.accumulate(gaps), facts, strict=True):
        runs = [None, f"run {number}", *(one.record.run for one in saved)]
        run = draw(st.sampled_from(runs)) if restarts else None
        saved.append(checkpoint(number, *about, run, draw(st.booleans())))
    return saved


@st.composite
def restarted(draw: st.DrawFn) -> list[CheckpointInfo]:
    """Runs one after the other in one directory, each from its first step on."""
    saved: list[CheckpointInfo] = []
    counted = draw(st.booleans())
    for steps in draw(st.lists(st.sets(st.integers(0, 60), min_size=1, max_size=8), max_size=4)):
        first = len(saved) + 1
        for number, step in enumerate(sorted(steps), first):
            time, _, metrics, finite = draw(FACTS)
            about = (time, step if counted else None, metrics, finite)
            saved.append(checkpoint(number, *about, f"run {first}"))
    return saved


RUNS = runs()


def left(saved: list[CheckpointInfo], decision: Decision) -> list[CheckpointInfo]:
    gone = set(decision.delete)
    return [one for one in saved if one.prefix not in gone]


@given(RUNS, RULES, ANCHOR, OWN, st.randoms(use_true_random=False))
def test_a_decision_is_whole(saved, rules, anchor, own, random) -> None:
    decision = decide(saved, rules, anchor=anchor, run=own)
    order = [one.prefix for one in saved]
    assert sorted([*decision.kept, *decision.delete], key=order.index) == order
    assert list(decision.kept) == sorted(decision.kept, key=order.index)
    assert list(decision.delete) == sorted(decision.delete, key=order.index)
    listed = list(saved)  # in the order of no listing
    random.shuffle(listed)
    assert decide(listed, rules, anchor=anchor, run=own) == decision
    again = decide(left(saved, decision), rules, anchor=anchor, run=own)
    assert again == dataclasses.replace(decision, delete=())
    # What one rule keeps, all of them do, and for its reason.
    alone = [decide(saved, [rule], anchor=anchor, run=own).kept for rule in rules]
    for prefix in order:
        reasons = set().union(*(kept.get(prefix, ()) for kept in alone))
        assert set(decision.kept.get(prefix, ())) == reasons
    # What no rule may delete stays.
    of_run = [one for one in saved if own is None or one.record.run == own]
    finite = [one.prefix for one in of_run if one.record.finite]
    unknown = [one.prefix for one in of_run if one.record.finite is None]
    assert set(decision.delete) <= {one.prefix for one in of_run[:-1]}
    assert not set(decision.delete) & set((finite or unknown)[-1:])


@given(runs(restarts=False) | restarted(), RULES, ANCHOR, OWN)
def test_once_after_each_save_comes_to_the_same_as_once_at_the_end(
    saved, rules, anchor, own
) -> None:
    here: list[CheckpointInfo] = []
    for one in saved:
        here.append(one)
        step = decide(here, rules, anchor=anchor, run=own)
        here = left(here, step)
    at_once = decide(saved, rules, anchor=anchor, run=own)
    assert [one.prefix for one in here] == list(at_once.kept)
    if saved:
        assert step.kept == at_once.kept
        assert step.last_preserved == at_once.last_preserved


# From one minute: what TensorFlow saved at the very time of one that it keeps for good stays, too.
GAPS = st.integers(1, 300).map(lambda minutes: 60.0 * minutes)
SAVES = st.lists(st.tuples(GAPS, st.booleans()), min_size=1, max_size=12)


def on_disk(directory: str) -> set[str]:
    return {path.stem for path in Path(directory).glob("*.index")}


@given(SAVES, st.integers(1, 3), st.none() | st.sampled_from([0.25, 1, 2.5]))
@settings(max_examples=8)
def test_what_is_kept_is_what_tensorflow_keeps(saves, max_to_keep, hours) -> None:
    value = tf.Variable(0)
    ours_by, theirs_by = tfckpt.Checkpoint(value=value), tf.train.Checkpoint(value=value)
    now = 1_700_000_000.0
    with (
        tempfile.TemporaryDirectory() as ours_in,
        tempfile.TemporaryDirectory() as theirs_in,
        mock.patch.object(time, "time", lambda: now),  # noqa: PT008 (it moves on)
    ):
        rules = max_to_keep, hours
        for gap, restart in [(0.0, True), *saves]:
            now += gap
            if restart:
                ours = tfckpt.CheckpointManager(ours_by, ours_in, *rules)
                theirs = tf.train.CheckpointManager(theirs_by, theirs_in, *rules)
            if gap:
                ours.save()
                theirs.save()
            assert on_disk(ours_in) == on_disk(theirs_in)
            assert tf.train.latest_checkpoint(ours_in) == ours.latest_checkpoint
