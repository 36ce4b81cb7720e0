"""Ctrl-C at any call of a save, a restore or a listing: the next one does what it should.

The calls are counted once; then some are struck, one at a time, drawn anew in each run of the test.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from faults.scenes import stray

import tfckpt

PACKAGES = str(Path(tfckpt.__file__).parent), contextlib.__file__


def struck(work: Callable[[], object], place: int = 0) -> int:
    """How many calls there are; Ctrl-C comes at one of them, where Python looks for signals."""
    count = 0

    def called(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGES):
            count += 1
            if count == place:
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


WORKS: dict[str, Callable[[Any], object]] = {
    "save": lambda manager: manager.save(),
    "restore": lambda manager: manager.restore_or_initialize(),
    "list": lambda manager: tfckpt.list_checkpoints(manager.directory),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("most", [25, pytest.param(500, marks=pytest.mark.long)])
def test_an_interrupt_is_over_with_the_next_call(tmp_path: Path, work: str, most: int) -> None:
    value = tf.Variable(0)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), tmp_path / "run", 2)
    manager.save()
    WORKS[work](manager)
    count = struck(lambda: WORKS[work](manager))
    seed = random.randrange(1 << 30)
    print(f"{count} calls, seed {seed}")
    for place in random.Random(seed).sample(range(1, count + 1), min(count, most)):
        value.assign(place)
        # Where C calls Python it may not come through, or as another error.
        with contextlib.suppress(KeyboardInterrupt, tfckpt.TfckptError):
            struck(lambda: WORKS[work](manager), place)
        value.assign(place)
        saved = manager.save()
        value.assign(0)
        assert manager.restore_or_initialize() == saved
        assert int(value) == place
        assert stray(tmp_path / "run") == []
