"""Ctrl-C at any call: no descriptor stays open, and the next call does what it should.

The calls are counted once; then some are struck, one at a time, drawn anew in each run of the test.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tfckpt
from tfckpt.stored.commits.writer_lock import LOCK_FILE
from tfckpt.stored.formats.open import open_checkpoint

PACKAGES = str(Path(tfckpt.__file__).parent), contextlib.__file__
OPEN = Path("/proc/self/fd")
ORBAX = Path(__file__).resolve().parents[1] / "golden" / "orbax" / "jax" / "3"


def struck(work: Callable[[], object], place: int = 0) -> int:
    """How many calls there are; Ctrl-C comes at one of them.

    That is where Python looks for signals: as a function begins, and as one of C returns.
    """
    count = 0

    def called(frame: Any, event: str, of: Any) -> None:
        nonlocal count
        ours = frame.f_code.co_filename.startswith(PACKAGES)
        if ours and (event == "call" or (event == "c_return" and of is not os.open)):
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


def opened() -> list[str]:
    """What is open, but for the lock of a directory, which is held until the process ends."""
    paths = map(os.path.realpath, OPEN.iterdir())
    return sorted(path for path in paths if not path.endswith((LOCK_FILE, "/fd")))


def read(path: str) -> None:
    with open_checkpoint(path) as stored:
        for entry in stored.inventory.entries.values():
            stored.values.read(entry.key)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import keras

    place = tmp_path_factory.mktemp("place")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.save_weights(place / "a.weights.h5")
    model.save(place / "a.keras")
    tfckpt.export(tfckpt.Checkpoint(model=model).save(str(place / "ckpt")), place / "a.safetensors")
    shutil.copytree(ORBAX, place / "3")
    return place


def reads(name: str) -> Callable[[Path], Callable[[], object]]:
    return lambda place: lambda: read(str(place / name))


def manager_of(place: Path) -> tfckpt.CheckpointManager:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(tf.zeros(3)))
    return tfckpt.CheckpointManager(checkpoint, str(place / "run"), 2)


def restores(place: Path) -> Callable[[], object]:
    manager_of(place).save()
    return manager_of(place).restore_or_initialize


WORKS: dict[str, Callable[[Path], Callable[[], object]]] = {
    **{name: reads(name) for name in ("ckpt-1", "a.weights.h5", "a.keras", "a.safetensors", "3")},
    "a save": lambda place: manager_of(place).save,
    "a restore": restores,
    "list": lambda place: lambda: tfckpt.list_checkpoints(place),
    "verify": lambda place: lambda: tfckpt.verify(place / "ckpt-1"),
}


@pytest.mark.skipif(not OPEN.is_dir(), reason="no /proc/self/fd")
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("most", [25, pytest.param(500, marks=pytest.mark.long)])
def test_an_interrupt_leaves_nothing_open(place: Path, work: str, most: int) -> None:
    WORKS[work](place)()  # what stays open in a process, such as random numbers, is
    count = struck(WORKS[work](place))
    seed = random.randrange(1 << 30)
    print(f"{count} calls, seed {seed}")
    chosen = random.Random(seed).sample(range(1, count + 1), min(count, most))
    gc.collect()  # what other tests have left
    before, left = Counter(opened()), {}
    gc.freeze()  # else each collection goes through TensorFlow
    for number in chosen:
        call = WORKS[work](place)
        # Where C calls Python it may not come through, or as another error.
        with contextlib.suppress(KeyboardInterrupt, tfckpt.TfckptError):
            struck(call, number)
        del call
        gc.collect()
        for _ in range(100):  # tensorstore's threads close what they have opened
            if not (more := Counter(opened()) - before):
                break
            time.sleep(0.05)
        else:
            left[number] = dict(more)
    gc.unfreeze()
    assert left == {}
    WORKS[work](place)()
