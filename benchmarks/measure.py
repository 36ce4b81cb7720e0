"""Turns that are timed, processes of their own, and peaks of memory.

A turn returns what it measured, by name. Between two turns, outside of what is timed, garbage is
collected and what is not on disk yet is written, so that nobody pays for the one before.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import random
import re
import resource
import signal
import statistics
import sys
import tempfile
import textwrap
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SEED = 1
MIB = 1 << 20
FAILS = "fails"
_STATUS = Path("/proc/self/status")


@dataclasses.dataclass(frozen=True)
class Result:
    """What was measured of one contestant, once per round.

    Attributes:
        workload: a key of ``WORKLOADS``.
        case: which size of it, and where.
        contestant: who.
        measure: what, with the unit at its end: ``save ms``.
        values: one per round; empty where it failed or does not apply.
        note: why there are none.
    """

    workload: str
    case: str
    contestant: str
    measure: str
    values: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        return min(self.values)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much is measured, and where.

    Attributes:
        quick: small sizes, a round or two: whether everything runs, not how fast.
        disk: a directory for scratch files, on the file system that is measured.
        memory: another in memory (tmpfs); None where there is none.
    """

    quick: bool
    disk: str
    memory: str | None

    @property
    def places(self) -> dict[str, str]:
        return {"disk": self.disk} | ({"tmpfs": self.memory} if self.memory else {})

    def rounds(self, full: int) -> int:
        return 1 if self.quick else full

    @property
    def warm(self) -> int:
        """Rounds before, which do not count."""
        return 0 if self.quick else 1

    def resolve(self) -> None:
        gc.collect()
        if not self.quick:
            os.sync()


def clock(task: Callable[[], object]) -> float:
    """Milliseconds that a call takes; what it returns is dropped outside of them."""
    start = time.perf_counter()
    kept = task()
    spent = time.perf_counter() - start
    del kept
    return 1000 * spent


def in_turns(
    workload: str,
    case: str,
    turns: Mapping[str, Callable[[], dict[str, float]]],
    rounds: Mapping[str, int],
    settings: Settings,
    *,
    first: bool = False,
) -> list[Result]:
    """All who take part, round after round, in another order each time.

    One that raises is out, and its results say why.

    Args:
        workload: of the results.
        case: of the results.
        turns: contestant → what measures it once.
        rounds: contestant → in how many of the first rounds it takes part.
        settings: of the run.
        first: whether the round before those that count is shown, by measures of its own.
    """
    found: dict[str, dict[str, list[float]]] = {name: {} for name in turns}
    failed: dict[str, str] = {}
    for number in range(-settings.warm, max(rounds.values())):
        names = [name for name in turns if name not in failed and number < rounds[name]]
        for name in random.Random(SEED + number).sample(names, len(names)):
            settings.resolve()
            try:
                measured = turns[name]()
            except Exception as error:
                failed[name] = _said(error)
                continue
            for what, value in measured.items():
                if number >= 0:
                    found[name].setdefault(what, []).append(value)
                elif first:
                    found[name][f"first {what}"] = [value]
    results = []
    for name, measured in found.items():
        for what, values in measured.items():
            results.append(Result(workload, case, name, what, tuple(values)))
        if name in failed:
            results.append(Result(workload, case, name, FAILS, (), failed[name]))
    return results


def resident() -> float:
    """MiB of resident memory now, garbage collected; the high-water mark where that is unknown."""
    gc.collect()
    return _status("VmRSS:") if _STATUS.exists() else _ru_maxrss()


def high_water(task: Callable[[], object]) -> float:
    """MiB of resident memory at the most while a call runs; what it returns is in it.

    The mark is set back before (Linux: Documentation/filesystems/proc.rst, clear_refs); where that
    is not allowed, it is the highest of all of the process.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        task()
        return _ru_maxrss()
    kept = task()
    highest = _status("VmHWM:")
    del kept
    return highest


def _status(field: str) -> float:
    (line,) = (one for one in _STATUS.read_text().splitlines() if one.startswith(field))
    return int(line.split()[1]) / 1024


def _ru_maxrss() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB


def _said(error: Exception) -> str:
    """What an error says, in short, and without the directories of this machine."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return textwrap.shorten(re.sub(r"/\S*/", "", text), 120, placeholder=" …")


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process of its own; None where that was killed.

    What is returned goes through JSON. This process has imported TensorFlow and run nothing, so
    that it may fork.
    """
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
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        except KeyboardInterrupt:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        if status not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a child of {function.__name__} ended with {status}")
        result.seek(0)
        return json.loads(result.read()) if status == 0 else None


def results_in_child(function: Callable[..., list[Result]], *arguments: Any) -> list[Result]:
    """Results of a function in a process of its own."""
    found = in_child(_as_lists, function, *arguments)
    if found is None:
        raise RuntimeError(f"a child of {function.__name__} was killed: out of memory?")
    return [Result(*fields[:4], tuple(fields[4]), fields[5]) for fields in found]


def _as_lists(function: Callable[..., list[Result]], *arguments: Any) -> list[Any]:
    return [list(dataclasses.astuple(result)) for result in function(*arguments)]
