"""What a save leaves on disk, also where it fails, and what comes back from it."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.struck import nth, struck

import tfckpt
from tfckpt.live import save, snapshot
from tfckpt.stored.bundles.bundle import Bundle


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


def open_files() -> list[str]:
    """What the process has open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
    names = map(os.path.realpath, links)
    return sorted(name for name in names if not name.endswith("(deleted)"))


@pytest.mark.parametrize("call", ["open", "preadv", "fsync", "replace", "fstat", "unlink"])
def test_an_interrupt_leaves_no_file_open_and_loses_no_version(call, tmp_path) -> None:
    variable = tf.Variable([1.0, 2.0])
    checkpoint = tfckpt.Checkpoint(a=variable)
    path = checkpoint.write(tmp_path / "run" / "ckpt")
    tfckpt.restore(path, a=variable)
    gc.collect()  # what failed in other tests holds files
    before = open_files()
    for number in range(1, 40):
        with struck(call, KeyboardInterrupt, nth(number), os):
            try:
                checkpoint.write(path)
                tfckpt.restore(path, a=variable)
            except KeyboardInterrupt:
                pass
            else:
                break
        assert open_files() == before, number
        checkpoint.read(path).assert_consumed()
        assert variable.numpy().tolist() == [1.0, 2.0], number
    assert number > 1
