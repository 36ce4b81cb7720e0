"""Where our manager differs from TensorFlow's on purpose; docs/differences.md lists them.

Expected values are worked out by hand; what TensorFlow does stands beside them where it shows.
"""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from zoo.sides import ASYNC, HOUR, MINUTE, START, Side, name

import tfckpt
from tfckpt.stored.io.files import LocalFiles


@pytest.fixture
def ours(sides) -> Side:
    return sides[1]


@pytest.mark.parametrize("by", ["save", "sync"])
def test_a_failure_in_the_background_is_raised_once(ours, by, monkeypatch) -> None:
    """TensorFlow's ``sync`` says nothing, and the error comes with a later save."""
    manager = ours.manager()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "rename", full)
        manager.save(options=ASYNC)
        with pytest.raises(tfckpt.SaveError, match="No space left"):
            getattr(manager, by)()
    manager.sync()
    assert ours.save(manager, 5) == "ckpt-1"
    assert ours.seen(manager)["counter"] == 1


def test_what_is_kept_for_good_is_listed_after_a_clock_set_back_too(sides) -> None:
    """TensorFlow lists none of them, and does not know which to delete where its clock went back.

    It keeps the one that was the newest then for ever: it is no more told from those to keep. Here
    that one stays until the run that begins beside it has come as far.
    """
    seen = []
    for side in sides:
        side.clock[0] = START
        manager = side.manager(1, keep_checkpoint_every_n_hours=1)
        for number in range(3):
            side.save(manager, number)
            side.clock[0] += HOUR
        side.clock[0] = START - HOUR
        manager = side.manager(1)
        assert side.seen(manager)["latest"] == "ckpt-3"
        for number in (4, 5):
            manager.checkpoint.save_counter.assign(number - 1)
            side.clock[0] += MINUTE
            side.save(manager, number)
        seen.append(side.seen(manager))
    theirs, ours = seen
    assert ours["checkpoints"] == ours["on disk"] == ["ckpt-2", "ckpt-3", "ckpt-5"]
    assert theirs["checkpoints"] == ["ckpt-5"]
    assert theirs["on disk"] == ["ckpt-2", "ckpt-3", "ckpt-5"]


def test_a_clock_set_back_keeps_one_in_so_many_hours_from_then_on(ours) -> None:
    manager = ours.manager(1, keep_checkpoint_every_n_hours=1)
    for number, passed in enumerate([2 * HOUR, -1000 * HOUR, HOUR / 2, HOUR, HOUR / 2]):
        ours.clock[0] += passed
        ours.save(manager, number)
    assert ours.on_disk() == ["ckpt-1", "ckpt-2", "ckpt-4", "ckpt-5"]


def test_no_number_is_used_twice(sides) -> None:
    """TensorFlow counts on from ``save_counter``, and after a restart without a restore from 1."""
    numbers = []
    for side in sides:
        manager = side.manager()
        first = [side.save(manager, 1, checkpoint_number=10), side.save(manager, 2)]
        numbers.append((*first, side.save(side.manager(), 3)))
    assert numbers == [("ckpt-10", "ckpt-2", "ckpt-1"), ("ckpt-10", "ckpt-11", "ckpt-12")]


def test_no_number_is_below_an_existing_one(sides) -> None:
    """In TensorFlow the file `checkpoint` says which was saved last."""
    plain, ours = (side.manager() for side in sides)
    for side, manager in zip(sides, (plain, ours), strict=True):
        side.save(manager, 1, checkpoint_number=700)
    assert sides[0].save(plain, 2, checkpoint_number=600) == "ckpt-600"
    with pytest.raises(tfckpt.SaveError, match="ckpt-700 exists"):
        sides[1].save(ours, 2, checkpoint_number=600)


def test_checkpoints_of_another_name_are_not_continued_and_named(sides, caplog) -> None:
    """TensorFlow takes the newest, whatever its name."""
    found = []
    for side in sides:
        side.save(side.manager(checkpoint_name="old"), 7)
        side.value.assign(0)
        found.append((name(side.manager().restore_or_initialize()), int(side.value)))
    assert found == [("old-1", 7), (None, 0)]
    assert "holds 'old-1'" in caplog.text


def test_the_directory_says_what_there_is(sides) -> None:
    """A state file that was lost is a fresh start to TensorFlow."""
    found = []
    for side in sides:
        manager = side.manager()
        side.save(manager, 5)
        (side.directory / "checkpoint").unlink()
        side.value.assign(0)
        again = side.manager(init_fn=lambda side=side: side.value.assign(-1))
        found.append((name(again.restore_or_initialize()), int(side.value)))
    assert found == [(None, -1), ("ckpt-1", 5)]
