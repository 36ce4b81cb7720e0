"""Which TensorFlow and Keras tfckpt works with, and what it says of others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
WITHOUT = """
import sys
sys.modules[{package!r}] = None  # as if it were not installed
from tfckpt.cli.main import main
sys.exit(main(["tfckpt", *sys.argv[1:]]))
"""
OLD = """
import sys, types
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
sys.modules["tensorflow"].__version__ = "2.21.0"
sys.modules["keras"] = types.ModuleType("keras")
sys.modules["keras"].__version__ = "3.0.5"
import tfckpt
try:
    tfckpt.Checkpoint
except ImportError as error:
    print(error)
"""


CONFIG = "version: 1\nrestore: {directory: runs}\n"


def python(code: str, *arguments: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )


@pytest.mark.parametrize("package", ["tensorflow", "keras"])
def test_what_needs_tensorflow_says_what_to_install(package: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "script.py").write_text("def model():\n    return {}\n", encoding="utf-8")
    code = WITHOUT.format(package=package)
    done = python(code, "plan", "config.yaml", "--model", "script:model", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"needs {package}, which is not installed" in done.stderr
    assert "pip install 'tfckpt[tensorflow]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_rest_goes_without_tensorflow(tmp_path: Path) -> None:
    import tensorflow as tf

    path = tf.train.Checkpoint(step=tf.Variable(7)).save(str(tmp_path / "ckpt"))
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    for command in (
        ["inspect", path],
        ["list", "."],
        ["diff", path, path],
        ["verify", path],
        ["policy", "check", "config.yaml"],
    ):
        done = python(WITHOUT.format(package="tensorflow"), *command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_a_keras_that_cannot_resume_is_refused() -> None:
    assert "keras 3.0.5 is too old for tfckpt\n  pip install 'keras>=3.1'" in python(OLD).stdout
