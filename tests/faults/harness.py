"""Runs scenarios under every fault, each in a directory and, where it kills, a process of its own.

What there is to enumerate is asked of the process itself: a run without a fault counts its calls,
and a fault after the last call must not strike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from faults.injection import Fault, Mode, build_preload
from faults.journal import Journal, State
from faults.power import Loss
from faults.scenarios import SCENARIOS, directory_of
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PRELOAD = ("tensorflow", "keras", "tfckpt", "faults.child", "faults.oracle")
TIMEOUT = 120.0  # seconds for one child
SEED = 20250131
SHOWN = 20
TOGETHER = 12  # cases in one child, where nothing is to be killed
KINDS = (
    *(Fault(mode, 0) for mode in (Mode.KILL_BEFORE, Mode.KILL_AFTER, Mode.TORN)),
    *(Fault(mode, 0, once) for mode in (Mode.NO_SPACE, Mode.IO_ERROR) for once in (True, False)),
)
"""Every kind of fault, its place left open."""
KILLS = [kind for kind in KINDS if kind.mode.kills]
ALL = [name for name in SCENARIOS if name != "recover"]


@contextlib.contextmanager
def below_python(work: Path, preload: Sequence[str]) -> Iterator[ForkServer]:
    """Children of which every call of libc can be struck; skips where there is no compiler."""
    library, why = build_preload(work)
    if library is None:
        pytest.skip(why)
    libraries = ":".join(filter(None, (str(library), os.environ.get("LD_PRELOAD", ""))))
    with ForkServer(env={"LD_PRELOAD": libraries}, preload=preload) as server:
        yield server


@dataclasses.dataclass(frozen=True)
class Case:
    """One scenario under one fault; `before` is what the directory held, "" for nothing."""

    library: str
    scenario: str
    fault: Fault
    before: str = ""
    beyond: bool = False  # there is no such call: the enumeration ends here

    def __str__(self) -> str:
        return f"{self.library}, {self.scenario}, {self.fault}"


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of it; each text is "" where nothing is wrong."""

    case: Case
    struck: str
    unrecoverable: str
    debris: str
    misbehaved: str
    root: Path

    def __str__(self) -> str:
        found = [
            f"{name}: {text}"
            for name in ("unrecoverable", "debris", "misbehaved")
            if (text := getattr(self, name))
        ]
        return f"{self.case} ({self.struck})\n  " + "\n  ".join(found)

    @property
    def bad(self) -> bool:
        return bool(self.unrecoverable or self.debris or self.misbehaved)


class Harness:
    """Runs cases below one level (`libc` or `seam`) with a fork server."""

    def __init__(self, server: ForkServer, work: Path, below: str) -> None:
        self._server = server
        self._work = work
        self._below = below
        self._numbers = itertools.count()
        self._before: dict[tuple[str, str], str] = {}

    def every(
        self,
        library: str,
        scenarios: Iterable[str],
        kinds: Iterable[Fault] = KINDS,
        before: Sequence[str] = ("",),
    ) -> list[Case]:
        """A case for each call that a kind of fault can strike, and one more that strikes none."""
        places = [
            Case(library, scenario, Fault(Mode.COUNT, 0), directory)
            for scenario, directory in itertools.product(scenarios, before)
        ]
        requests = [("faults.child:live", *self._request(*one)) for one in self._lay(places)]
        cases = []
        for place, outcome in zip(
            places, self._server.run_many(requests, timeout=TIMEOUT), strict=True
        ):
            value = outcome.result()
            assert not value["problems"], value
            for kind in kinds:
                calls = value["calls"][str(int(kind.mode))]
                for n in range(1, calls + 2):
                    fault = dataclasses.replace(kind, n=n)
                    cases.append(dataclasses.replace(place, fault=fault, beyond=n > calls))
        return cases

    def run(self, cases: Sequence[Case]) -> list[Result]:
        """The results, in the order of the cases."""
        laid = self._lay(cases)
        lived = self._live(laid)
        verdicts = self.judge(
            [Question(case.library, case.scenario, root, _journal(root)) for root, case in laid]
        )
        results = []
        for (root, case), problems, verdict in zip(laid, lived, verdicts, strict=True):
            faults = state_of(root).faults
            if bool(faults) == case.beyond:
                problems.append("is struck" if faults else "is not struck: the calls vary")
            results.append(
                Result(
                    case,
                    faults[0] if faults else "",
                    verdict["unrecoverable"],
                    verdict["debris"],
                    "\n".join(problems),
                    root,
                )
            )
        return results

    def cut_power(self, scenario: str, seed: int, *, share: float, durable: bool) -> list[Loss]:
        """Directories as losses of power leave them, at a share of all calls of a scenario."""
        case = Case("tfckpt", scenario, Fault(Mode.COUNT, 0))
        [(root, _)] = self._lay([case])
        work = self._work / f"{root.name}.losses"
        work.mkdir()
        arguments = (scenario, str(root), str(_journal(root)), durable, str(work), seed, share)
        outcome = self._server.run(
            "faults.child:live_until_power_fails", *arguments, timeout=TIMEOUT
        )
        return [Loss(**fields) for fields in outcome.result()]

    def _lay(self, cases: Sequence[Case]) -> list[tuple[Path, Case]]:
        laid = []
        for case in cases:
            root = self._work / str(next(self._numbers))
            before = case.before or self._template(case.library, case.scenario)
            if before:
                shutil.copytree(before, root, symlinks=True)
                _journal(root).write_text(_without_faults(_journal(Path(before)).read_text()))
            else:
                root.mkdir()
            laid.append((root, case))
        return laid

    def _template(self, library: str, scenario: str) -> str:
        """What the process before left, made once; "" where there was none."""
        if SCENARIOS[scenario].before is None:
            return ""
        if (library, scenario) not in self._before:
            root = self._work / f"{library}-{scenario}".replace(" ", "-")
            root.mkdir()
            arguments = (library, scenario, str(root), str(_journal(root)), self._below, None)
            self._server.run("faults.child:live", *arguments, timeout=TIMEOUT).result()
            self._before[library, scenario] = str(root)
        return self._before[library, scenario]

    def _request(self, root: Path, case: Case) -> list[Any]:
        fault = [int(case.fault.mode), case.fault.n, case.fault.once]
        journal = str(_journal(root))
        return [case.library, case.scenario, str(root), journal, self._below, fault]

    def _live(self, laid: list[tuple[Path, Case]]) -> list[list[str]]:
        """What is wrong with how each went on; nothing is, where it was killed as it should be."""
        requests = [("faults.child:live", *self._request(*one)) for one in laid]
        found = []
        for (root, case), outcome in zip(
            laid, self._server.run_many(requests, timeout=TIMEOUT), strict=True
        ):
            killed = case.fault.mode.kills and bool(state_of(root).faults)
            if killed and outcome.signal == signal.SIGKILL:
                found.append([])
            elif not killed and outcome.error is None:
                found.append(outcome.value["problems"])
            else:
                found.append([str(outcome)])
        return found

    def judge(self, questions: Sequence[Question]) -> list[dict[str, str]]:
        """Verdicts on copies, a dozen in a child; where one ends its child, each has its own."""
        verdicts: list[dict[str, str]] = []
        parts = [questions[at : at + TOGETHER] for at in range(0, len(questions), TOGETHER)]
        sent = [("faults.oracle:judge_many", [one.ask() for one in part]) for part in parts]
        for part, outcome in zip(parts, self._server.run_many(sent, timeout=TIMEOUT), strict=True):
            if outcome.error is None:
                verdicts += outcome.value
                continue
            single = [("faults.oracle:judge", *one.ask()) for one in part]
            for answer in self._server.run_many(single, timeout=TIMEOUT):
                ended = {"unrecoverable": str(answer), "debris": ""}
                verdicts.append(answer.value if answer.error is None else ended)
        for one in questions:
            shutil.rmtree(one.copy)
        return verdicts


@dataclasses.dataclass(frozen=True)
class Question:
    """What the oracle is asked about."""

    library: str
    scenario: str
    root: Path
    journal: Path

    @property
    def copy(self) -> Path:
        return self.root.with_name(f"{self.root.name}.judged")

    def ask(self) -> list[Any]:
        """The oracle's arguments; it saves, so it gets a fresh copy."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.root, self.copy, symlinks=True)
        scenario = SCENARIOS[self.scenario]
        where = directory_of(str(self.copy))
        return [self.library, where, str(self.journal), scenario.max_to_keep, scenario.fixed]


def _journal(root: Path) -> Path:
    return root.with_name(f"{root.name}.journal")


def shape(root: Path) -> tuple[tuple[str, int], ...]:
    """What a directory holds, but for names that are drawn at random: equal for equal states."""
    drawn = re.compile(r"[0-9a-f]{8}(?=\.tmp)|(?<=tempstate)\d+")
    return tuple(
        sorted(
            (drawn.sub("", str(file.relative_to(root))), file.stat().st_size)
            for file in root.rglob("*")
        )
    )


def _without_faults(journal: str) -> str:
    return "".join(line for line in journal.splitlines(True) if not line.startswith("fault"))


def state_of(root: Path) -> State:
    return Journal(_journal(root)).state()


def table(results: Iterable[Result]) -> str:
    """How many cases there were and how they ended, by library and scenario."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for result in results:
        for scenario in (result.case.scenario, "all"):
            row = rows.setdefault((result.case.library, scenario), Counter())
            row["cases"] += 1
            row["struck"] += bool(result.struck)
            row["unrecoverable"] += bool(result.unrecoverable)
            row["debris"] += bool(result.debris)
            row["misbehaved"] += bool(result.misbehaved)
    columns = ("cases", "struck", "unrecoverable", "debris", "misbehaved")
    lines = [f"{'library':<12}{'scenario':<14}" + "".join(f"{c:>15}" for c in columns)]
    for (library, scenario), row in sorted(rows.items()):
        lines.append(f"{library:<12}{scenario:<14}" + "".join(f"{row[c]:>15}" for c in columns))
    return "\n".join(lines)


def show(results: Sequence[Result]) -> None:
    print(f"\nseed {SEED}\n{table(results)}")


def assert_sound(results: Sequence[Result]) -> None:
    bad = [str(result) for result in results if result.bad]
    assert not bad, f"{len(bad)} of {len(results)}:\n" + "\n".join(bad[:SHOWN])
