"""What TensorFlow logs when it is imported: not in front of what a command prints."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "version: 1\nrestore: {directory: runs/empty, if_none: initialize}\n"


def plan(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    environment = {name: one for name, one in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-m", "tfckpt", "plan", "config.yaml", "--model", "train:build"]
    return subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )


def test_a_plan_begins_with_the_plan(tmp_path: Path) -> None:
    program = """
import sys
import tensorflow as tf

def build():
    print("built", file=sys.stderr)
    return tf.Module()
"""
    done = plan(tmp_path, program)
    assert "oneDNN" not in done.stderr
    assert "cudart" not in done.stderr
    assert done.stderr.splitlines()[0] == "built"  # what the program itself says is shown


def test_what_was_logged_is_shown_where_the_import_fails(tmp_path: Path) -> None:
    broken = tmp_path / "tensorflow"
    broken.mkdir()
    (broken / "__init__.py").write_text(
        "import os\nos.write(2, b'F0000 no AVX\\n')\nraise ImportError('cannot load')\n"
    )
    done = plan(tmp_path, "def build():\n    return None\n")
    assert done.returncode != 0
    assert "F0000 no AVX" in done.stderr
