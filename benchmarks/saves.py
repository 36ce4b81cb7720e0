"""Saves and restores of whole subjects, and the stall of a save in the background.

A restore reads what was saved just before, from the page cache, into the same variables. The limit
is ``write`` and ``fsync`` of the same bytes by two threads, and ``pread`` of them into memory that
has been used before. A save of tfckpt's has every byte on the disk; TensorFlow's waits for none.
"""

from __future__ import annotations

import os
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

import tfckpt
from benchmarks import subjects
from benchmarks.measure import Row, Settings, clock, medians, rows_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.subjects import Subject

KIB, MIB = 1 << 10, 1 << 20
CHUNK = 4 * MIB
ROUNDS = 5


class Case(NamedTuple):
    """A subject, a small one of its kind, and what is wanted of its save and its restore."""

    build: Callable[[], Subject]
    tiny: Callable[[], Subject]
    save: str
    restore: str
    rounds: int = ROUNDS


FEW = partial(subjects.values, 20, KIB)
TRANSFORMER = "transformer, 109M + Adam"
CASES = {
    "16 × 64 MiB": Case(
        partial(subjects.values, 16, 64 * MIB), FEW, "≥ 2.2 ×, of it ≤ 0.9", "≥ 3 ×, of it ≤ 1.3"
    ),
    "8 × 128 MiB": Case(
        partial(subjects.values, 8, 128 * MIB), FEW, "≥ 1.1 ×, of it ≤ 0.7", "≥ 1.8 ×, of it ≤ 1.1"
    ),
    TRANSFORMER: Case(
        subjects.transformer,
        partial(subjects.transformer, small=True),
        "≥ 2.2 ×, of it ≤ 1.2",
        "≥ 2.5 ×, of it ≤ 1.4",
    ),
    "ResNet50 + Adam": Case(
        subjects.resnet50,
        partial(subjects.resnet50, small=True),
        "≥ 2.5 ×, of it ≤ 1.15",
        "≥ 2.5 ×, of it ≤ 2",
    ),
    "10,000 × 1 KiB": Case(partial(subjects.values, 10_000, KIB), FEW, "≥ 4 ×", "≥ 4 ×", 2),
}


class Theirs:
    """``tf.train.Checkpoint.write`` and ``read``."""

    kind: ClassVar[Any] = tf.train.Checkpoint

    def __init__(self, subject: Subject, directory: str) -> None:
        self.subject = subject
        self.directory = Path(directory, type(self).__name__)
        self.prefix = str(self.directory / "ckpt")
        self.checkpoint = self.kind(**subject.objects)

    def turn(self) -> dict[str, float]:
        self.directory.mkdir()
        try:
            return {"save": clock(self.save), "restore": clock(self.restore)}
        finally:
            shutil.rmtree(self.directory)

    def save(self) -> None:
        self.checkpoint.write(self.prefix)

    def restore(self) -> Any:
        return self.checkpoint.read(self.prefix)


class Ours(Theirs):
    kind = tfckpt.Checkpoint

    def stall(self) -> dict[str, float]:
        """Of a save in the background: how long its call takes."""
        self.directory.mkdir()
        options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
        try:
            spent = clock(partial(self.checkpoint.write, self.prefix, options))
            self.checkpoint.sync()
            return {"stall": spent}
        finally:
            shutil.rmtree(self.directory)


class Limit(Theirs):
    """System calls alone, in two threads."""

    def __init__(self, subject: Subject, directory: str) -> None:
        super().__init__(subject, directory)
        self.warm = np.ones(subject.nbytes, np.uint8)

    def save(self) -> None:
        self.shares: list[list[Any]] = [[], []]
        for array in sorted(self.subject.arrays().values(), key=lambda array: -array.nbytes):
            least = min(self.shares, key=lambda share: sum(one.nbytes for one in share))
            least.append(array.reshape(-1).view(np.uint8))
        self._in_threads(self._write)

    def restore(self) -> None:
        self._in_threads(self._read)

    @staticmethod
    def _in_threads(work: Callable[[int], None]) -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _write(self, number: int) -> None:
        file = os.open(f"{self.prefix}-{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        for array in self.shares[number]:
            for start in range(0, array.nbytes, CHUNK):
                os.write(file, array[start : start + CHUNK])
        os.fsync(file)
        os.close(file)

    def _read(self, number: int) -> None:
        sizes = [sum(array.nbytes for array in share) for share in self.shares]
        begin = sum(sizes[:number])
        into = memoryview(self.warm[begin : begin + sizes[number]])
        file = os.open(f"{self.prefix}-{number}", os.O_RDONLY)
        for start in range(0, len(into), CHUNK):
            os.preadv(file, [into[start : start + CHUNK]], start)
        os.close(file)


def run(settings: Settings) -> list[Row]:
    found = [row for name in CASES for row in rows_in_child(_whole, name, settings)]
    return found + rows_in_child(_background, settings)


def _subject(name: str, settings: Settings) -> Subject:
    return (CASES[name].tiny if settings.quick else CASES[name].build)()


def _whole(name: str, settings: Settings) -> list[Row]:
    case, subject = CASES[name], _subject(name, settings)
    turns = {
        kind.__name__: kind(subject, settings.directory).turn for kind in (Ours, Theirs, Limit)
    }
    found = medians(turns, case.rounds, settings)
    return [
        Row(
            f"{what}, {name}, ms",
            found["Ours"][what],
            found["Theirs"][what],
            limit=found["Limit"][what],
            goal=goal,
        )
        for what, goal in (("save", case.save), ("restore", case.restore))
    ]


def _background(settings: Settings) -> list[Row]:
    """TensorFlow's own raises for Keras 3 where a save comes after a save."""
    ours = Ours(_subject(TRANSFORMER, settings), settings.directory)
    found = medians({"": ours.stall}, ROUNDS, settings)[""]
    what = f"stall of a background save, {TRANSFORMER}, ms"
    return [Row(what, found["stall"], goal="≤ 25 ms")]
