"""The benchmarks run, with small sizes, and measure what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SUBJECTS = ("MLP", "ResNet50", "BERT", "10,000 × 1 KiB", "16 × 64 MiB")


@pytest.mark.long
def test_a_quick_run_measures_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json", "--directory", tmp_path]
    done = subprocess.run(command, check=True, cwd=PROJECT, capture_output=True, text=True)
    assert not [*tmp_path.iterdir()]
    rows = json.loads(done.stdout.splitlines()[-1])
    beside = [row["what"] for row in rows if row["theirs"] and row["floor"]]
    for start in (f"{way}, {subject}" for way in ("save", "restore") for subject in SUBJECTS):
        assert any(what.startswith(start) for what in beside), start
    words = ("stall", "names", "plan", "refusal", "inspect", "list", "doctor", "waits", "calls")
    assert {word for word in words if not any(word in row["what"] for row in rows)} == set()
    assert all(row["goal"] for row in rows)
