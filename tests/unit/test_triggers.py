"""When a save is due, by clocks and steps made by hand."""

from __future__ import annotations

import pytest

from tfckpt.manager.triggers import Triggers


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


def test_without_a_rule_nothing_is_ever_due(clock) -> None:
    due = Triggers(clock=clock)
    due.begin(0)
    clock.minutes += 1e9
    assert not due.at_step(10**9)
    assert not due.at_epoch(10**9)


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


def test_steps_count_from_a_save_by_hand(clock) -> None:
    due = Triggers(every_steps=10, clock=clock)
    due.saved(7)
    assert saved_at_steps(due, list(range(8, 30))) == [17, 27]


def test_beginning_again_starts_no_count_anew(clock) -> None:
    due = Triggers(every_steps=10, every_minutes=10, clock=clock)
    due.begin(0)
    clock.minutes += 9
    due.begin(9)
    assert not due.at_step(9)
    assert due.at_step(10)
    clock.minutes += 1
    assert due.at_step(9)


def test_a_step_that_nobody_counts_is_never_due(clock) -> None:
    due = Triggers(every_steps=1, clock=clock)
    due.begin(None)
    assert not due.at_step(None)


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


def test_minutes_count_from_the_first_question_where_nothing_began(clock) -> None:
    due = Triggers(every_minutes=10, clock=clock)
    clock.minutes += 60  # building the model
    assert not due.at_step(1)
    clock.minutes += 10
    assert due.at_step(2)


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


def test_the_step_matters_only_where_a_save_may_be_due() -> None:
    due = Triggers(every_steps=5)
    assert due.step_matters(1)  # nobody knows yet where it begins
    due.begin(10)
    assert [due.step_matters(1) for _ in range(6)] == [False] * 4 + [True] * 2
    assert not due.at_step(13)  # some batches were no steps
    assert [due.step_matters(1) for _ in range(2)] == [False, True]
    assert due.at_step(15)
    due.saved(15)
    assert not due.step_matters(4)
    assert due.step_matters(None)
    assert not Triggers(every_minutes=1.0).step_matters(None)
