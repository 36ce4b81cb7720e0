"""`tfckpt doctor`: what a person pastes into a bug report."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import keras
import tensorflow as tf
from zoo.command_line import document
from zoo.command_line import run as command

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path


def saved(directory: Path, steps: int = 3) -> list[str]:
    step = tf.Variable(0)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(step=step), directory, None)
    return [manager.save(step=10 * (number + 1), epoch=number + 1) for number in range(steps)]


def test_versions_are_those_that_are_imported() -> None:
    facts = dict(tfckpt.doctor())
    assert facts["tfckpt"] == tfckpt.__version__
    assert facts["Python"].startswith(platform.python_version())
    assert facts["tensorflow"].startswith(f"{tf.__version__} (tested: 2.16 to ")
    assert facts["keras"].startswith(f"{keras.__version__} (tested: 3.1 to ")


def test_a_directory_says_what_the_next_start_does(tmp_path) -> None:
    directory = tmp_path / "run"
    facts = dict(tfckpt.doctor(directory))
    assert facts["next start"] == "begins from initial values, and creates the directory"
    paths = saved(directory)
    facts = dict(tfckpt.doctor(directory))
    assert facts["checkpoints"].startswith("3 committed; ")
    assert facts["next start"] == "resumes from ckpt-3, step 30, epoch 3"
    assert facts["writable"] == "yes"
    for data in directory.glob("ckpt-3.data-*"):
        data.unlink()
    facts = dict(tfckpt.doctor(directory))
    assert "ckpt-3" in facts
    assert facts["next start"] == "passes over ckpt-3; resumes from ckpt-2, step 20, epoch 2"
    again = tfckpt.Checkpoint(step=tf.Variable(0))
    manager = tfckpt.CheckpointManager(again, directory, None)
    assert manager.restore_or_initialize() == paths[1]


def test_versions_are_told_without_importing_tensorflow() -> None:
    program = "import sys, tfckpt; tfckpt.doctor('.'); print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "False\n"


def test_who_saves_into_it_is_named(tmp_path) -> None:
    saved(tmp_path, 1)
    assert f"process {os.getpid()} on " in dict(tfckpt.doctor(tmp_path))["lock"]
    program = "import sys, tfckpt; print(dict(tfckpt.doctor(sys.argv[1]))['lock'])"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], check=True, capture_output=True, text=True
    )
    assert f"process {os.getpid()} on " in done.stdout
    assert dict(tfckpt.doctor(tmp_path / ".."))["lock"] == "free: no process saves into it"


def test_the_command_prints_twenty_short_lines_and_a_document(tmp_path) -> None:
    saved(tmp_path)
    status, out, _ = command("doctor", tmp_path)
    assert status == 0
    assert len(out.splitlines()) <= 25
    assert max(map(len, out.splitlines())) <= 80
    assert document("doctor", tmp_path)["facts"] == dict(tfckpt.doctor(tmp_path))
    assert command("doctor", "a", "b").status == 2
