"""A process is killed, or told that the disk is full or broken, at a call below Python.

Every call of libc's that changes a file can be struck, those of TensorFlow's C++ included; a sample
is. `test_commits` strikes every call of all that changes a directory, at the interface of files.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.libc import Harness, Mode, build
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_what_a_save_has_returned_for_is_on_disk(tmp_path: Path, monkeypatch) -> None:
    """Of every file, TensorFlow's too, and then of the names in the directory."""
    from faults.scenes import Subject

    run, events = tmp_path / "run", list[tuple[int, int]]()
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        events.append((status.st_ino, status.st_size))

    def replaced(self: Path, target: str) -> Path:
        events.append((0, 0))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    subject = Subject(run)
    subject.restore()
    subject.save(1)
    monkeypatch.undo()
    parts = [path.stat() for path in run.glob("ckpt-1.*")]
    assert len(parts) >= 4
    assert {(part.st_ino, part.st_size) for part in parts} <= {*events}
    after = events[len(events) - events[::-1].index((0, 0)) :]
    assert run.stat().st_ino in dict(after), "the directory, after the last rename"
