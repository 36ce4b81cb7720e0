"""A directory of many checkpoints: twice as many take twice the calls, and a save no more files."""

from __future__ import annotations

import collections
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from zoo.command_line import run

import tfckpt
from tfckpt.stored.io.files import LocalFiles

COUNTS = (10, 20, 40)
OPERATIONS = ("open_read", "listdir", "status", "exists", "identity", "create", "rename", "remove")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(tf.zeros(3)))
    manager = tfckpt.CheckpointManager(checkpoint, str(path), None, durable=False)
    for number in range(COUNTS[-1]):
        manager.save(metrics={"loss": float(number % 7)})
    return path


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, those in C among them."""
    count = 0

    def called(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


COMMANDS: dict[str, Callable[[Path], object]] = {
    "list": tfckpt.list_checkpoints,
    "list by rules": lambda path: tfckpt.list_checkpoints(path, keep=[{"latest": 3}]),
    "doctor": tfckpt.doctor,
    "report": lambda path: run("report", path, "--html", path / "page.html", "--force"),
    "prune": lambda path: run("prune", path, "--keep", "latest=3", "--yes"),
    "restore": tfckpt.inspect,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_twice_as_many_take_twice_the_calls(directory: Path, tmp_path: Path, command: str) -> None:
    took = []
    for count in (COUNTS[0], *COUNTS):  # what is imported once comes first
        path = tmp_path / f"{count}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        for number in range(1, count + 1):
            for file in directory.glob(f"ckpt-{number}.*"):
                shutil.copy(file, path)
        took.append(calls_of(lambda path=path: COMMANDS[command](path)))
    _, few, more, many = took
    assert many - more < 2.2 * (more - few)


def test_a_save_that_keeps_all_touches_no_other_checkpoint(tmp_path: Path, monkeypatch) -> None:
    counted = collections.Counter[str]()

    def counting(name: str) -> Callable[..., Any]:
        real = getattr(LocalFiles, name)

        def call(*arguments: Any) -> Any:
            counted[name] += 1
            return real(*arguments)

        return call

    for name in OPERATIONS:
        monkeypatch.setattr(LocalFiles, name, counting(name))
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(tf.zeros(3)))
    manager = tfckpt.CheckpointManager(checkpoint, str(tmp_path), None, durable=False)
    took = []
    for _ in range(16):
        counted.clear()
        manager.save()
        took.append(dict(counted))
    assert took[3] == took[15]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert list(state.all_model_checkpoint_paths) == manager.checkpoints
