"""Whole restores beside two processes that keep two processors busy."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import TensorFlow, Tfckpt
from benchmarks.measure import Result, Settings, clock, in_turns, results_in_child
from benchmarks.saving import CASES

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("16x64", "8x128", "transformer", "resnet50")
BUSY = 2
ROUNDS = 5


def run(settings: Settings) -> list[Result]:
    return [one for name in NAMES for one in results_in_child(_case, name, settings)]


def _case(name: str, settings: Settings) -> list[Result]:
    case = CASES[name]
    subject = (case.tiny if settings.quick else case.build)()
    ways = [kind(subject, settings.disk) for kind in (TensorFlow, Tfckpt)]
    for way in ways:
        way.save()
    turns = {way.name: partial(_turn, way) for way in ways}
    rounds = dict.fromkeys(turns, settings.rounds(ROUNDS))
    with _busy():
        found = in_turns("crowded", f"{case.title}, disk", turns, rounds, settings)
    for way in ways:
        way.clear()
    return found


def _turn(way: TensorFlow) -> dict[str, float]:
    return {"restore ms": clock(way.restore)}


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(BUSY)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
