"""What a type checker makes of the public names, which are loaded on first use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = """
import tfckpt

tfckpt.Chekpoint
tfckpt.callback
tfckpt.restore("runs/digits", 3, include=["model/**"]).paths
tfckpt.from_config("a.yaml", 3).callback()
tfckpt.callbacks.resume(3, "runs/digits", save_best_only=True)
tfckpt.callbacks.resume(3, "runs/digits")
tfckpt.__version__
"""


def test_a_misspelt_name_is_an_error_and_known_names_are_typed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(program)],
        check=False,
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "MYPYPATH": str(PROJECT)},
    )
    found = [line.partition("program.py:")[2] for line in done.stdout.splitlines()]
    errors = [(line.partition(":")[0], line) for line in found if ": error: " in line]
    assert [number for number, _ in errors] == ["4", "5", "6", "8"], done.stdout + done.stderr
    for (_, line), word in zip(
        errors, ("Checkpoint", "callback", "paths", "save_best"), strict=True
    ):
        assert word in line


def test_a_misspelt_name_is_told_what_was_meant() -> None:
    import tfckpt

    with pytest.raises(AttributeError, match=r"'Chekpoint'; did you mean 'Checkpoint'\?"):
        tfckpt.Chekpoint  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'zzz'$"):
        tfckpt.zzz  # noqa: B018
    assert not hasattr(tfckpt, "__wrapped__")


LAZY = """
import sys, tfckpt
assert not {"tensorflow", "keras"} & {*sys.modules}
assert "callbacks" in dir(tfckpt)
print(tfckpt.callbacks.resume.__module__)
"""


def test_the_callbacks_are_there_after_import_of_the_package_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAZY], check=True, capture_output=True, text=True, cwd=PROJECT
    )
    assert done.stdout.strip() == "tfckpt.callbacks"
