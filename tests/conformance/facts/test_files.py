"""F18 to F25: what becomes of files.

What happens to a process that is killed, or whose power fails, at every single call (F17, F18) is
counted in ``tests/faults``, plain TensorFlow beside tfckpt.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.stored.io.files import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600.0
BOTH = pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["plain", "tfckpt"])


def saved(library: Any, directory: Path, count: int, **more: Any) -> tuple[tf.Variable, Any]:
    """A manager that has saved the values 1, 2, …, and the variable, which is then 0."""
    value = tf.Variable(0)
    checkpoint = library.Checkpoint(value=value)
    manager = library.CheckpointManager(checkpoint, str(directory), **{"max_to_keep": None, **more})
    for number in range(1, count + 1):
        value.assign(number)
        manager.save()
    value.assign(0)
    return value, manager


def again(library: Any, directory: Path, max_to_keep: int | None = None) -> tuple[tf.Variable, Any]:
    value = tf.Variable(0)
    checkpoint = library.Checkpoint(value=value)
    return value, library.CheckpointManager(checkpoint, str(directory), max_to_keep)


# F18: a restart without a restore


def test_f18_plain_tensorflow_begins_to_count_anew_and_overwrites(tmp_path) -> None:
    saved(tf.train, tmp_path, 3)
    (tmp_path / "checkpoint").unlink()
    value, manager = again(tf.train, tmp_path)
    value.assign(70)
    assert manager.save().endswith("ckpt-1")
    assert (
        tf.train.load_checkpoint(str(tmp_path / "ckpt-1")).get_tensor(
            "value/.ATTRIBUTES/VARIABLE_VALUE"
        )
        == 70
    )


def test_f18_tfckpt_takes_a_number_that_no_file_has(tmp_path) -> None:
    saved(tfckpt, tmp_path, 3)
    (tmp_path / "checkpoint").unlink()
    _, manager = again(tfckpt, tmp_path)
    assert manager.save().endswith("ckpt-4")
    assert len(manager.checkpoints) == 4


# F19: the state file


@pytest.mark.parametrize("left", [b"\0\0\0", b'model_checkpoint_path: "ckpt-', None])
def test_f19_plain_tensorflow_starts_from_scratch(tmp_path, left) -> None:
    saved(tf.train, tmp_path, 2)
    _damage(tmp_path / "checkpoint", left)
    value, manager = again(tf.train, tmp_path)
    assert manager.restore_or_initialize() is None
    assert value.numpy() == 0


@pytest.mark.parametrize("left", [b"", b"\0\0\0", b'model_checkpoint_path: "ckpt-', None])
def test_f19_tfckpt_restores_the_newest(tmp_path, left) -> None:
    saved(tfckpt, tmp_path, 2)
    _damage(tmp_path / "checkpoint", left)
    value, manager = again(tfckpt, tmp_path)
    assert manager.restore_or_initialize().endswith("ckpt-2")
    assert value.numpy() == 2
    manager.save()
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("ckpt-3")  # it is whole again


def _damage(state: Path, left: bytes | None) -> None:
    if left is None:
        state.unlink()
    else:
        state.write_bytes(left)


def test_f19_plain_tensorflow_ignores_good_checkpoints_beside_one_that_is_gone(tmp_path) -> None:
    saved(tf.train, tmp_path, 3)
    (tmp_path / "ckpt-3.index").unlink()
    assert tf.train.latest_checkpoint(str(tmp_path)) is None
    assert again(tf.train, tmp_path)[1].latest_checkpoint.endswith("ckpt-3")


def test_f19_tfckpt_goes_on_with_the_one_before(tmp_path) -> None:
    saved(tfckpt, tmp_path, 3)
    (tmp_path / "ckpt-3.index").unlink()
    value, manager = again(tfckpt, tmp_path)
    assert manager.restore_or_initialize().endswith("ckpt-2")
    assert value.numpy() == 2


# F20: paths


@BOTH
@pytest.mark.parametrize("path", ["../victim/ckpt-1", "*"])
def test_f20_who_deletes_files_outside_of_the_directory(tmp_path, library, path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "ckpt-1.index").write_bytes(b"somebody's")
    saved(library, tmp_path / "run", 2)
    (tmp_path / "run" / "notes.index").write_bytes(b"somebody's")
    lines = [f'model_checkpoint_path: "{path}"', f'all_model_checkpoint_paths: "{path}"']
    lines += ["all_model_checkpoint_timestamps: 1.0", "last_preserved_timestamp: 0.0"]
    (tmp_path / "run" / "checkpoint").write_text("\n".join(lines))
    _, manager = again(library, tmp_path / "run", max_to_keep=1)
    manager.save()
    manager.save()
    lost = not (victim / "ckpt-1.index").exists() or not (tmp_path / "run/notes.index").exists()
    assert lost is (library is tf.train)


@BOTH
def test_f20_a_directory_whose_name_looks_like_a_pattern(tmp_path, library) -> None:
    directory = tmp_path / "run[1]"
    saved(library, directory, 3, max_to_keep=1)
    left = sorted(path.name for path in directory.glob("*.index"))
    ours = library is tfckpt
    assert left == (["ckpt-3.index"] if ours else ["ckpt-1.index", "ckpt-2.index", "ckpt-3.index"])
    value, manager = again(library, directory)
    if ours:
        assert manager.restore_or_initialize().endswith("ckpt-3")
        assert value.numpy() == 3
    else:
        with pytest.raises(tf.errors.NotFoundError):
            manager.restore_or_initialize()


@BOTH
def test_f20_a_link_where_the_next_checkpoint_goes(tmp_path, library) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"somebody's")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ckpt-1.index").symlink_to(victim)
    saved(library, tmp_path / "run", 1)
    assert (victim.read_bytes() == b"somebody's") is (library is tfckpt)


# F21: two managers in one directory


@BOTH
def test_f21_two_managers_of_one_directory(tmp_path, library) -> None:
    first, second = (again(library, tmp_path) for _ in range(2))
    paths = []
    for step, (value, manager) in enumerate((first, second, first, second), start=1):
        value.assign(step)
        paths.append(manager.save())
    reader = tf.train.load_checkpoint
    values = [int(reader(path).get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE")) for path in paths]
    assert values == ([1, 2, 3, 4] if library is tfckpt else [2, 2, 4, 4])


# F22: damage


@BOTH
@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
def test_f22_what_damage_surfaces_as(tmp_path, library, part) -> None:
    saved(library, tmp_path, 1)
    file = tmp_path / f"ckpt-1.{part}"
    data = bytearray(file.read_bytes())
    data[len(data) // 3 if part == "index" else -1] ^= 255  # the value is the last one
    file.write_bytes(data)
    with pytest.raises(Exception) as raised:  # noqa: PT011 (which one it is, is the point)
        tf.train.load_checkpoint(str(tmp_path / "ckpt-1")).get_tensor("value/.ATTRIBUTES/x")
    assert not isinstance(raised.value, tfckpt.DamagedCheckpointError)
    if library is tfckpt:
        with pytest.raises(tfckpt.DamagedCheckpointError, match="ckpt-1"):
            again(library, tmp_path)[1].restore_or_initialize()


# F23: a full disk


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_f23_plain_tensorflow_does_not_save_after_a_save_that_failed(tmp_path, monkeypatch) -> None:
    step = tf.Variable(5)
    checkpoint = tf.train.Checkpoint(step=step)
    manager = tf.train.CheckpointManager(
        checkpoint, str(tmp_path), None, step_counter=step, checkpoint_interval=3
    )
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_write", full)
        with pytest.raises(OSError, match="No space left"):
            manager.save()
    assert int(checkpoint.save_counter) == 1
    assert manager.save() is None


def test_f23_tfckpt_saves_as_if_nothing_had_been(tmp_path, monkeypatch) -> None:
    step = tf.Variable(5)
    checkpoint = tfckpt.Checkpoint(step=step)
    manager = tfckpt.CheckpointManager(
        checkpoint, tmp_path, None, step_counter=step, checkpoint_interval=3
    )
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "rename", full)
        with pytest.raises(tfckpt.SaveError, match="No space left"):
            manager.save()
    assert int(checkpoint.save_counter) == 0
    assert manager.save().endswith("ckpt-1")


@BOTH
def test_f23_a_keras_model_in_the_background(stack, tmp_path, library) -> None:
    import keras

    model = stack(keras, ["a", "b"])
    model.compile("adam", "mse")
    model.fit(np.ones((2, 3)), np.ones((2, 3)), verbose=0)
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


# F24: iterators


def test_f24_plain_tensorflow_loses_the_weights_with_the_iterator(tmp_path) -> None:
    with pytest.raises(tf.errors.FailedPreconditionError):
        tf.train.Checkpoint(v=tf.Variable(1.0), it=_generated()).save(str(tmp_path / "ckpt"))
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


def test_f24_tfckpt_saves_the_weights(tmp_path) -> None:
    value = tf.Variable(1.0)
    checkpoint = tfckpt.Checkpoint(v=value, it=_generated())
    path = checkpoint.save(tmp_path / "ckpt")
    value.assign(0.0)
    checkpoint.restore(path)
    assert value.numpy() == 1


def _generated() -> Any:
    return iter(tf.data.Dataset.from_generator(lambda: iter(range(9)), output_types=tf.int32))


# F25: what is kept by hours


@BOTH
def test_f25_what_is_kept_by_hours_is_listed(tmp_path, library, monkeypatch) -> None:
    import time

    now = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    value = tf.Variable(0)
    checkpoint = library.Checkpoint(value=value)
    manager = library.CheckpointManager(checkpoint, str(tmp_path), 1, 1)
    for _ in range(3):
        now[0] += 2 * HOUR
        manager.save()
    on_disk = sorted(str(path.with_suffix("")) for path in tmp_path.glob("*.index"))
    assert len(on_disk) == 3
    assert (manager.checkpoints == on_disk) is (library is tfckpt)
