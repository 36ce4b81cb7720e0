"""A command is killed, or told that the disk is full or broken, at each call that changes files.

No checkpoint that was whole is lost, the state file names nothing that is gone, the same command
works again, and the next one on that directory, or the next save, leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import shutil
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from faults.commands import COMMANDS
from faults.harness import KINDS, SEED, SHOWN, TIMEOUT, TOGETHER
from faults.injection import Fault, Mode, build_preload
from zoo.forkserver import ForkServer, results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_COMMANDS = ("adopt", "prune", "rewrite", "verify")
PRELOAD = (
    *("tensorflow", "absl.flags", "tfckpt", "faults.commands"),
    *(f"tfckpt.cli.commands.{name}" for name in _COMMANDS),
)
COLUMNS = (
    *("cases", "killed", "lost", "lost then", "named", "named then", "left", "left then"),
    "misbehaved",
)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    fault: Fault


class Harness:
    """Runs commands below one level (`libc` or `seam`), each in a child of its own."""

    def __init__(self, server: ForkServer, work: Path, below: str) -> None:
        self._server, self._work, self._below = server, work, below
        self._numbers = itertools.count()
        self._calls: dict[str, dict[str, int]] = {}

    def every(self, name: str) -> list[Case]:
        """A case for each call that a kind of fault can strike."""
        whole = self._done(name)
        if name not in self._calls:
            before = self._work / f"{whole.name}.before"
            results([self._server.run("faults.commands:lay", name, str(before), timeout=TIMEOUT)])
            shutil.copytree(before, whole)
            fault = [int(Mode.COUNT), 0, True]
            [ended] = results([self._attempt(name, whole, fault)])
            assert "Traceback" not in ended["err"]
            self._calls[name] = ended["calls"]
        return [
            Case(name, dataclasses.replace(kind, n=n))
            for kind in KINDS
            for n in range(1, self._calls[name][str(int(kind.mode))] + 1)
        ]

    def run(self, cases: Sequence[Case]) -> list[str]:
        """What is wrong with each, after a table of them all is printed."""
        roots = [self._lay(case) for case in cases]
        requests = [self._request(case, root) for case, root in zip(cases, roots, strict=True)]
        ended = self._server.run_many(requests, timeout=TIMEOUT)
        questions = [
            [case.name, str(root), str(self._done(case.name))]
            for case, root in zip(cases, roots, strict=True)
        ]
        parts = [questions[at : at + TOGETHER] for at in range(0, len(questions), TOGETHER)]
        sent = [("faults.commands:judge_many", part) for part in parts]
        judged = results(self._server.run_many(sent, timeout=TIMEOUT))
        rows: dict[str, Counter[str]] = {}
        wrong = []
        for case, root, outcome, verdict in zip(
            cases, roots, ended, itertools.chain(*judged), strict=True
        ):
            killed = outcome.signal == signal.SIGKILL
            struck = root.with_suffix(".log").exists() and root.with_suffix(".log").read_text()
            if killed != case.fault.mode.kills or not struck:
                verdict["misbehaved"] += f"not struck, or not as it should be: {outcome}"
            if not killed and (outcome.error or "Traceback" in outcome.value["err"]):
                verdict["misbehaved"] += str(outcome)
            row = rows.setdefault(case.name, Counter(cases=0))
            row.update(["cases", *["killed"] * killed, *(k for k in verdict if verdict[k])])
            bad = {kind: text for kind, text in verdict.items() if text and kind != "left"}
            if bad:
                wrong.append(f"{case.name}, {case.fault} ({struck}): {bad}")
        print(f"\nseed {SEED}\n{'command':<20}" + "".join(f"{one:>12}" for one in COLUMNS))
        for name, row in rows.items():
            print(f"{name:<20}" + "".join(f"{row[column]:>12}" for column in COLUMNS))
        return wrong

    def _done(self, name: str) -> Path:
        return self._work / name.replace(" ", "-")

    def _lay(self, case: Case) -> Path:
        root = self._work / str(next(self._numbers))
        shutil.copytree(f"{self._done(case.name)}.before", root)
        return root

    def _request(self, case: Case, root: Path) -> list[object]:
        fault = [int(case.fault.mode), case.fault.n, case.fault.once]
        log = str(root.with_suffix(".log"))
        return ["faults.commands:attempt", case.name, str(root), log, self._below, fault]

    def _attempt(self, name: str, root: Path, fault: list[object]) -> object:
        log = str(root.with_suffix(".log"))
        return self._server.run(
            "faults.commands:attempt", name, str(root), log, self._below, fault, timeout=TIMEOUT
        )


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    work = tmp_path_factory.mktemp("faults")
    library, why = build_preload(work)
    if library is None:
        pytest.skip(why)
    preload = ":".join(filter(None, (str(library), os.environ.get("LD_PRELOAD", ""))))
    with ForkServer(env={"LD_PRELOAD": preload}, preload=PRELOAD) as server:
        yield Harness(server, work, "libc")


def test_a_sample(harness: Harness) -> None:
    cases = [case for name in COMMANDS for case in harness.every(name)]
    wrong = harness.run(random.Random(SEED).sample(cases, 60))
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:SHOWN])


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_every_fault_of_a_command(harness: Harness, name: str) -> None:
    wrong = harness.run(harness.every(name))
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:SHOWN])
