"""What holds for any checkpoints and any rules of what to keep; it is what TensorFlow keeps."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tempfile
import time
from pathlib import Path
from unittest import mock

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tfckpt
from tfckpt.manager.retention import Decision, SavedCheckpoint, decide
from tfckpt.policy import Keep

HOUR = 3600.0
LASTING = ("every ", "pinned")
METRIC = st.sampled_from([0.0, 0.1, 0.2, 0.3, -1.0, math.nan, math.inf, -math.inf]) | st.floats()
METRICS = st.dictionaries(st.sampled_from(["loss", "accuracy"]), METRIC)
TIME = st.integers(0, 60).map(lambda half_hours: HOUR * half_hours / 2) | st.floats(0, 1e10)
STEP = st.none() | st.integers(0, 60)
FACTS = st.tuples(TIME, STEP, METRICS, st.sampled_from([True, False, None]))
GAP = st.integers(1, 3)
RULE = st.one_of(
    st.builds(Keep, latest=st.integers(1, 5)),
    st.builds(
        Keep,
        best=st.integers(1, 4),
        monitor=st.sampled_from(["loss", "accuracy", "absent"]),
        mode=st.sampled_from(["min", "max"]),
    ),
    st.builds(Keep, every_n_steps=st.integers(1, 20)),
    st.builds(Keep, every_n_hours=st.sampled_from([0.1, 0.5, 1, 2.5, 12, 1e6])),
    st.builds(Keep, pin=st.lists(st.integers(0, 40), min_size=1, max_size=3).map(tuple)),
)
RULES = st.lists(RULE, min_size=1, max_size=5)
ANCHOR = st.sampled_from([0.0, HOUR, 20 * HOUR, 1e10])


@st.composite
def runs(draw: st.DrawFn, restarts: bool = True) -> list[SavedCheckpoint]:
    """Up to 25 saves of any steps, the oldest first; some numbers were never given.

    Any of them may begin another run than the one before, or be of an earlier one again.
    """
    facts = draw(st.lists(FACTS, max_size=25))
    gaps = draw(st.lists(GAP, min_size=len(facts), max_size=len(facts)))
    saved: list[SavedCheckpoint] = []
    for number, about in zip(itertools.accumulate(gaps), facts, strict=True):
        runs = [None, f"run {number}", *(one.run for one in saved)]
        run = draw(st.sampled_from(runs)) if restarts else None
        saved.append(SavedCheckpoint(f"ckpt-{number}", number, *about, run, draw(st.booleans())))
    return saved


@st.composite
def restarted(draw: st.DrawFn) -> list[SavedCheckpoint]:
    """Runs one after the other in one directory, each from its first step on."""
    saved: list[SavedCheckpoint] = []
    counted = draw(st.booleans())
    for steps in draw(st.lists(st.sets(st.integers(0, 60), min_size=1, max_size=8), max_size=4)):
        first = len(saved) + 1
        for number, step in enumerate(sorted(steps), first):
            time, _, metrics, finite = draw(FACTS)
            about = (time, step if counted else None, metrics, finite)
            saved.append(SavedCheckpoint(f"ckpt-{number}", number, *about, f"run {first}"))
    return saved


RUNS = runs()
OWN = st.none() | st.integers(1, 9).map(lambda number: f"run {number}")


def left(saved: list[SavedCheckpoint], decision: Decision) -> list[SavedCheckpoint]:
    gone = set(decision.delete)
    assert gone <= {one.prefix for one in saved}
    return [one for one in saved if one.prefix not in gone]


@given(RUNS, RULES, ANCHOR, OWN)
def test_everything_is_kept_or_deleted_the_oldest_first(saved, rules, anchor, own) -> None:
    decision = decide(saved, rules, anchor=anchor, run=own)
    order = [one.prefix for one in saved]
    assert sorted([*decision.kept, *decision.delete], key=order.index) == order
    assert list(decision.kept) == sorted(decision.kept, key=order.index)
    assert list(decision.delete) == sorted(decision.delete, key=order.index)
    assert all(decision.kept.values())


@given(RUNS, RULES, ANCHOR, OWN, st.randoms(use_true_random=False))
def test_the_order_of_a_listing_does_not_matter(saved, rules, anchor, own, random) -> None:
    listed = list(saved)
    random.shuffle(listed)
    found = decide(listed, rules, anchor=anchor, run=own)
    assert found == decide(saved, rules, anchor=anchor, run=own)


@given(RUNS, RULES, ANCHOR, OWN)
def test_the_rules_keep_the_union_of_what_each_keeps(saved, rules, anchor, own) -> None:
    together = decide(saved, rules, anchor=anchor, run=own)
    alone = [decide(saved, [rule], anchor=anchor, run=own) for rule in rules]
    assert set(together.kept) == set().union(*(decision.kept for decision in alone))
    for prefix, reasons in together.kept.items():
        found = set().union(*(decision.kept.get(prefix, ()) for decision in alone))
        assert set(reasons) == found


@given(RUNS, RULES, ANCHOR, OWN)
def test_what_no_rule_may_delete_stays(saved, rules, anchor, own) -> None:
    deleted = set(decide(saved, rules, anchor=anchor, run=own).delete)
    of_run = [one for one in saved if own is None or one.run == own]
    finite = [one.prefix for one in of_run if one.finite]
    unknown = [one.prefix for one in of_run if one.finite is None]
    assert deleted <= {one.prefix for one in of_run}
    assert not deleted & {one.prefix for one in of_run[-1:]}
    assert not deleted & set((finite or unknown)[-1:])


@given(RUNS, RULES, ANCHOR, OWN)
def test_after_the_deletion_nothing_more_is_deleted(saved, rules, anchor, own) -> None:
    first = decide(saved, rules, anchor=anchor, run=own)
    again = decide(left(saved, first), rules, anchor=anchor, run=own)
    assert again == dataclasses.replace(first, delete=())


@given(runs(restarts=False) | restarted(), RULES, ANCHOR, OWN)
def test_once_after_each_save_comes_to_the_same_as_once_at_the_end(
    saved, rules, anchor, own
) -> None:
    here: list[SavedCheckpoint] = []
    for one in saved:
        here.append(one)
        step = decide(here, rules, anchor=anchor, run=own)
        here = left(here, step)
    at_once = decide(saved, rules, anchor=anchor, run=own)
    assert [one.prefix for one in here] == list(at_once.kept)
    if saved:
        assert step.kept == at_once.kept
        assert step.last_preserved == at_once.last_preserved


@given(RUNS, RULES, ANCHOR)
def test_what_is_kept_for_good_is_kept_for_good(saved, rules, anchor) -> None:
    here: list[SavedCheckpoint] = []
    promised: dict[str, set[str]] = {}
    for one in saved:
        here.append(one)
        decision = decide(here, rules, anchor=anchor)
        for prefix, reasons in promised.items():
            assert reasons <= set(decision.kept[prefix])
        promised = {
            prefix: {reason for reason in reasons if reason.startswith(LASTING)}
            for prefix, reasons in decision.kept.items()
        }
        promised = {prefix: reasons for prefix, reasons in promised.items() if reasons}
        here = left(here, decision)


@given(restarted(), st.integers(1, 3))
def test_what_other_runs_have_saved_changes_nothing(saved, latest) -> None:
    here: list[SavedCheckpoint] = []
    for one in saved:
        here.append(one)
        here = left(here, decide(here, [Keep(latest=latest)], anchor=0.0, run=one.run))
    for run in {one.run for one in saved}:
        alone = [one for one in saved if one.run == run]
        stays = decide(alone, [Keep(latest=latest)], anchor=0.0, run=run).kept
        assert [one.prefix for one in here if one.run == run] == list(stays)


@given(RUNS, st.integers(1, 5), ANCHOR)
def test_by_a_metric_that_none_has_nothing_is_deleted(saved, latest, anchor) -> None:
    rules = [Keep(latest=latest), Keep(best=1, monitor="absent", mode="max")]
    decision = decide(saved, rules, anchor=anchor)
    assert decision.delete == ()
    assert all("no checkpoint has the metric 'absent' yet" in r for r in decision.kept.values())


@given(RUNS, st.integers(1, 30), st.sampled_from(["min", "max"]), ANCHOR)
def test_the_best_are_those_that_fewer_others_beat(saved, count, mode, anchor) -> None:
    def beats(one: SavedCheckpoint, other: SavedCheckpoint) -> bool:
        mine, its = one.metrics["loss"], other.metrics["loss"]
        if math.isinf(mine) != math.isinf(its):
            return math.isinf(its)
        if mine == its:
            return one.number > other.number
        return mine < its if mode == "min" else mine > its

    known = [one for one in saved if "loss" in one.metrics and not math.isnan(one.metrics["loss"])]
    expected = [one.prefix for one in known if sum(beats(other, one) for other in known) < count]
    rule = Keep(best=count, monitor="loss", mode=mode)
    decision = decide(saved, [rule], anchor=anchor)
    found = [p for p, reasons in decision.kept.items() if reasons[0].startswith("best ")]
    assert found == expected


@given(
    st.lists(st.integers(0, 300).map(lambda minutes: 60.0 * minutes), max_size=40),
    st.integers(1, 5),
    st.sampled_from([0.1, 0.25, 1, 2.5, 12]),
    st.sampled_from([0.0, 1.0, HOUR]),
)
def test_hours_are_those_of_tensorflow(gaps, max_to_keep, hours, ahead) -> None:
    """TensorFlow's queue: what falls out of it is kept where the hours have passed."""
    anchor = 1_700_000_000.0
    times = list(itertools.accumulate(gaps, initial=anchor + ahead))
    saved = [SavedCheckpoint(f"ckpt-{n}", n, t, None, {}, None) for n, t in enumerate(times, 1)]
    queue, for_good, preserved = list(saved), [], anchor
    while len(queue) > max_to_keep:
        oldest = queue.pop(0)
        if oldest.time - hours * 3600.0 >= preserved:
            preserved = oldest.time
            for_good.append(oldest)
    rules = [Keep(latest=max_to_keep), Keep(every_n_hours=hours)]
    assert list(decide(saved, rules, anchor=anchor).kept) == [
        one.prefix for one in [*for_good, *queue]
    ]


@given(st.lists(TIME, max_size=40), st.sampled_from([0.5, 2.0, 12.0]), ANCHOR)
def test_whatever_the_clock_does_a_stretch_without_a_kept_one_is_short(
    times, hours, anchor
) -> None:
    saved = [SavedCheckpoint(f"ckpt-{n}", n, t, None, {}, None) for n, t in enumerate(times, 1)]
    decision = decide(saved, [Keep(every_n_hours=hours)], anchor=anchor)
    stretch = [anchor]
    for one in saved:
        if f"every {hours:g} h" in decision.kept.get(one.prefix, ()):
            stretch = []
        stretch.append(one.time)
        assert max(stretch) - min(stretch) < 2 * hours * HOUR


@given(st.sets(st.integers(0, 500), max_size=40).map(sorted), st.integers(1, 60))
def test_each_multiple_of_steps_has_the_first_that_reached_it(steps, every) -> None:
    saved = [
        SavedCheckpoint(f"ckpt-{n}", n, 0.0, step, {}, None) for n, step in enumerate(steps, 1)
    ]
    first = {}
    for number, step in reversed(list(enumerate(steps, 1))):
        first[step // every] = f"ckpt-{number}"
    first.pop(0, None)
    decision = decide(saved, [Keep(every_n_steps=every)], anchor=0.0)
    assert {p for p, reasons in decision.kept.items() if reasons[0].startswith("every ")} == {
        *first.values()
    }


@given(
    st.lists(st.sets(st.integers(0, 200), min_size=1, max_size=15).map(sorted), max_size=4),
    st.sets(st.integers(0, 200), min_size=1, max_size=15).map(sorted),
    st.integers(1, 40),
)
def test_a_run_that_goes_back_keeps_its_own_history(before, now, every) -> None:
    """Of the multiples that the newest stretch of a run passes, all but the first have its own."""
    steps = [step for stretch in before for step in stretch] + now
    saved = [
        SavedCheckpoint(f"ckpt-{n}", n, 0.0, step, {}, None) for n, step in enumerate(steps, 1)
    ]
    decision = decide(saved, [Keep(every_n_steps=every)], anchor=0.0)
    kept = {
        one.step // every
        for one in saved[len(steps) - len(now) :]
        if f"every {every} steps" in decision.kept.get(one.prefix, ())
    }
    passed = sorted({step // every for step in now} - {0})
    assert kept >= set(passed[1:])


# From one minute: what TensorFlow saved at the very time of one that it keeps for good stays, too.
GAPS = st.integers(1, 300).map(lambda minutes: 60.0 * minutes)
SAVES = st.lists(st.tuples(GAPS, st.booleans()), min_size=1, max_size=12)


def on_disk(directory: str) -> set[str]:
    return {path.stem for path in Path(directory).glob("*.index")}


@given(SAVES, st.integers(1, 3), st.none() | st.sampled_from([0.25, 1, 2.5]))
@settings(max_examples=20)
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
        ours = tfckpt.CheckpointManager(ours_by, ours_in, *rules)
        theirs = tf.train.CheckpointManager(theirs_by, theirs_in, *rules)
        for gap, restart in saves:
            now += gap
            if restart:
                ours = tfckpt.CheckpointManager(ours_by, ours_in, *rules)
                theirs = tf.train.CheckpointManager(theirs_by, theirs_in, *rules)
            ours.save()
            theirs.save()
            assert on_disk(ours_in) == on_disk(theirs_in)
            assert tf.train.latest_checkpoint(ours_in) == ours.latest_checkpoint
