"""A tenth of a checkpoint is restored: how fast, and how many bytes are read for it.

Bytes are those of all ``read`` calls (``rchar`` in proc_pid_io(5)), index and record included.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import subjects
from benchmarks.contestants import TensorFlow, Tfckpt
from benchmarks.measure import MIB, Result, Settings, clock, in_turns, results_in_child

CASES = {"16 of 160 × 4 MiB": (160, 4 * MIB), "1,000 of 10,000 × 1 KiB": (10_000, 1 << 10)}
TINY = dict.fromkeys(CASES, (20, 1 << 10))
ROUNDS = 9
COUNTERS = Path("/proc/self/io")


def run(settings: Settings) -> list[Result]:
    cases = TINY if settings.quick else CASES
    return [r for case in cases for r in results_in_child(_case, case, *cases[case], settings)]


def _case(case: str, count: int, nbytes: int, settings: Settings) -> list[Result]:
    whole = subjects.values(count, nbytes)
    some, rest = whole.variables[: count // 10], whole.variables[count // 10 :]
    turns = {}
    for kind in (TensorFlow, Tfckpt):
        divided = subjects.Subject({"some": some, "rest": rest}, whole.variables)
        writer = kind(divided, settings.disk)
        writer.save()
        reader = kind.kind(some=some)
        turns[kind.name] = partial(_turn, reader, writer.prefix, len(some) * nbytes)
    rounds = dict.fromkeys(turns, settings.rounds(ROUNDS))
    return in_turns("tenth", f"{case}, disk", turns, rounds, settings)


def _turn(reader: Any, prefix: str, needed: int) -> dict[str, float]:
    before = _read()
    spent = clock(lambda: reader.read(prefix).expect_partial())
    found = {"restore ms": spent}
    if COUNTERS.exists():
        found["bytes read ÷ needed"] = (_read() - before) / needed
    return found


def _read() -> int:
    if not COUNTERS.exists():
        return 0
    (line,) = (one for one in COUNTERS.read_text().splitlines() if one.startswith("rchar:"))
    return int(line.split()[1])
