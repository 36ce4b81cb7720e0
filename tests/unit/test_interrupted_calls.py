"""Ctrl-C in any call to the system: no file stays open, and the next call works."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = ("open", "pread", "preadv", "fsync", "write", "rename", "replace", "fstat", "unlink")


def open_files() -> list[str]:
    """What the process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing itself
            found.append(str(link.readlink()))
    return sorted(path for path in found if path.startswith("/"))


def interrupted(body: Callable[[], Any], at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run it with Ctrl-C in that call; whether there were as many."""
    count = 0

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise KeyboardInterrupt
            return call(*arguments, **named)

        return counted

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wrapped(getattr(os, name)))
        try:
            body()
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.parametrize("way", ["save", "restore"])
def test_no_file_stays_open(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = tf.Variable([1.0, 2.0])
    checkpoint = tfckpt.Checkpoint(model=tf.train.Checkpoint(a=variable))
    path = checkpoint.write(tmp_path / "source")
    ways = {
        "save": lambda: checkpoint.save(tmp_path / "run/ckpt"),
        "restore": lambda: tfckpt.restore(path, model=tf.train.Checkpoint(a=variable)),
    }
    ways[way]()
    before, at = open_files(), 1
    while interrupted(ways[way], at, monkeypatch):
        assert open_files() == before, f"after call {at}"
        at += 1
    assert at > 5
    ways[way]()
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_the_first_lock_of_a_directory_is_not_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tfckpt.Checkpoint(model=tf.train.Checkpoint(a=tf.Variable(1.0)))
    for at in range(1, 6):
        directory = tmp_path / f"run-{at}"
        save = partial(checkpoint.save, directory / "ckpt")
        interrupted(save, at, monkeypatch)
        save()
        assert open_files().count(f"{directory}/.tfckpt.lock") == 1
