"""Whatever TensorFlow and Keras rename of what they do not document, no wrong value is silent.

Each private name that tfckpt uses is taken away in turn, in children of one process, and small
trainings and saves are run: each is exact, or says that it is not, or is refused with an error of
tfckpt's that names what is absent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from zoo import renamed

PROJECT = Path(__file__).resolve().parents[2]
# TensorFlow's traces, generators and data, Keras's loop and slots: what once was silent.
FEW = [
    *("_seed", "_seed2", "_reshuffle_each_iteration", "_rng", "_trainable_variables"),
    *("_initial_epoch", "_should_eval", "lookup_table", "get_global_attribute", "_value"),
]


def outcomes(*names: str) -> list[list[str]]:
    """Name, scenario, outcome and text of each run."""
    done = subprocess.run(
        [sys.executable, renamed.__file__, *names],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: list[list[str]]) -> None:
    table: dict[str, list[str]] = {}
    for name, scenario, kind, _ in found:
        table.setdefault(kind, []).append(f"{name} ({scenario})" if name else scenario)
    for kind, those in sorted(table.items()):
        print(f"{kind}: {len(those)}: {', '.join(those)}")
    assert [each for each in found if not each[0] and each[2] != "exact"] == []
    assert [each for each in found if each[2] not in ("exact", "said", "refused")] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_few_renamed_parts_are_never_silent() -> None:
    check(outcomes(*FEW))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_no_renamed_part_is_silent() -> None:
    check(outcomes())
