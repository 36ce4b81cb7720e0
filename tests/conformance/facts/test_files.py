"""F18 to F25: what becomes of files.

What happens to a process that is killed, or whose power fails, at every single call (F17, F18) is
counted in ``tests/faults``, plain TensorFlow beside tfckpt.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from zoo.models import chain

import tfckpt
from tfckpt.stored.io.files import LocalFiles

HOUR = 3600.0
BOTH = pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["plain", "tfckpt"])


class Run:
    """A manager in a directory, of a variable."""

    def __init__(self, library, directory, *keep, **more):
        self.value = tf.Variable(0)
        self.checkpoint = library.Checkpoint(value=self.value, **more.pop("beside", {}))
        keep = keep or (None,)
        self.manager = library.CheckpointManager(self.checkpoint, str(directory), *keep, **more)

    def save(self, *values):
        """The names of checkpoints of these values."""
        return [Path(self.manager.save()).name for v in values if self.value.assign(v) is not None]

    def restored(self):
        """What is restored, and its value."""
        self.value.assign(0)
        path = self.manager.restore_or_initialize()
        return path and Path(path).name, int(self.value.numpy())


def stored(path):
    reader = tf.train.load_checkpoint(str(path))
    return int(reader.get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE"))


def left(directory):
    return sorted(path.stem for path in directory.glob("*.index"))


@BOTH
def test_f18_a_restart_without_a_restore(tmp_path, library):
    Run(library, tmp_path).save(1, 2, 3)
    (tmp_path / "checkpoint").unlink()
    again = Run(library, tmp_path)
    if library is tf.train:  # counts anew, and overwrites
        assert again.save(70) == ["ckpt-1"]
        assert stored(tmp_path / "ckpt-1") == 70
    else:
        assert again.save(70) == ["ckpt-4"]
        assert len(again.manager.checkpoints) == 4


@BOTH
@pytest.mark.parametrize("state", [b"\0\0\0", b'model_checkpoint_path: "ckpt-', None, b""])
def test_f19_a_damaged_state_file(tmp_path, library, state):
    Run(library, tmp_path).save(1, 2)
    (tmp_path / "checkpoint").unlink()
    if state is not None:
        (tmp_path / "checkpoint").write_bytes(state)
    if library is tf.train:  # starts from scratch
        if state != b"":
            assert Run(library, tmp_path).restored() == (None, 0)
        return
    run = Run(library, tmp_path)
    assert run.restored() == ("ckpt-2", 2)
    run.save(3)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("ckpt-3")  # it is whole again


@BOTH
def test_f19_good_checkpoints_beside_one_that_is_gone(tmp_path, library):
    Run(library, tmp_path).save(1, 2, 3)
    (tmp_path / "ckpt-3.index").unlink()
    run = Run(library, tmp_path)
    if library is tf.train:
        assert tf.train.latest_checkpoint(str(tmp_path)) is None
        assert run.manager.latest_checkpoint.endswith("ckpt-3")
    else:
        assert run.restored() == ("ckpt-2", 2)


@BOTH
@pytest.mark.parametrize("path", ["../victim/ckpt-1", "*"])
def test_f20_who_deletes_files_outside_of_the_directory(tmp_path, library, path):
    Run(library, tmp_path / "run").save(1, 2)
    others = [tmp_path / "victim/ckpt-1.index", tmp_path / "run/notes.index"]
    (tmp_path / "victim").mkdir()
    for each in others:
        each.write_bytes(b"somebody's")
    lines = [f'model_checkpoint_path: "{path}"', f'all_model_checkpoint_paths: "{path}"']
    lines += ["all_model_checkpoint_timestamps: 1.0", "last_preserved_timestamp: 0.0"]
    (tmp_path / "run" / "checkpoint").write_text("\n".join(lines))
    Run(library, tmp_path / "run", 1).save(3, 4)
    assert all(each.exists() for each in others) is (library is tfckpt)


@BOTH
def test_f20_a_directory_whose_name_looks_like_a_pattern(tmp_path, library):
    directory = tmp_path / "run[1]"
    Run(library, directory, 1).save(1, 2, 3)
    run = Run(library, directory)
    if library is tfckpt:
        assert left(directory) == ["ckpt-3"]
        assert run.restored() == ("ckpt-3", 3)
    else:
        assert left(directory) == ["ckpt-1", "ckpt-2", "ckpt-3"]
        with pytest.raises(tf.errors.NotFoundError):
            run.restored()


@BOTH
def test_f20_a_link_where_the_next_checkpoint_goes(tmp_path, library):
    victim = tmp_path / "victim"
    victim.write_bytes(b"somebody's")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ckpt-1.index").symlink_to(victim)
    Run(library, tmp_path / "run").save(1)
    assert (victim.read_bytes() == b"somebody's") is (library is tfckpt)


@BOTH
def test_f21_two_managers_of_one_directory(tmp_path, library):
    first, second = (Run(library, tmp_path) for _ in range(2))
    paths = [run.save(n)[0] for n, run in enumerate((first, second, first, second), start=1)]
    values = [stored(tmp_path / path) for path in paths]
    assert values == ([1, 2, 3, 4] if library is tfckpt else [2, 2, 4, 4])


@pytest.mark.parametrize(
    ("library", "part"), [(tf.train, "index"), (tfckpt, "index"), (tfckpt, "data-00000-of-00001")]
)
def test_f22_what_damage_surfaces_as(tmp_path, library, part):
    Run(library, tmp_path).save(1)
    file = tmp_path / f"ckpt-1.{part}"
    data = bytearray(file.read_bytes())
    data[len(data) // 3 if part == "index" else -1] ^= 255  # the value is the last one
    file.write_bytes(data)
    if library is tfckpt:
        with pytest.raises(tfckpt.DamagedCheckpointError, match="ckpt-1"):
            Run(library, tmp_path).restored()
    else:
        with pytest.raises(Exception, match="checksum mismatch"):
            stored(tmp_path / "ckpt-1")


@BOTH
def test_f23_a_full_disk(tmp_path, monkeypatch, library):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    step = tf.Variable(5)
    run = Run(library, tmp_path, None, step_counter=step, checkpoint_interval=3)
    with monkeypatch.context() as patch:
        if library is tfckpt:
            patch.setattr(LocalFiles, "rename", full)
        else:
            patch.setattr(run.checkpoint, "_write", full)
        with pytest.raises(tfckpt.SaveError if library is tfckpt else OSError, match="No space"):
            run.manager.save()
    if library is tfckpt:  # as if nothing had been
        assert int(run.checkpoint.save_counter) == 0
        assert run.save(1) == ["ckpt-1"]
    else:  # it does not save
        assert int(run.checkpoint.save_counter) == 1
        assert run.manager.save() is None


@BOTH
def test_f23_a_keras_model_in_the_background(tmp_path, library):
    import keras

    model = chain(keras, "a", "b")
    model.compile("adam", "mse", run_eagerly=True)
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 3)))
    checkpoint = library.Checkpoint(model=model)
    options = tf.train.CheckpointOptions(enable_async=True)
    checkpoint.save(str(tmp_path / "ckpt"), options=options)
    if library is tf.train:
        with pytest.raises(ValueError, match="singleton"):
            checkpoint.save(str(tmp_path / "ckpt"), options=options)
        return
    path = checkpoint.save(tmp_path / "ckpt", options=options)
    checkpoint.sync()
    assert tf.train.latest_checkpoint(str(tmp_path)) == path


@BOTH
def test_f24_an_iterator_that_cannot_be_saved(tmp_path, library):
    data = tf.data.Dataset.from_generator(lambda: iter(range(9)), output_types=tf.int32)
    value = tf.Variable(1.0)
    checkpoint = library.Checkpoint(v=value, it=iter(data))
    if library is tf.train:  # the weights are lost with it
        with pytest.raises(tf.errors.FailedPreconditionError):
            checkpoint.save(str(tmp_path / "ckpt"))
        assert tf.train.latest_checkpoint(str(tmp_path)) is None
        return
    path = checkpoint.save(tmp_path / "ckpt")
    value.assign(0.0)
    checkpoint.restore(path)
    assert value.numpy() == 1


@BOTH
def test_f25_what_is_kept_by_hours_is_listed(tmp_path, library, monkeypatch):
    now = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    run = Run(library, tmp_path, 1, 1)
    for n in range(3):
        now[0] += 2 * HOUR
        run.save(n)
    assert len(left(tmp_path)) == 3
    listed = [Path(path).name for path in run.manager.checkpoints]
    assert (listed == left(tmp_path)) is (library is tfckpt)
