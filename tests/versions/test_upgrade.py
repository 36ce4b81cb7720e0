"""One run's directory, resumed with another TensorFlow and Keras each time, the oldest first.

``TFCKPT_INTERPRETERS`` has a Python of each environment; `make test-matrix` sets it. The run is
killed in the middle of an epoch in each of them but the last, and goes on in the next. After every
batch, every variable is compared with those of a run that the last environment made alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
INTERPRETERS = os.environ.get("TFCKPT_INTERPRETERS", "").split(os.pathsep)
OF_THE_LOSS = "counts the loss of an epoch in "
STOPS = [(0, 3), (1, 4), (2, 2), (3, 1), (4, 2)]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        len(INTERPRETERS) < 2, reason="TFCKPT_INTERPRETERS names fewer than two environments"
    ),
]


def train(interpreter: str, flavor: str, directory: Path, *stop: int) -> tuple[dict[str, Any], str]:
    """What the variables were after each batch, ``History`` in the end; and what was logged."""
    done = subprocess.run(
        [
            *(interpreter, str(Path(__file__).with_name("training.py"))),
            *(flavor, str(directory), *map(str, stop)),
        ],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "TF_ENABLE_ONEDNN_OPTS": "0"},
    )
    assert done.returncode == (-signal.SIGKILL if stop else 0), done.stderr
    lines = directory.with_suffix(".json").read_text(encoding="utf-8").splitlines()
    return dict(map(json.loads, lines)), done.stderr


def note(flavor: str, outcomes: list[str]) -> None:
    """Keep what the page of versions shows."""
    if path := os.environ.get("TFCKPT_UPGRADES"):
        file = Path(path)
        steps = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        file.write_text(json.dumps({**steps, flavor: outcomes}), encoding="utf-8")


@pytest.mark.parametrize("flavor", ["keras", "tf_keras"])
def test_a_run_goes_on_exactly_with_each_newer_version(flavor: str, tmp_path: Path) -> None:
    alone, _ = train(INTERPRETERS[-1], flavor, tmp_path / "alone")
    stops = [*STOPS[: len(INTERPRETERS) - 1], ()]
    reached = (-1, -1)
    outcomes: list[str] = []
    for interpreter, stop in zip(INTERPRETERS, stops, strict=True):
        try:
            got, logged = train(interpreter, flavor, tmp_path / "run", *stop)
        except AssertionError:
            note(flavor, [*outcomes, "refused"])
            raise
        batches = {key: value for key, value in got.items() if key != "history"}
        first = min(tuple(map(int, key.split())) for key in batches)
        assert first == (0, 0) if not outcomes else (0, 0) < first <= reached
        if OF_THE_LOSS in logged:  # Keras 3.1 takes the mean over batches, later ones over examples
            alone["history"]["loss"][reached[0]] = pytest.approx(
                alone["history"]["loss"][reached[0]], rel=0.1
            )
        reached = stop or reached
        exact = all(value == alone[key] for key, value in batches.items())
        word = ("exact" if exact else "differs") + (
            ", but for the epoch's loss in the logs, as a warning says"
            if OF_THE_LOSS in logged
            else ""
        )
        outcomes.append(word if outcomes else "trained")
        note(flavor, outcomes)
    assert all(outcome.startswith("exact") for outcome in outcomes[1:]), outcomes
    assert got["history"] == alone["history"]
