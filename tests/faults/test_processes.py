"""A process is killed, or told that the disk is full or broken, at a call of a real file system.

Of calls of each scene and fault, a sample is struck; `test_commits` strikes every one of them, in
memory, at the interface of files.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import tensorflow as tf
from faults.scenes import SCENES, Subject
from faults.strikes import Harness

import tfckpt

SEED = 20250131


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc/self/fd")
@pytest.mark.parametrize("each", [1, pytest.param(0, marks=pytest.mark.long)])
def test_no_fault_costs_a_checkpoint_or_stays(server, tmp_path: Path, each: int) -> None:
    harness, draw = Harness(server, tmp_path), random.Random(SEED)
    groups = harness.every(SCENES)
    drawn = [case for group in groups for case in (draw.sample(group, each) or group)]
    print(f"\nseed {SEED}: {len(drawn)} of {sum(map(len, groups))} faults")
    problems = harness.problems(drawn)
    wrong = [f"{case}: {text}" for case, text in zip(drawn, problems, strict=True) if text]
    assert not wrong, f"{len(wrong)} of {len(drawn)}:\n" + "\n".join(wrong[:20])


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
