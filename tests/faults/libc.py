"""Strikes a process at the n-th call below Python that changes files under one directory.

`preload.c` sees what Python and TensorFlow ask of libc; a process has it from its start. What there
is to enumerate is asked of the process itself: a run without a fault counts its calls.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from zoo.forkserver import ForkServer, Outcome, results

SOURCE = Path(__file__).with_name("preload.c")
TIMEOUT = 120.0  # seconds for one child
TOGETHER = 12  # cases in one child, where nothing is to be killed


class Mode(IntEnum):
    """What happens at the n-th call; the numbers are those of preload.c."""

    COUNT = 0  # nothing
    KILL = 1  # the process is killed before it
    TORN = 2  # half of it is written, then the process is killed; only calls that write count
    NO_SPACE = 3  # the disk is full; calls that delete do not count
    IO_ERROR = 4

    @property
    def kills(self) -> bool:
        return self in (Mode.KILL, Mode.TORN)


class Case(NamedTuple):
    """A scene under a fault: ``n`` counts from 1; ``once`` or from then on for ever."""

    name: str
    mode: Mode
    n: int = 0
    once: bool = True


def build(directory: Path) -> tuple[str, str]:
    """The library, or why there is none."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        return "", "faults below Python need Linux and a C compiler called `cc`"
    library = str(directory / "preload.so")
    command = [compiler, "-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-o", library, SOURCE]
    built = subprocess.run([*command, "-ldl"], capture_output=True, text=True, check=False)
    return (library, "") if not built.returncode else ("", f"does not compile: {built.stderr}")


def strike(directory: str, log: str, mode: int, n: int, once: bool) -> None:
    """In a child: from here on, calls count, and the n-th is struck; the log is told before."""
    told = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    place = os.fsencode(os.path.realpath(directory))
    ctypes.CDLL(None).faults_arm(place, ctypes.c_long(n), mode, int(once), told)


def calm() -> list[int]:
    """In a child: nothing is struck any more; how many calls each mode could have struck."""
    library = ctypes.CDLL(None)
    library.faults_count.restype = ctypes.c_long
    library.faults_disarm()
    return [int(library.faults_count(int(mode))) for mode in Mode]


class Harness:
    """Runs scenes of `faults.scenes`, each in a directory and a child of its own."""

    def __init__(self, server: ForkServer, work: Path) -> None:
        self._server, self._work = server, work
        self._numbers = itertools.count()
        self._calls: dict[str, list[int]] = {}

    def every(self, names: Iterable[str], modes: Sequence[Mode] = tuple(Mode)[1:]) -> list[Case]:
        """A case for each call that a fault can strike."""
        cases = []
        for name in names:
            if name not in self._calls:
                before, done = self._work / f"{name}.before", self._work / name
                self._server.run("faults.scenes:lay", name, str(before), timeout=TIMEOUT).result()
                shutil.copytree(before, done)
                count = self._server.run(*_request(Case(name, Mode.COUNT), done))
                self._calls[name] = count.result()["calls"]
            cases += [
                Case(name, mode, n, once)
                for mode in modes
                for once in ((True,) if mode.kills else (True, False))
                for n in range(1, self._calls[name][mode] + 1)
            ]
        return cases

    def problems(self, cases: Sequence[Case]) -> list[str]:
        """What is wrong after each, "" for nothing; :meth:`every` has been asked for its scene."""
        roots = [self._work / str(next(self._numbers)) for _ in cases]
        for case, root in zip(cases, roots, strict=True):
            shutil.copytree(self._work / f"{case.name}.before", root)
        requests = [_request(*one) for one in zip(cases, roots, strict=True)]
        ended = self._server.run_many(requests, timeout=TIMEOUT)
        asked = [
            [case.name, str(root), str(_log(root))] for case, root in zip(cases, roots, strict=True)
        ]
        parts = [asked[at : at + TOGETHER] for at in range(0, len(asked), TOGETHER)]
        sent = [("faults.scenes:judge_many", part) for part in parts]
        verdicts = itertools.chain(*results(self._server.run_many(sent, timeout=TIMEOUT)))
        return [
            _struck(case, root, outcome) + verdict
            for case, root, outcome, verdict in zip(cases, roots, ended, verdicts, strict=True)
        ]


def _request(case: Case, root: Path) -> list[Any]:
    return ["faults.scenes:attempt", case.name, str(root), str(_log(root)), *case[1:]]


def _log(root: Path) -> Path:
    return root.with_name(f"{root.name}.log")


def _struck(case: Case, root: Path, outcome: Outcome) -> str:
    """What is wrong with how the process under attack has ended."""
    log = _log(root)
    if "fault" not in (log.read_text() if log.exists() else ""):
        return "is not struck: the calls vary. "
    if case.mode.kills:
        return "" if outcome.signal == signal.SIGKILL else f"is not killed: {outcome}"
    return str(outcome) if outcome.error else str(outcome.value["problems"])
