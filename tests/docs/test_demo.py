"""`make demo`: its script goes through, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the demo's data comes with scikit-learn")

PROJECT = Path(__file__).resolve().parents[2]


def test_the_demo_resumes_and_fine_tunes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROJECT / "examples" / "digits" / "demo.py")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
    killed = re.search(r"newest commit is (ckpt-\d+), (\d+) epochs finished", done.stdout)
    resumed = re.search(r"restored (ckpt-\d+), trained to epoch (\d+): (\d+) steps", done.stdout)
    assert killed is not None
    assert resumed is not None
    assert resumed[1] == killed[1]
    assert int(killed[2]) < int(resumed[2]) == 10
    (batches,) = {int(count) for count in re.findall(r"^(\d+)/\1 - ", done.stdout, re.MULTILINE)}
    assert int(resumed[3]) == 10 * batches
    (with_restore,) = re.findall(r"with the pre-trained layers +([\d.]+)%", done.stdout)
    (without,) = re.findall(r"the same training without them +([\d.]+)%", done.stdout)
    assert float(with_restore) > float(without)
