"""What was acknowledged is there after a loss of power, whatever was not fsynced is lost.

`power` says what a loss of power may leave. Only the seam is needed for it: what TensorFlow writes
is watched, and lost, like everything else.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.harness import ALL, PRELOAD, SEED, Harness, Question
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(preload=(*PRELOAD, "faults.no_fsync")) as server:
        yield server


@pytest.fixture
def harness(server: ForkServer, tmp_path: Path) -> Harness:
    return Harness(server, tmp_path, "seam")


def lost(harness: Harness, scenario: str, seed: int, *, share: float, durable: bool) -> list[str]:
    """What could not be recovered, and where the power was cut; prints how much was tried."""
    losses = harness.cut_power(scenario, seed, share=share, durable=durable)
    questions = [Question("tfckpt", scenario, Path(x.root), Path(x.journal)) for x in losses]
    verdicts = harness.judge(questions)
    found = [
        f"{loss.place}, {loss.root}: {verdict['unrecoverable']}"
        for loss, verdict in zip(losses, verdicts, strict=True)
        if verdict["unrecoverable"]
    ]
    debris = sum(bool(verdict["debris"]) for verdict in verdicts)
    print(
        f"seed {seed}, {scenario}, {durable=}: {len(losses)} losses of power, "
        f"{len(found)} unrecoverable, {debris} with debris"
    )
    return found


@pytest.mark.parametrize("scenario", ALL)
def test_what_was_acknowledged_survives(harness: Harness, scenario: str) -> None:
    assert not lost(harness, scenario, SEED, share=0.1, durable=True)


def test_without_fsync_it_does_not(harness: Harness) -> None:
    assert lost(harness, "rotate", SEED, share=0.2, durable=False)


@pytest.mark.long
@pytest.mark.parametrize("scenario", ALL)
@pytest.mark.parametrize("seed", range(10))
def test_what_was_acknowledged_survives_at_every_call(
    harness: Harness, scenario: str, seed: int
) -> None:
    assert not lost(harness, scenario, seed, share=1.0, durable=True)
