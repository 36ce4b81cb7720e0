"""Turns that are timed, processes of their own, and the rows that come of them.

Between two turns, outside of what is timed, garbage is collected and what is not on disk yet is
written, so that nobody pays for the one before.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SEED = 1


class Settings(NamedTuple):
    """How much is measured, and where.

    Attributes:
        quick: small sizes, one round: whether everything runs, not how fast.
        directory: for scratch files, on the file system that is measured.
    """

    quick: bool
    directory: str


class Spent(NamedTuple):
    """What a call took: milliseconds of processor time, and of the clock; or another figure."""

    cpu: float
    wall: float | None = None

    def by(self, count: int) -> Spent:
        """Microseconds for each of so many."""
        return Spent(1000 * self.cpu / count, 1000 * (self.wall or 0) / count)


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        what: is measured, with its unit at the end.
        ours: of tfckpt, the median.
        theirs: of TensorFlow; None where it does not do the same.
        floor: of the machine: the same bytes by system calls alone, in two threads.
        goal: what tfckpt wants to reach.
    """

    what: str
    ours: Spent
    theirs: Spent | None = None
    floor: Spent | None = None
    goal: str = ""


def clock(task: Callable[[], object], processor: Callable[[], float] | None = None) -> Spent:
    """What a call spends; what it returns is dropped outside of that.

    ``processor`` is the clock of processor time, by default that of all threads and children.
    """
    processor = processor or _processor
    wall, cpu = time.perf_counter(), processor()
    kept = task()
    spent = Spent(1000 * (processor() - cpu), 1000 * (time.perf_counter() - wall))
    del kept
    return spent


def _processor() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def medians(
    turns: Mapping[str, Callable[[], Mapping[str, Spent]]], rounds: int, settings: Settings
) -> dict[str, dict[str, Spent]]:
    """Who takes part → measure → medians, all round after round, in another order each time."""
    found: dict[str, dict[str, list[Spent]]] = {name: {} for name in turns}
    for number in range(-1, 1 if settings.quick else rounds):
        for name in random.Random(SEED + number).sample([*turns], len(turns)):
            gc.collect()
            if not settings.quick:
                os.sync()
            for what, spent in turns[name]().items():
                if number >= 0:
                    found[name].setdefault(what, []).append(spent)
    return {
        name: {
            what: Spent(*(statistics.median(each) for each in zip(*all_, strict=True)))
            for what, all_ in measured.items()
        }
        for name, measured in found.items()
    }


def median(task: Callable[[], object], rounds: int, settings: Settings) -> Spent:
    """Of one who takes part alone."""
    return medians({"": lambda: {"": clock(task)}}, rounds, settings)[""][""]


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, through JSON, in a process of its own."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as result:
        child = os.fork()
        if not child:
            try:
                result.write(json.dumps(function(*arguments)).encode())
                result.flush()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise RuntimeError(f"a child of {function.__name__} ended with {status}")
        result.seek(0)
        return json.loads(result.read())


def rows_in_child(function: Callable[..., list[Row]], *arguments: Any) -> list[Row]:
    rows = []
    for what, *figures, goal in in_child(function, *arguments):
        rows.append(Row(what, *(each and Spent(*each) for each in figures), goal))
    return rows


def markdown(rows: list[Row]) -> str:
    lines = [
        "| | processor: tfckpt | TensorFlow | × | floor "
        "| clock: tfckpt | TensorFlow | × | floor | of it | goal |",
        f"|---|{'--:|' * 9}---|",
    ]
    for row in rows:
        ours, none = row.ours, Spent(0)
        theirs, floor = row.theirs or none, row.floor or none
        cells = [
            ours.cpu,
            theirs.cpu,
            theirs.cpu / ours.cpu,
            floor.cpu,
            ours.wall,
            theirs.wall,
            theirs.wall and ours.wall and theirs.wall / ours.wall,
            floor.wall,
            floor.wall and ours.wall and ours.wall / floor.wall,
        ]
        lines.append(f"| {' | '.join((row.what, *map(_shown, cells), row.goal))} |")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "" if not value else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
