"""A command is killed, or told that the disk is full or broken, at each call that changes files.

No checkpoint that was whole is lost, the state file names nothing that is gone, the same command
works again, and the next one on that directory, or the next save, leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import shutil
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from faults.commands import COMMANDS
from faults.harness import KINDS, SEED, SHOWN, TIMEOUT, TOGETHER, below_python, shape
from faults.injection import Fault, Mode
from zoo.forkserver import ForkServer, results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PRELOAD = (
    *("tensorflow", "absl.flags", "tfckpt", "faults.commands"),
    *("tfckpt.cli.commands", "tfckpt.tools.rewriting", "tfckpt.tools.verification"),
)
BEFORE_EACH_CALL = Fault(Mode.KILL_BEFORE, 0)
COLUMNS = (
    *("cases", "killed", "lost", "lost then", "named", "named then", "left", "left then"),
    "misbehaved",
)


@dataclasses.dataclass(frozen=True)
class CommandCase:
    """A command under a fault; ``before`` is the directory that it finds, if not the usual one."""

    name: str
    fault: Fault
    before: Path | None = None


@dataclasses.dataclass(frozen=True)
class CommandResult:
    """What came of it: the directory, whether the process was killed, and what is wrong."""

    case: CommandCase
    root: Path
    killed: bool
    verdict: dict[str, str]

    @property
    def wrong(self) -> str:
        """Empty if nothing is; what a fault leaves is wrong only if it stays."""
        bad = {kind: text for kind, text in self.verdict.items() if text and kind != "left"}
        return f"{self.case.name}, {self.case.fault}: {bad}" if bad else ""


class CommandHarness:
    """Runs commands, each in a child of its own."""

    def __init__(self, server: ForkServer, work: Path) -> None:
        self._server, self._work = server, work
        self._numbers = itertools.count()

    def every(
        self, name: str, kinds: Sequence[Fault] = KINDS, before: Path | None = None
    ) -> list[CommandCase]:
        """A case for each call that a kind of fault can strike."""
        self._make(name)
        count = CommandCase(name, Fault(Mode.COUNT, 0), before)
        [ended] = results([self._server.run(*self._request(count, self._lay(count)))])
        return [
            CommandCase(name, dataclasses.replace(kind, n=n), before)
            for kind in kinds
            for n in range(1, ended["calls"][str(int(kind.mode))] + 1)
        ]

    def run(self, cases: Sequence[CommandCase]) -> list[CommandResult]:
        """The results, of which a table is printed."""
        roots = [self._lay(case) for case in cases]
        requests = [self._request(case, root) for case, root in zip(cases, roots, strict=True)]
        ended = self._server.run_many(requests, timeout=TIMEOUT)
        asked = [
            [case.name, str(root), str(self._done(case.name))]
            for case, root in zip(cases, roots, strict=True)
        ]
        sent = [
            ("faults.commands:judge_many", asked[at : at + TOGETHER])
            for at in range(0, len(asked), TOGETHER)
        ]
        judged = results(self._server.run_many(sent, timeout=TIMEOUT))
        found = []
        for case, root, outcome, verdict in zip(
            cases, roots, ended, itertools.chain(*judged), strict=True
        ):
            killed = outcome.signal == signal.SIGKILL
            if killed != case.fault.mode.kills or not _log(root).read_text():
                verdict["misbehaved"] += f"not struck, or not as it should be: {outcome}"
            if not killed and (outcome.error or "Traceback" in outcome.value["err"]):
                verdict["misbehaved"] += str(outcome)
            found.append(CommandResult(case, root, killed, verdict))
        print(f"\nseed {SEED}\n{table(found)}")
        return found

    def _done(self, name: str) -> Path:
        return self._work / name.replace(" ", "-")

    def _make(self, name: str) -> None:
        """The directory before the command and, without a fault, after it."""
        done = self._done(name)
        if not done.exists():
            before = f"{done}.before"
            results([self._server.run("faults.commands:lay", name, before, timeout=TIMEOUT)])
            shutil.copytree(before, done)
            count = CommandCase(name, Fault(Mode.COUNT, 0))
            [ended] = results([self._server.run(*self._request(count, done))])
            assert "Traceback" not in ended["err"]

    def _lay(self, case: CommandCase) -> Path:
        root = self._work / str(next(self._numbers))
        shutil.copytree(case.before or f"{self._done(case.name)}.before", root)
        return root

    def _request(self, case: CommandCase, root: Path) -> list[Any]:
        fault = [int(case.fault.mode), case.fault.n, case.fault.once]
        return ["faults.commands:attempt", case.name, str(root), str(_log(root)), fault]


def _log(root: Path) -> Path:
    return root.with_suffix(".log")


def table(found: Sequence[CommandResult]) -> str:
    """How many cases there were and how they ended, by command."""
    rows: dict[str, Counter[str]] = {}
    for one in found:
        row = rows.setdefault(one.case.name, Counter())
        row.update(["cases", *["killed"] * one.killed])
        row.update(kind for kind, text in one.verdict.items() if text)
    lines = [f"{'command':<20}" + "".join(f"{column:>12}" for column in COLUMNS)]
    for name, row in rows.items():
        lines.append(f"{name:<20}" + "".join(f"{row[column]:>12}" for column in COLUMNS))
    return "\n".join(lines)


def assert_sound(found: Sequence[CommandResult]) -> None:
    wrong = [one.wrong for one in found if one.wrong]
    assert not wrong, f"{len(wrong)} of {len(found)}:\n" + "\n".join(wrong[:SHOWN])


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandHarness]:
    work = tmp_path_factory.mktemp("faults")
    with below_python(work, PRELOAD) as server:
        yield CommandHarness(server, work)


def test_no_fault_of_a_command_costs_a_checkpoint_or_stays(harness: CommandHarness) -> None:
    cases = [case for name in COMMANDS for case in harness.every(name)]
    assert_sound(harness.run(random.Random(SEED).sample(cases, 50)))


def test_a_command_killed_while_it_clears_up_after_another(harness: CommandHarness) -> None:
    rng = random.Random(SEED)
    names = ("prune", "rewrite", "quarantine")
    cases = [case for name in names for case in harness.every(name, [BEFORE_EACH_CALL])]
    found = _distinct(harness.run(rng.sample(cases, 12)))
    again = [case for one in found for case in _again(harness, one)]
    assert_sound(harness.run(rng.sample(again, 24)))


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_every_fault_of_a_command(harness: CommandHarness, name: str) -> None:
    assert_sound(harness.run(harness.every(name)))


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_every_kill_while_a_command_clears_up(harness: CommandHarness, name: str) -> None:
    found = _distinct(harness.run(harness.every(name, [BEFORE_EACH_CALL])))
    again = [case for one in found for case in _again(harness, one)]
    assert_sound(harness.run(again))


def _distinct(found: Sequence[CommandResult]) -> list[CommandResult]:
    """One for each state that a kill has left."""
    return list({(one.case.name, shape(one.root)): one for one in found}.values())


def _again(harness: CommandHarness, one: CommandResult) -> list[CommandCase]:
    """The same command, killed before each call of it."""
    return harness.every(one.case.name, [BEFORE_EACH_CALL], one.root)
