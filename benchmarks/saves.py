"""Saves and restores of whole subjects, and the stall of a save in the background.

A restore reads what was saved just before, from the page cache, into the same variables. The floor
is ``write`` and ``fsync`` of the same bytes by two threads, and ``pread`` of them into memory that
has been used before. A save of tfckpt's has every byte on the disk; TensorFlow's waits for none.
What is beyond the floor, by the value, has checksums and looking for NaN in it, which are by bytes.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import shutil
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf

import tfckpt
from benchmarks import subjects
from benchmarks.measure import Row, Settings, Spent, clock, median, medians, rows_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.subjects import Subject

KIB, MIB = 1 << 10, 1 << 20
CHUNK = MIB
ROUNDS = 7


class Case(NamedTuple):
    """A subject, a small one of its kind, and what is wanted; "" where it is not measured."""

    build: Callable[[], Subject]
    tiny: Callable[[], Subject]
    save: str
    restore: str
    stall: str = ""
    value: tuple[str, str] | None = ("≤ 50", "≤ 55")
    rounds: int = ROUNDS


def _model(build: Callable[..., Subject], save: str, restore: str, stall: str) -> Case:
    return Case(build, partial(build, small=True), save, restore, stall)


FEW = partial(subjects.values, 20, KIB)
MLP, RESNET, SAME = "MLP + Adam", "ResNet50 + Adam", "no slower"
CASES = {
    MLP: _model(subjects.mlp, "≥ 1.9 ×", "≥ 1.7 ×", "≤ 3"),
    RESNET: _model(subjects.resnet50, "≥ 2 ×; clock ≤ 1.2 of the floor", "≥ 2 ×", "≤ 25"),
    "BERT-base + Adam": _model(subjects.bert, SAME, "≥ 2 ×", "≤ 25"),
    "10,000 × 1 KiB": Case(
        partial(subjects.values, 10_000, KIB), FEW, "≥ 4.5 ×", "≥ 2.5 ×", "≤ 250", rounds=3
    ),
    "16 × 64 MiB": Case(partial(subjects.values, 16, 64 * MIB), FEW, SAME, SAME, value=None),
    "800 blocks with back references": Case(
        partial(subjects.with_back_references, 800),
        partial(subjects.with_back_references, 8),
        "≥ 0.33 ×",
        "≥ 0.33 ×",
        value=None,
        rounds=3,
    ),
}


class Theirs:
    """``tf.train.Checkpoint.write`` and ``read``."""

    kind: ClassVar[Any] = tf.train.Checkpoint

    def __init__(self, subject: Subject, directory: str) -> None:
        self.subject = subject
        self.directory = Path(directory, type(self).__name__)
        self.prefix = str(self.directory / "ckpt")
        self.checkpoint = self.kind(**subject.objects)

    def turn(self) -> dict[str, Spent]:
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

    def stall(self) -> dict[str, Spent]:
        """Of a save in the background: how long its call takes, in its thread."""
        self.directory.mkdir()
        options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
        try:
            spent = clock(partial(self.checkpoint.write, self.prefix, options), time.thread_time)
            self.checkpoint.sync()
            return {"stall": spent}
        finally:
            shutil.rmtree(self.directory)

    def counted(self) -> list[Row]:
        """Calls and waits, which no clock disturbs; all but the first, which imports."""
        self.directory.mkdir()
        synced: list[int] = []
        rows = [
            Row("calls of Python in a save, MLP", _calls(self.save), goal="≤ 18,000"),
            Row("calls of Python in a restore, MLP", _calls(self.restore), goal="≤ 14,000"),
        ]
        with mock.patch.object(os, "fsync", synced.append):
            self.checkpoint.write(f"{self.prefix}-fresh")
            rows.append(Row("waits for the disk in a `write`", Spent(len(synced)), goal="≤ 6"))
            synced.clear()
            self.checkpoint.save(self.prefix)
            rows.append(Row("waits for the disk in a `save`", Spent(len(synced)), goal="≤ 7"))
        shutil.rmtree(self.directory)
        return rows


def _calls(task: Callable[[], object]) -> Spent:
    profile = cProfile.Profile()
    profile.runcall(task)
    return Spent(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


class Floor(Theirs):
    """System calls alone: as many bytes, in two threads, from and to memory in use."""

    def __init__(self, subject: Subject, directory: str) -> None:
        super().__init__(subject, directory)
        self.halves = np.array_split(np.ones(subject.nbytes, np.uint8), 2)

    def save(self) -> None:
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
        half = self.halves[number]
        file = os.open(f"{self.prefix}-{number}", os.O_WRONLY | os.O_CREAT)
        os.posix_fallocate(file, 0, half.nbytes)
        for start in range(0, half.nbytes, CHUNK):
            os.write(file, half[start : start + CHUNK])
        os.fsync(file)
        os.close(file)

    def _read(self, number: int) -> None:
        file, half = os.open(f"{self.prefix}-{number}", os.O_RDONLY), self.halves[number]
        for start in range(0, half.nbytes, CHUNK):
            os.preadv(file, [half[start : start + CHUNK].data], start)
        os.close(file)


def run(settings: Settings) -> list[Row]:
    return [row for name in CASES for row in rows_in_child(_of, name, settings)]


def _of(name: str, settings: Settings) -> list[Row]:
    case = CASES[name]
    subject = case.tiny() if settings.quick else case.build()
    ours = Ours(subject, settings.directory)
    others = (Theirs(subject, settings.directory), Floor(subject, settings.directory))
    turns = {type(each).__name__: each.turn for each in (ours, *others)}
    found = medians(turns, case.rounds, settings)
    rows, count = list[Row](), len(subject.variables)
    for what, goal in (("save", case.save), ("restore", case.restore)):
        spent, theirs, floor = (found[who][what] for who in ("Ours", "Theirs", "Floor"))
        rows.append(Row(f"{what}, {name}, ms", spent, theirs, floor, goal))
    for row, goal in zip([*rows], case.value or (), strict=False):
        assert row.floor is not None
        beyond = Spent(1000 * (row.ours.cpu - row.floor.cpu) / count)
        what = row.what.replace(", ms", ", beyond the floor, µs a value")
        rows.append(Row(what, beyond, goal=goal))
    if case.stall:
        stall = medians({"": ours.stall}, case.rounds, settings)[""]["stall"]
        rows.append(Row(f"stall of a background save, {name}, ms", stall, goal=case.stall))
    if name == RESNET:
        named = median(partial(tfckpt.inventory, **subject.objects), case.rounds, settings)
        rows.append(Row(f"names, {name}, µs a value", named.by(count), goal="≤ 18"))
    return rows + (ours.counted() if name == MLP else [])
