"""A save in the background while the main thread runs Python and holds its lock (the GIL)."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import subjects
from benchmarks.background import Async, InBackground, TfckptAsync, Thread
from benchmarks.measure import MIB, Result, Settings, in_turns, results_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = {"16 × 64 MiB": (16, 64 * MIB), "5,000 × 1 KiB": (5_000, 1 << 10)}
TINY = dict.fromkeys(CASES, (20, 1 << 10))
ROUNDS = 3
FEW = 100
ALONE = 0.2  # seconds in which the main thread's own speed is measured


def run(settings: Settings) -> list[Result]:
    cases = TINY if settings.quick else CASES
    return [r for case in cases for r in results_in_child(_case, case, *cases[case], settings)]


def _case(case: str, count: int, nbytes: int, settings: Settings) -> list[Result]:
    subject = subjects.values(count, nbytes)
    kinds: list[type[InBackground]] = [Thread, TfckptAsync]
    if count <= FEW:  # of thousands TensorFlow's own takes minutes beside busy Python
        kinds.append(Async)
    ways = [kind(subject, settings.disk) for kind in kinds]
    turns = {way.name: partial(_turn, way) for way in ways}
    rounds = dict.fromkeys(turns, settings.rounds(ROUNDS))
    return in_turns("busy", f"{case}, disk", turns, rounds, settings)


def _turn(way: InBackground) -> dict[str, float]:
    end = time.perf_counter() + ALONE
    own = _work(lambda: time.perf_counter() > end) / ALONE
    try:
        way.ready()
        start = time.perf_counter()
        way.save()
        begun = time.perf_counter()
        done = _work(way.done.is_set)
        end = time.perf_counter()
        way.wait()
    finally:
        way.clear()
    speed = done / (end - begun)
    return {"background save ms": 1000 * (end - start), "main thread's speed": speed / own}


def _work(until: Callable[[], bool]) -> int:
    """Python, until something; how much of it."""
    count = total = 0
    while not until():
        count += 1
        for number in range(1000):
            total += number
    return count
