"""The benchmarks run, with small sizes, and each goal of the project finds its figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_quick_run_measures_every_goal(tmp_path, monkeypatch) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--directory", str(tmp_path)]
    done = subprocess.run(
        [*command, "--results", str(tmp_path / "results")],
        check=False,
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    monkeypatch.syspath_prepend(str(PROJECT))
    from benchmarks import goals, measure

    document = json.loads((tmp_path / "results" / "results.json").read_text())
    results = [measure.Result(**one) for one in document["results"]]
    assert [one for one in results if one.measure == "fails"] == []
    measured = [outcome.goal for outcome in goals.outcomes(results)]
    # To list a checkpoint through TensorFlow takes as long as all of this.
    assert [goal for goal in goals.GOALS if goal not in measured] == [
        goal for goal in goals.GOALS if goal.about.startswith("`inspect`")
    ]
    page = (tmp_path / "results" / "results.md").read_text(encoding="utf-8")
    assert all(f"| {goal.about} | {goal.where} |" in page for goal in measured)
