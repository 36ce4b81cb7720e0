"""What a save leaves on disk: every variable, an ordinary checkpoint, and nothing when it fails."""

from __future__ import annotations

import errno
import os
import weakref
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfckpt
from tfckpt.live import save, snapshot
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.commits import record_file
from tfckpt.stored.io.files import LocalFiles, LocalOutput

if TYPE_CHECKING:
    from pathlib import Path


def model_with_everything(keras_: Any) -> Any:
    """Layers in a list and a dict, a seed, a metric, an optimizer that took a step."""
    layers = keras_.layers

    class Model(keras_.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [layers.Dense(3), layers.Dense(3)]
            self.heads = {"x": layers.Dense(2)}
            self.drop = layers.Dropout(0.5)

        def call(self, x: Any, training: bool = False) -> Any:
            for block in self.blocks:
                x = block(x)
            return self.heads["x"](self.drop(x, training=training))

    model = Model()
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    return model


def files(directory: Path) -> dict[str, bytes]:
    """All files but the lock's."""
    return {path.name: path.read_bytes() for path in directory.glob("[!.]*") if path.is_file()}


def test_every_variable_is_saved_under_the_key_that_the_record_says(flavour, tmp_path) -> None:
    model = model_with_everything(flavour)
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt")
    record = record_file.read(path)
    assert record is not None
    reader = tf.train.load_checkpoint(path)
    live = {id(v): v for v in (*model.variables, *model.optimizer.variables)}
    stored = sorted(reader.get_tensor(e.key).tobytes() for e in record.inventory.entries.values())
    for variable in live.values():
        assert np.asarray(variable).tobytes() in stored, variable
    for name, entry in record.inventory.entries.items():
        assert reader.get_variable_to_shape_map()[entry.key] == list(entry.shape), name
    assert (record.number, record.step) == (1, 1)


def test_plain_tensorflow_restores_what_tfckpt_writes(flavour, tmp_path) -> None:
    model = model_with_everything(flavour)
    path = tfckpt.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "ckpt")
    assert tf.train.latest_checkpoint(tmp_path) == path
    other = model_with_everything(flavour)
    other.optimizer.iterations.assign(7)
    plain = tf.train.Checkpoint(model=other, optimizer=other.optimizer)
    plain.restore(path).assert_existing_objects_matched()
    assert int(other.optimizer.iterations.numpy()) == 1


def test_the_keys_that_tensorflow_gives_are_not_changed(flavour, tmp_path) -> None:
    model = model_with_everything(flavour)
    plain = tf.train.Checkpoint(model=model).write(str(tmp_path / "plain"))
    ours = tfckpt.Checkpoint(model=model).write(tmp_path / "ours")
    keys, more = (
        set(tf.train.load_checkpoint(p).get_variable_to_shape_map()) for p in (plain, ours)
    )
    assert keys <= more
    assert {key.partition("/")[0] for key in more - keys} <= {"_tfckpt"}


def test_the_slots_of_a_legacy_optimizer_are_saved(tmp_path) -> None:
    model = tf_keras.Sequential([tf_keras.Input((2,)), tf_keras.layers.Dense(1, name="a")])
    optimizer = tf_keras.optimizers.legacy.Adam()
    model.compile(optimizer, "mse")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt")
    expected = {
        f"optimizer/{ours}/a/{v.name[2:-2]}": optimizer.get_slot(v, theirs).numpy()
        for v in model.trainable_variables
        for ours, theirs in {"momentum": "m", "velocity": "v"}.items()
    }
    for slot in expected:
        variable = optimizer.get_slot(*_slot_of(slot, model))
        variable.assign(tf.zeros_like(variable))
    report = tfckpt.Checkpoint(model=model).restore(path).assert_consumed().report
    assert set(expected) <= {step.name for step in report.plan.assignments}
    for slot, value in expected.items():
        np.testing.assert_array_equal(optimizer.get_slot(*_slot_of(slot, model)), value)


def _slot_of(name: str, model: Any) -> tuple[Any, str]:
    _, slot, _, variable = name.split("/")
    found = next(v for v in model.trainable_variables if v.name == f"a/{variable}:0")
    return found, {"momentum": "m", "velocity": "v"}[slot]


def test_a_number_that_any_file_has_used_is_not_used_again(tmp_path) -> None:
    (tmp_path / "ckpt-7.data-00000-of-00001").write_bytes(b"somebody's")
    (tmp_path / "ckpt-9_temp").mkdir()
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    assert checkpoint.save(tmp_path / "ckpt").endswith("ckpt-10")
    assert int(checkpoint.save_counter) == 10
    assert (tmp_path / "ckpt-7.data-00000-of-00001").read_bytes() == b"somebody's"


def test_callbacks_of_the_options_see_a_committed_checkpoint(tmp_path) -> None:
    seen: list[Any] = []
    options = tf.train.CheckpointOptions(
        experimental_write_callbacks=[
            lambda path: seen.append(record_file.read(path) is not None),
            lambda: seen.append("no argument"),
        ]
    )
    tfckpt.Checkpoint(v=tf.Variable(1.0)).save(tmp_path / "ckpt", options=options)
    assert seen == [True, "no argument"]


def test_a_save_in_the_background_holds_the_values_of_the_moment_it_began(
    flavour, tmp_path
) -> None:
    model = model_with_everything(flavour)
    options = tf.train.CheckpointOptions(enable_async=True)
    checkpoint = tfckpt.Checkpoint(model=model)
    for number in (1, 2, 3):
        before = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
        path = checkpoint.save(tmp_path / "ckpt", options=options)
        model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
        checkpoint.sync()
        record = record_file.read(path)
        assert record is not None, number
        reader = tf.train.load_checkpoint(path)
        stored = [reader.get_tensor(e.key).tobytes() for e in record.inventory.entries.values()]
        assert all(value.tobytes() in stored for value in before), number


def test_a_variable_that_would_be_left_out_fails_the_save(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(snapshot, "whole_view", lambda view, live: view)
    checkpoint = tfckpt.Checkpoint(model=model_with_everything(keras))
    with pytest.raises(tfckpt.CoverageError, match="would have been left out"):
        checkpoint.save(tmp_path / "ckpt")
    assert files(tmp_path) == {}
    assert int(checkpoint.save_counter) == 0


@pytest.mark.parametrize(
    ("owner", "fails"),
    [
        *((LocalFiles, name) for name in ("makedirs", "create", "fsync_dir", "rename")),
        (LocalFiles, "write_atomic"),
        *((LocalOutput, name) for name in ("write", "sync", "close")),
    ],
)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_save_that_fails_leaves_the_older_one_of_that_name(
    tmp_path, monkeypatch, owner, fails, shards
) -> None:
    monkeypatch.setattr(save, "files_for", lambda _: shards)
    variable = tf.Variable(1.0)
    checkpoint = tfckpt.Checkpoint(v=variable)
    checkpoint.write(tmp_path / "ckpt")
    before = files(tmp_path)
    variable.assign(2.0)
    genuine = getattr(owner, fails)
    for number in range(1, 20):
        calls = iter(range(1, 99))

        def full(*args: Any, number: int = number, calls: Any = calls) -> Any:
            if next(calls) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return genuine(*args)

        with monkeypatch.context() as patch:
            patch.setattr(owner, fails, full)
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


def test_none_is_no_path(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    for attempt in (checkpoint.save, checkpoint.write):
        with pytest.raises(TypeError, match="not None"):
            attempt(None)
    assert files(tmp_path) == {}


@pytest.mark.parametrize("prefix", ["run/", "./deep/run/"])
def test_the_name_in_a_prefix_may_be_empty(prefix, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    variable = tf.Variable(0.0)
    plain, ours = tf.train.Checkpoint(v=variable), tfckpt.Checkpoint(v=variable)
    paths = {}
    for checkpoint in (plain, ours):
        paths[checkpoint] = [checkpoint.save(prefix) for _ in range(2)] + [checkpoint.write(prefix)]
    assert paths[ours] == [f"{prefix}-3", f"{prefix}-4", prefix]
    assert paths[plain] == [f"{prefix}-1", f"{prefix}-2", prefix]
    for number, path in enumerate(paths[ours], 1):
        variable.assign(float(number))
        assert ours.write(path) == path
    for reader in (plain, ours):
        for number, path in enumerate(paths[ours], 1):
            reader.read(path).assert_existing_objects_matched()
            assert variable.numpy() == number
    assert not list(tmp_path.glob("*.index"))


def test_a_directory_that_cannot_be_made_is_a_save_error(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    for attempt in (checkpoint.save, checkpoint.write):
        with pytest.raises(tfckpt.SaveError, match="file"):
            attempt(tmp_path / "file" / "ckpt")
    assert int(checkpoint.save_counter) == 0


def test_a_root_object_and_a_weak_reference_to_one_are_saved(tmp_path) -> None:
    module = tf.Module()
    module.v = tf.Variable(1.0)
    for name, root in (("strong", module), ("weak", weakref.ref(module))):
        checkpoint = tfckpt.Checkpoint(root, step=tf.Variable(3))
        path = checkpoint.save(tmp_path / name)
        record = record_file.read(path)
        assert record is not None
        assert set(record.inventory.entries) == {"v", "step", "save_counter"}
        module.v.assign(2.0)
        checkpoint.restore(path).assert_consumed()
        assert float(module.v) == 1.0


def test_what_tensorflow_alone_can_write_is_in_the_same_checkpoint(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(save, "files_for", lambda _: 2)
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


def test_what_the_options_ask_of_tensorflow_it_does(tmp_path) -> None:
    seen = []

    class Each(tf.train.experimental.ShardByTaskPolicy):
        def __call__(self, tensors: Any) -> Any:
            seen.extend(tensor.trackable for tensor in tensors)
            return super().__call__(tensors)

    options = tf.train.CheckpointOptions(experimental_sharding_callback=Each())
    value = tf.Variable(1.0)
    path = tfckpt.Checkpoint(value=value).save(tmp_path / "ckpt", options)
    assert any(trackable is value for trackable in seen)
    assert tf.train.load_checkpoint(path).get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE") == 1


def test_a_value_that_is_not_finite_leaves_nothing_of_many_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(save, "files_for", lambda _: 2)
    model = model_with_everything(keras)
    model.layers[0].kernel.assign(tf.fill((3, 3), np.inf))
    checkpoint = tfckpt.Checkpoint(model=model)
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, 1, on_nonfinite="refuse")
    with pytest.raises(tfckpt.SaveError, match="kernel"):
        manager.save()
    assert files(tmp_path) == {}
