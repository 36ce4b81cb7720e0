"""A process is killed, or told that the disk is full or broken, at a call below Python.

Every call of libc's that changes a file can be struck, those of TensorFlow's C++ included; a sample
is. `test_commits` strikes every call of all that changes a directory, at the interface of files.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import tensorflow as tf
from faults.libc import Harness, Mode, build
from zoo.forkserver import ForkServer

import tfckpt

SEED = 20250131
TRAININGS = ("first save", "rotate", "write over", "share")
PRELOAD = ("tensorflow", "keras", "tfckpt", "faults.scenes")


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    work = tmp_path_factory.mktemp("faults")
    library, why = build(work)
    if not library:
        pytest.skip(why)
    libraries = ":".join(filter(None, (library, os.environ.get("LD_PRELOAD", ""))))
    with ForkServer(env={"LD_PRELOAD": libraries}, preload=PRELOAD) as server:
        yield Harness(server, work)


@pytest.mark.parametrize("count", [24, pytest.param(0, marks=pytest.mark.long)])
def test_no_fault_costs_a_checkpoint_or_stays(harness: Harness, count: int) -> None:
    cases = harness.every(TRAININGS)
    drawn = random.Random(SEED).sample(cases, count) if count else cases
    print(f"\nseed {SEED}: {len(drawn)} of {len(cases)} faults")
    problems = harness.problems(drawn)
    wrong = [f"{case}: {text}" for case, text in zip(drawn, problems, strict=True) if text]
    assert not wrong, f"{len(wrong)} of {len(drawn)}:\n" + "\n".join(wrong[:20])


def test_the_oracle_sees_that_plain_tensorflow_leaves_files(harness: Harness) -> None:
    cases = harness.every(["plain rotate"], [Mode.KILL])
    assert any(harness.problems(random.Random(SEED).sample(cases, 6)))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The number and the size of each file that is waited for; an index that gets its name is 0."""
    found, replace = list[tuple[int, int]](), Path.replace

    def synced(descriptor: int, genuine: Callable[[int], None]) -> None:
        genuine(descriptor)
        status = os.fstat(descriptor)
        found.append((status.st_ino, status.st_size))

    def replaced(self: Path, target: str) -> Path:
        found.extend([(0, 0)] if target.endswith(".index") else [])
        return replace(self, target)

    for call in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, call, partial(synced, genuine=getattr(os, call)))
    monkeypatch.setattr(Path, "replace", replaced)
    return found


def test_what_a_save_has_returned_for_is_on_disk(tmp_path: Path, waits) -> None:
    """Of every file, TensorFlow's too, and then of the names in the directory."""
    from faults.scenes import Subject

    run = tmp_path / "run"
    subject = Subject(run)
    subject.restore()
    subject.save(1)
    parts = [path.stat() for path in run.glob("ckpt-1.*")]
    assert len(parts) >= 4
    assert {(part.st_ino, part.st_size) for part in parts} <= {*waits}
    assert run.stat().st_ino in dict(waits[waits.index((0, 0)) :]), "the directory, after the index"


def test_how_often_a_save_waits_for_the_disk(tmp_path: Path, waits) -> None:
    """With one data file; each further one is waited for once."""
    checkpoint = tfckpt.Checkpoint(value=tf.Variable(tf.zeros(8)))
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path / "run", 1)
    calls: list[tuple[Callable[[], object], int]] = [
        (lambda: checkpoint.write(tmp_path / "new"), 6),
        (lambda: checkpoint.write(tmp_path / "new"), 8),  # over the first, in two files
        (lambda: checkpoint.save(tmp_path / "ckpt"), 7),
        (manager.save, 8),  # which makes the directory
        (manager.save, 10),  # and deletes one
    ]
    for call, most in calls:
        waits.clear()
        call()
        assert len([file for file, _ in waits if file]) <= most
