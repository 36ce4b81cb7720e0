"""Which checkpoints go: as TensorFlow's own CheckpointManager would have it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt.manager.retention import sweep

HOUR = 3600.0


def names(times: list[float]) -> list[tuple[str, float]]:
    return [(f"ckpt-{number}", time) for number, time in enumerate(times, 1)]


@pytest.mark.parametrize("keep", [None, 3, 4])
def test_nothing_goes_while_there_is_room(keep) -> None:
    assert sweep(names([1, 2, 3]), keep, None, 0.0).delete == ()


def test_the_oldest_go() -> None:
    result = sweep(names([1, 2, 3, 4, 5]), 2, None, 0.0)
    assert result.delete == ("ckpt-1", "ckpt-2", "ckpt-3")
    assert result.preserve == ()


def test_one_per_so_many_hours_stays() -> None:
    result = sweep(names([0, 1 * HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 5 * HOUR]), 1, 2, 0.0)
    assert result.preserve == ("ckpt-3", "ckpt-5")
    assert result.delete == ("ckpt-1", "ckpt-2", "ckpt-4")
    assert result.last_preserved == 4 * HOUR


TIMES = st.lists(st.floats(0, 1e6), max_size=30).map(sorted)
KEEP = st.none() | st.integers(1, 10)
HOURS = st.none() | st.floats(0.01, 100)


@given(TIMES, KEEP, HOURS, st.floats(0, 1e6))
def test_the_newest_always_stay(times, keep, hours, last) -> None:
    found = names(times)
    result = sweep(found, keep, hours, last)
    newest = [path for path, _ in found[-(keep or len(found)) :]] if found else []
    assert not set(newest) & {*result.delete, *result.preserve}
    assert sorted([*newest, *result.delete, *result.preserve]) == sorted(p for p, _ in found)


@given(TIMES, KEEP, HOURS, st.floats(0, 1e6))
def test_what_stays_for_good_is_so_many_hours_apart(times, keep, hours, last) -> None:
    result = sweep(names(times), keep, hours, last)
    kept = [last, *(dict(names(times))[path] for path in result.preserve)]
    if hours is None:
        assert result.preserve == ()
    for earlier, later in itertools.pairwise(kept):
        assert later - hours * 3600 >= earlier
    assert result.last_preserved == kept[-1]


@given(TIMES, st.integers(1, 10), HOURS, st.floats(0, 1e6))
def test_one_sweep_after_each_save_comes_to_the_same_as_one_at_the_end(
    times, keep, hours, last
) -> None:
    at_once = sweep(names(times), keep, hours, last)
    active, deleted, preserved = [], [], []
    for one in names(times):
        active.append(one)
        step = sweep(active, keep, hours, last)
        last = step.last_preserved
        deleted += step.delete
        preserved += step.preserve
        active = [each for each in active if each[0] not in {*step.delete, *step.preserve}]
    assert (tuple(deleted), tuple(preserved)) == (at_once.delete, at_once.preserve)
