"""Turns that are timed, processes of their own, and the rows that come of them.

Between two turns, outside of what is timed, garbage is collected and what is not on disk yet is
written, so that nobody pays for the one before.
"""

from __future__ import annotations

import gc
import json
import os
import random
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


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        what: is measured, with its unit at the end.
        ours: of tfckpt, the median.
        theirs: of TensorFlow, or of what ``beside`` says; None where nobody does the same.
        beside: whose figure ``theirs`` is.
        limit: of the machine: the same bytes by system calls alone, in two threads.
        goal: what tfckpt wants to reach.
    """

    what: str
    ours: float
    theirs: float | None = None
    beside: str = "TensorFlow"
    limit: float | None = None
    goal: str = ""


def clock(task: Callable[[], object]) -> float:
    """Milliseconds that a call takes; what it returns is dropped outside of them."""
    start = time.perf_counter()
    kept = task()
    spent = time.perf_counter() - start
    del kept
    return 1000 * spent


def medians(
    turns: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int, settings: Settings
) -> dict[str, dict[str, float]]:
    """Who takes part → measure → median, all round after round, in another order each time."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in turns}
    for number in range(-1, 1 if settings.quick else rounds):
        for name in random.Random(SEED + number).sample([*turns], len(turns)):
            gc.collect()
            if not settings.quick:
                os.sync()
            for what, value in turns[name]().items():
                if number >= 0:
                    found[name].setdefault(what, []).append(value)
    return {
        name: {what: statistics.median(values) for what, values in measured.items()}
        for name, measured in found.items()
    }


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, through JSON, in a process of its own; None where it was killed."""
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
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status > 0:
            raise RuntimeError(f"a child of {function.__name__} ended with {status}")
        result.seek(0)
        return json.loads(result.read()) if status == 0 else None


def rows_in_child(function: Callable[..., list[Row]], *arguments: Any) -> list[Row]:
    found = in_child(function, *arguments)
    if found is None:
        raise RuntimeError(f"a child of {function.__name__} was killed: out of memory?")
    return [Row(*row) for row in found]


def markdown(rows: list[Row]) -> str:
    lines = [
        "| | tfckpt | TensorFlow | × | limit | of it | goal |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        theirs = f"{_shown(row.theirs)}{'' if row.beside == 'TensorFlow' else f', {row.beside}'}"
        times = _shown(row.theirs and row.theirs / row.ours)
        of_limit = _shown(row.limit and row.ours / row.limit)
        cells = (row.what, _shown(row.ours), theirs if row.theirs else "", times)
        lines.append(f"| {' | '.join((*cells, _shown(row.limit), of_limit, row.goal))} |")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
