"""A worker that is killed at a random moment of a save costs the last commit nothing.

After each kill all workers start again in the same directory: they agree on the step, which is
acknowledged or was being saved, hold exactly its values, and their next save leaves no debris.
"""

from __future__ import annotations

import json
import random
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from zoo.cluster import run_workers

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.forkserver import ForkServer

KILLS = 50
SPREAD = 0.6  # seconds in which the kill comes, some saves long
OURS = re.compile(r"checkpoint|\.tfckpt\.lock|ckpt-[0-9]+\.(index|data-.*|tfckpt\.json)")
HANG = 180.0  # seconds after which a process is taken to hang, and killed


def kill_again_and_again(server: ForkServer, workers: int, kills: int, path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    draw = random.Random(seed)
    print(f"\nseed {seed}, {workers} workers")
    directory, allowed, waits = str(path / "run"), {0}, []
    for number in range(kills):
        journals = path / f"journals-{number}"
        journals.mkdir(parents=True)
        victim, delay = draw.randrange(workers), draw.uniform(0, SPREAD)
        outcomes = run_workers(
            server,
            workers,
            "save_until_killed",
            *(directory, str(journals), victim, delay),
            timeout=HANG,
        )
        assert outcomes[victim].signal == signal.SIGKILL, list(map(str, outcomes))
        assert not any(outcome.timed_out for outcome in outcomes), outcomes
        told = [read(journals / str(index)) for index in range(workers)]
        where = f"kill {number} of worker {victim} after {delay:.3f} s"
        allowed, waited = judge(told, allowed, victim, where, outcomes)
        waits.append(waited)
    waits.sort()
    print(
        f"{kills} kills: 0 unrecoverable, 0 disagreements, 0 debris; the others ended "
        f"{waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s (longest) after the kill"
    )


def read(journal: Path) -> list[Any]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def judge(
    told: list[Any], allowed: set[int], victim: int, where: str, outcomes: list[Any]
) -> tuple[set[int], float]:
    """Check one life of the cluster; the steps that the next may find, and how long it hung."""
    restored = {tuple(line[2:]) for lines in told for line in lines if line[0] == "restored"}
    assert len(restored) == 1, (where, restored, [str(one) for one in outcomes])
    (found,) = restored
    assert found[0] in allowed, (where, found, allowed)
    assert found[1:] == (True, True), (where, "values of another step", found)
    (names,) = [line[2] for line in told[0] if line[0] == "there"]
    assert all(map(OURS.fullmatch, names)), (where, "debris", names)
    assert sum(name.endswith(".index") for name in names) <= 2, (where, names)
    saved = {line[2] for lines in told for line in lines if line[0] == "saved"}
    tried = {line[2] for lines in told for line in lines if line[0] == "try"}
    (killed,) = [line[1] for line in told[victim] if line[0] == "killed"]
    ends = []
    for index, lines in enumerate(told):
        if index != victim:
            assert lines[-1][0] == "failed" or outcomes[index].error, (where, lines[-1])
            ends.append(lines[-1][1] - killed if lines[-1][0] == "failed" else 0.0)
    return {at for at in tried | {found[0]} if at >= max(saved, default=found[0])}, max(ends)


def test_a_sample_of_kills(server, tmp_path) -> None:
    kill_again_and_again(server, 2, 2, tmp_path / "two")
    kill_again_and_again(server, 4, 1, tmp_path / "four")


@pytest.mark.long
@pytest.mark.parametrize("workers", [2, 4])
def test_many_kills(workers, server, tmp_path) -> None:
    kill_again_and_again(server, workers, KILLS, tmp_path)
