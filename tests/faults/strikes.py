"""Strikes a process at its n-th call that changes files under one directory.

Python tells its audit hooks of most calls before they are made; what writes and syncs is caught
where the package does so, and what TensorFlow writes is one call. What there is to enumerate is
asked of the process itself: a run without a fault counts its calls.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from zoo.forkserver import ForkServer, Outcome, results

from tfckpt.live.snapshot import Snapshot
from tfckpt.stored.io.files import LocalOutput
from tfckpt.stored.io.locks import FileLock

TIMEOUT = 120.0  # seconds for one child
TOGETHER = 12  # cases in one child, where nothing is to be killed
CREATES, WRITES, DELETES = range(3)
EVENTS = {"os.rename": CREATES, "os.link": CREATES, "os.mkdir": CREATES}
EVENTS |= {"os.remove": DELETES, "os.rmdir": DELETES}


class Mode(IntEnum):
    """What happens at the n-th call."""

    COUNT = 0  # nothing
    KILL = 1  # the process is killed before it
    TORN = 2  # half of it is written, then the process is killed; only calls that write count
    ERROR = 3
    FULL = 4  # from here on there is no space; calls that delete do not count

    def counts(self, kind: int) -> bool:
        return kind != DELETES if self is Mode.FULL else kind == WRITES or self is not Mode.TORN


class Case(NamedTuple):
    """A scene under a fault; ``n`` counts from 1."""

    name: str
    mode: Mode
    n: int = 0


class Strike:
    """In a child: from here on, calls count, and the n-th is struck; the log is told before."""

    def __init__(self, root: str, log: str, mode: int, n: int) -> None:
        self._root, self._log = os.path.realpath(root), log
        self._mode, self._n = Mode(mode), n
        self._counts, self._lock, self._on = [0] * len(Mode), threading.Lock(), True
        sys.addaudithook(self._hear)
        for owner, name in ((LocalOutput, "write"), (FileLock, "write")):
            setattr(owner, name, self._writes(getattr(owner, name)))
        Snapshot.write_others = self._theirs(Snapshot.write_others)  # type: ignore[method-assign]
        os.fsync = self._syncs  # which never waits: what a kill leaves does not depend on it

    def calm(self) -> list[int]:
        """Nothing is struck any more; how many calls each mode could have struck."""
        self._on = False
        return self._counts

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes) and flags & (os.O_CREAT | os.O_TRUNC):
                self._judge(CREATES, event, os.fsdecode(path))
        elif event in EVENTS:
            path, at = os.fsdecode(arguments[0]), arguments[-1]
            self._judge(EVENTS[event], event, f"{_path_of(at)}/{path}" if at >= 0 else path)

    def _judge(self, kind: int, call: str, path: str) -> bool:
        """Whether half of it is to be written; what is struck does not return, or raises."""
        if not self._on or not f"{os.path.realpath(path)}/".startswith(f"{self._root}/"):
            return False
        with self._lock:
            for mode in Mode:
                self._counts[mode] += mode.counts(kind)
            now = self._counts[self._mode] if self._mode.counts(kind) else 0
            if not (now == self._n or (now > self._n and self._mode is Mode.FULL)):
                return False
            with Path(self._log).open("a") as log:
                log.write(f"fault {call} {path}\n")
        if self._mode is Mode.KILL:
            _die()
        if self._mode in (Mode.ERROR, Mode.FULL):
            number = errno.ENOSPC if self._mode is Mode.FULL else errno.EIO
            raise OSError(number, os.strerror(number), path)
        return self._mode is Mode.TORN

    def _writes(self, genuine: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def write(output: Any, data: Any) -> None:
            if self._judge(WRITES, "write", _path_of(output._file.fileno())):
                whole = memoryview(data).cast("B")
                genuine(output, whole[: len(whole) // 2])
                _die()
            genuine(output, data)

        return write

    def _syncs(self, descriptor: int) -> None:
        self._judge(CREATES, "fsync", _path_of(descriptor))

    def _theirs(self, genuine: Callable[..., None]) -> Callable[..., None]:
        """Half of what TensorFlow writes is there, whether it is killed or fails."""

        def write(snapshot: Any, path: str, options: Any) -> None:
            genuine(snapshot, path, options)
            try:
                whole = not self._judge(WRITES, "TensorFlow", path)
            except OSError:
                _halve(Path(path).parent)
                raise
            if not whole:
                _halve(Path(path).parent)
                _die()

        return write


def _halve(directory: Path) -> None:
    for path in directory.iterdir():
        os.truncate(path, path.stat().st_size // 2)


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


class Harness:
    """Runs scenes of `faults.scenes`, each in a directory and a child of its own."""

    def __init__(self, server: ForkServer, work: Path) -> None:
        self._server, self._work = server, work

    def every(self, names: Iterable[str]) -> list[list[Case]]:
        """A case for each call that a fault can strike, by scene and fault."""
        cases = []
        for name in names:
            before = self._work / f"{name}.before"
            self._server.run("faults.scenes:lay", name, str(before), timeout=TIMEOUT).result()
            counts = self._server.run(*self._request(Case(name, Mode.COUNT))).result()["calls"]
            cases += [
                [Case(name, mode, n) for n in range(1, counts[mode] + 1)] for mode in [*Mode][1:]
            ]
        return cases

    def problems(self, cases: Sequence[Case]) -> list[str]:
        """What is wrong after each, "" for nothing; :meth:`every` has been asked for its scene."""
        requests = [self._request(case) for case in cases]
        ended = self._server.run_many(requests, timeout=TIMEOUT)
        asked = [request[1:4] for request in requests]  # the scene, its directory and its log
        parts = [asked[at : at + TOGETHER] for at in range(0, len(asked), TOGETHER)]
        sent = [("faults.scenes:judge_many", part) for part in parts]
        verdicts = itertools.chain(*results(self._server.run_many(sent, timeout=TIMEOUT)))
        return [
            _struck(case, Path(log), outcome) + verdict
            for case, (*_, log), outcome, verdict in zip(cases, asked, ended, verdicts, strict=True)
        ]

    def _request(self, case: Case) -> list[Any]:
        root = self._work / f"{case.name} {case.mode.name} {case.n}"
        shutil.copytree(self._work / f"{case.name}.before", root)
        return ["faults.scenes:attempt", case.name, str(root), f"{root}.log", *case[1:]]


def _struck(case: Case, log: Path, outcome: Outcome) -> str:
    """What is wrong with how the process under attack has ended."""
    if "fault" not in (log.read_text() if log.exists() else ""):
        return "is not struck: the calls vary. "
    if case.mode in (Mode.KILL, Mode.TORN):
        return "" if outcome.signal == signal.SIGKILL else f"is not killed: {outcome}"
    return str(outcome) if outcome.error else str(outcome.value["problems"])
