"""What a save leaves on disk, also where it fails, and what comes back from it."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.struck import full_disk, nth, struck

import tfckpt
from tfckpt.live import save, snapshot
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.io.files import LocalFiles, LocalOutput


def files(directory: Path) -> dict[str, bytes]:
    """All files but the lock's."""
    return {path.name: path.read_bytes() for path in directory.glob("[!.]*") if path.is_file()}


@pytest.fixture
def shards(monkeypatch):
    """``shards(3)``: saves have so many data files from now on."""
    return lambda number: monkeypatch.setattr(save, "files_for", lambda _: number)


def test_a_save_that_would_be_wrong_leaves_nothing(tmp_path, monkeypatch, shards) -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [keras.layers.Dense(3), {"x": keras.layers.Dense(2)}]

        def call(self, x: Any) -> Any:
            return self.blocks[1]["x"](self.blocks[0](x))

    shards(2)
    model = Model()
    model(np.ones((4, 3)))
    checkpoint = tfckpt.Checkpoint(model=model)
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, 1, on_nonfinite="refuse")
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "_kept_as_slots", lambda live: frozenset(live.variables))
        with pytest.raises(tfckpt.CoverageError, match="would have been left out"):
            manager.save()
    model.blocks[0].kernel.assign(tf.fill((3, 3), np.inf))
    with pytest.raises(tfckpt.SaveError, match="kernel"):
        manager.save()
    assert files(tmp_path) == {}
    assert int(checkpoint.save_counter) == 0


OF_FILES = ("makedirs", "create", "fsync_dir", "rename", "write_atomic")


@pytest.mark.parametrize("fails", [*OF_FILES, "write", "sync", "close"])
def test_a_save_that_fails_leaves_the_older_one_of_that_name(tmp_path, shards, fails) -> None:
    owner = LocalFiles if fails in OF_FILES else LocalOutput
    shards(3)
    variable = tf.Variable(1.0)
    checkpoint = tfckpt.Checkpoint(v=variable)
    checkpoint.write(tmp_path / "ckpt")
    before = files(tmp_path)
    variable.assign(2.0)
    for number in range(1, 20):
        with struck(fails, full_disk(), nth(number), owner):
            try:
                checkpoint.write(tmp_path / "ckpt")
            except tfckpt.SaveError as error:
                assert "No space left" in str(error)  # noqa: PT017 (it need not fail)
            else:
                break
        assert files(tmp_path) == before, number
    assert number > 1
    variable.assign(0.0)
    checkpoint.read(tmp_path / "ckpt").assert_consumed()
    assert variable.numpy() == 2


@pytest.mark.parametrize("prefix", ["run/", "./deep/run/"])
def test_the_name_in_a_prefix_may_be_empty(prefix, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    variable = tf.Variable(0.0)
    plain, ours = tf.train.Checkpoint(v=variable), tfckpt.Checkpoint(v=variable)
    for checkpoint, first in ((plain, 1), (ours, 3)):
        paths = [checkpoint.save(prefix) for _ in range(2)] + [checkpoint.write(prefix)]
        assert paths == [f"{prefix}-{first}", f"{prefix}-{first + 1}", prefix]
    for number, path in enumerate(paths, 1):
        variable.assign(float(number))
        assert ours.write(path) == path
    for reader in (plain, ours):
        for number, path in enumerate(paths, 1):
            reader.read(path).assert_existing_objects_matched()
            assert variable.numpy() == number
    assert not list(tmp_path.glob("*.index"))


def test_what_tensorflow_alone_can_write_is_in_the_same_checkpoint(tmp_path, shards) -> None:
    shards(2)
    values = {name: tf.Variable(tf.range(9.0) + number) for number, name in enumerate("abcd")}
    iterator = iter(tf.data.Dataset.range(100))
    checkpoint = tfckpt.Checkpoint(iterator=iterator, **values)
    for time in range(3):
        assert int(next(iterator)) == time
        path = checkpoint.write(str(tmp_path / "ckpt"))  # over the one before
        assert len(list(tmp_path.glob("ckpt.data-*"))) == 3 + time % 2
        other = iter(tf.data.Dataset.range(100))
        fresh = {name: tf.Variable(tf.zeros(9)) for name in values}
        status = tf.train.Checkpoint(iterator=other, **fresh).read(path)
        status.assert_existing_objects_matched()
        assert int(next(other)) == time + 1
        for name, value in values.items():
            np.testing.assert_array_equal(fresh[name], value)
            value.assign_add(tf.ones(9))
    with Bundle.open(path) as bundle:
        bundle.verify(key for key, entry in bundle.entries.items() if entry.dtype != "variant")


# Ctrl-C in every call of the system

SYSTEM = ("open", "pread", "preadv", "fsync", "write", "rename", "replace", "fstat", "unlink")


def open_files() -> list[str]:
    """What the process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing itself
            found.append(str(link.readlink()))
    return sorted(path for path in found if path.startswith("/"))


def interrupted(body, at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run it with Ctrl-C in that call; whether there were as many."""
    calls = iter(range(1, at + 1))

    def wrapped(call):
        def counted(*arguments: Any, **named: Any) -> Any:
            if next(calls, 0) == at:
                raise KeyboardInterrupt
            return call(*arguments, **named)

        return counted

    with monkeypatch.context() as patch:
        for name in SYSTEM:
            patch.setattr(os, name, wrapped(getattr(os, name)))
        try:
            body()
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.parametrize("way", ["save", "write", "restore"])
def test_an_interrupt_leaves_no_file_open_and_loses_no_version(way, tmp_path, monkeypatch) -> None:
    variable = tf.Variable([1.0, 2.0])
    checkpoint = tfckpt.Checkpoint(a=variable)
    path = checkpoint.write(tmp_path / "run" / "source")
    ways = {
        "save": lambda: checkpoint.save(tmp_path / "run" / "ckpt"),
        "write": lambda: checkpoint.write(path),
        "restore": lambda: tfckpt.restore(path, a=variable),
    }
    ways[way]()
    gc.collect()  # what failed in other tests holds files
    before, at = open_files(), 1
    while interrupted(ways[way], at, monkeypatch):
        assert open_files() == before, f"after call {at}"
        variable.assign([0.0, 0.0])
        tfckpt.Checkpoint(a=variable).read(path).assert_consumed()
        assert variable.numpy().tolist() == [1.0, 2.0], f"after call {at}"
        at += 1
    assert at > 5
    ways[way]()
    ends = {file.name.split("-")[0] for file in (tmp_path / "run").glob("source*")}
    assert ends == {"source.data", "source.index", "source.tfckpt.json"}


def test_the_first_lock_of_a_directory_is_not_left_open(tmp_path, monkeypatch) -> None:
    checkpoint = tfckpt.Checkpoint(a=tf.Variable(1.0))
    for at in range(1, 6):
        directory = tmp_path / f"run-{at}"

        def save(directory: Path = directory) -> str:
            return checkpoint.save(directory / "ckpt")

        interrupted(save, at, monkeypatch)
        save()
        assert open_files().count(f"{directory}/.tfckpt.lock") == 1
