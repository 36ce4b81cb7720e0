"""What is reported, left out or refused when a checkpoint is saved, and how it is kept."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path


def model_of(flavour: Any) -> Any:
    model = flavour.Sequential([flavour.Input((3,)), flavour.layers.Dense(2, name="out")])
    model.compile("adam", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    return model


def generated() -> Any:
    """An iterator that TensorFlow cannot save: over a Python generator."""
    numbers = tf.data.Dataset.from_generator(lambda: iter(range(9)), output_types=tf.int32)
    return iter(numbers)


def record_of(path: str) -> dict[str, Any]:
    with open(f"{path}.tfckpt.json", "rb") as file:  # noqa: PTH123 (a path as text)
        record: dict[str, Any] = json.load(file)
    return record


# What cannot be saved


def test_plain_tensorflow_saves_nothing_where_an_iterator_cannot_be_saved(tmp_path) -> None:
    checkpoint = tf.train.Checkpoint(model=model_of(keras), iterator=generated())
    with pytest.raises(tf.errors.FailedPreconditionError):
        checkpoint.save(str(tmp_path / "ckpt"))
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


def test_what_cannot_be_saved_never_costs_the_weights(flavour, tmp_path, caplog) -> None:
    model, step = model_of(flavour), tf.Variable(5)
    checkpoint = tfckpt.Checkpoint(model=model, iterator=generated(), step=step)
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, max_to_keep=None)
    path = manager.save()
    assert "iterator is left out of the checkpoints" in caplog.text
    assert list(record_of(path)["left_out"]) == ["iterator"]
    weights = model.get_weights()
    model.set_weights([0 * w for w in weights])
    step.assign(0)
    config = {"version": 1, "restore": {"directory": str(tmp_path)}}
    report = tfckpt.restore(config, model=model, iterator=generated(), step=step)
    assert step.numpy() == 5
    for value, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(value, expected)
    assert "left out of the checkpoint" in str(report)
    assert "iterator" in str(report)


def test_what_cannot_be_saved_fails_the_save_on_request(tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0), iterator=generated())
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, None, on_unsavable="error")
    with pytest.raises(tfckpt.SaveError, match="iterator"):
        manager.save()
    assert tf.train.latest_checkpoint(str(tmp_path)) is None
    assert manager.checkpoints == []
    assert int(checkpoint.save_counter) == 0


def test_a_checkpoint_of_nothing_but_what_cannot_be_saved_is_refused(tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(iterator=generated())
    for error in (tfckpt.SaveError, tf.errors.FailedPreconditionError):
        with pytest.raises(error, match="iterator"):
            checkpoint.save(tmp_path / "ckpt")
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


def test_a_callback_that_raises_takes_no_commit_back(tmp_path) -> None:
    def fail() -> None:
        raise RuntimeError("of the callback")

    step = tf.Variable(5)
    checkpoint = tfckpt.Checkpoint(step=step)
    manager = tfckpt.CheckpointManager(
        checkpoint, tmp_path, None, step_counter=step, checkpoint_interval=3
    )
    with pytest.raises(RuntimeError, match="of the callback"):
        manager.save(options=tf.train.CheckpointOptions(experimental_write_callbacks=[fail]))
    assert len(manager.checkpoints) == 1
    assert int(checkpoint.save_counter) == 1
    assert manager.save() is None  # that step was saved


# What is not finite


def nonfinite_keys(flavour: Any) -> Any:
    model = model_of(flavour)
    kernel = model.get_layer("out").kernel
    kernel.assign(tf.constant([[1.0, np.nan], [0.0, np.inf], [1.0, 1.0]]))
    return model


@pytest.mark.parametrize(("how", "said"), [("warn", True), ("save", False)])
def test_values_that_are_not_finite_are_named(flavour, tmp_path, caplog, how, said) -> None:
    checkpoint = tfckpt.Checkpoint(model=nonfinite_keys(flavour))
    path = tfckpt.CheckpointManager(checkpoint, tmp_path, 1, on_nonfinite=how).save()
    assert ("values are NaN or infinite: model/out/kernel" in caplog.text) is said
    assert record_of(path)["finite"] is False


def test_values_that_are_not_finite_are_refused_before_anything_is_written(tmp_path) -> None:
    model = nonfinite_keys(keras)
    manager = tfckpt.CheckpointManager(
        tfckpt.Checkpoint(model=model), tmp_path / "run", 1, on_nonfinite="refuse"
    )
    with pytest.raises(tfckpt.SaveError, match="model/out/kernel"):
        manager.save()
    assert manager.checkpoints == []
    model.set_weights([np.ones((3, 2)), np.ones(2)])
    assert manager.save().endswith("ckpt-1")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("value", [1.0, 60000.0, np.inf, -np.inf, np.nan])
def test_what_is_finite_in_each_type(tmp_path, dtype, value) -> None:
    # A sum of many large numbers is infinite in a narrow type, though none of them is.
    large = np.full(999, 3e38 if dtype == "float32" and value == 60000.0 else value)
    model = tf.Module()
    model.v = tf.Variable(tf.cast(large, dtype))
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt")
    weights = [role for name, role, *_ in record_of(path)["entries"] if name.endswith("v")]
    expected = bool(np.isfinite(value)) or weights != ["weight"]
    assert record_of(path)["finite"] is expected


def test_the_last_finite_one_is_not_deleted(flavour, tmp_path) -> None:
    model = model_of(flavour)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), tmp_path, max_to_keep=1)
    good = [manager.save(), manager.save()][-1]
    model.get_layer("out").bias.assign([np.nan, 0])
    bad = [manager.save(), manager.save()][-1]
    assert manager.checkpoints == [good, bad]
    decision = manager.retention()
    assert decision.kept[good] == ("last with only finite values",)
    assert decision.delete == ()


# What is kept


def test_the_best_survive_a_restart(tmp_path) -> None:
    def manager() -> tfckpt.CheckpointManager:
        rules = [{"latest": 1}, {"best": 2, "monitor": "val_loss", "mode": "min"}, {"pin": [2]}]
        checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
        return tfckpt.CheckpointManager(checkpoint, tmp_path, None, keep=rules)

    def numbers(of: tfckpt.CheckpointManager) -> list[int]:
        return [int(path.rpartition("-")[2]) for path in of.checkpoints]

    first = manager()
    for loss in (0.5, 0.9, 0.2, 0.7):
        first.save(metrics={"val_loss": loss})
    assert numbers(first) == [1, 2, 3, 4]  # two best, a pinned one, the latest
    second = manager()
    second.restore_or_initialize()
    for loss in (0.4, 0.8):
        second.save(metrics={"val_loss": loss})
    assert numbers(second) == [2, 3, 5, 6]
    assert "best 2 by val_loss (0.2)" in second.retention().kept[f"{tmp_path}/ckpt-3"]


@pytest.mark.parametrize("rule", [{"newest": 3}, {"latest": 0}, {"best": 2}, {}, {"pin": "x"}])
def test_a_rule_that_is_none_is_refused(tmp_path, rule) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    with pytest.raises(ValueError, match="keep: "):
        tfckpt.CheckpointManager(checkpoint, tmp_path, None, keep=[rule])


@pytest.mark.parametrize("word", ["on_nonfinite", "on_unsavable", "if_busy"])
def test_a_word_that_means_nothing_is_refused(tmp_path, word) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    with pytest.raises(ValueError, match=f"{word} must be .* found 'perhaps'"):
        tfckpt.CheckpointManager(checkpoint, tmp_path, None, **{word: "perhaps"})


# Where it is kept


@pytest.mark.parametrize("durable", [True, False])
def test_only_a_durable_save_waits_for_the_disk(tmp_path, monkeypatch, durable) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, 1, durable=durable)
    manager.save()  # which makes the lock, too
    synced = []
    genuine = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), genuine(fd)))
    manager.save()
    assert bool(synced) is durable


def test_a_manager_of_a_remote_directory(flavour) -> None:
    fsspec = pytest.importorskip("fsspec")
    model = model_of(flavour)
    checkpoint = tfckpt.Checkpoint(model=model)
    directory = f"memory://{flavour.__name__}/run"
    manager = tfckpt.CheckpointManager(checkpoint, directory, max_to_keep=2)
    paths = [manager.save() for _ in range(3)]
    assert manager.checkpoints == paths[1:] == [f"{directory}/ckpt-2", f"{directory}/ckpt-3"]
    found = fsspec.filesystem("memory").ls(directory, detail=False)
    names = {name.rpartition("/")[2].split(".")[0] for name in found}
    assert names == {"checkpoint", "ckpt-2", "ckpt-3"}
    weights = model.get_weights()
    model.set_weights([0 * w for w in weights])
    assert manager.restore_or_initialize() == paths[-1]
    for value, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_remote_path_as_a_source_is_found() -> None:
    value = tf.Variable(3.0)
    path = tfckpt.Checkpoint(value=value).save("memory://source/run/ckpt")
    for source in ({"path": path}, {"directory": "memory://source/run"}):
        value.assign(0.0)
        restore = {**source, "if_none": "initialize"}
        assert tfckpt.restore({"version": 1, "restore": restore}, value=value).path == path
        assert value.numpy() == 3


def test_a_name_right_below_the_scheme_has_no_directory_and_is_refused() -> None:
    with pytest.raises(ValueError, match="gs://bucket/ckpt"):
        tfckpt.Checkpoint(v=tf.Variable(1.0)).save("memory://ckpt")


def test_checkpoints_of_another_name_are_named_where_none_is_found(tmp_path, caplog) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    tfckpt.CheckpointManager(checkpoint, tmp_path, 1, checkpoint_name="model").save()
    assert tfckpt.CheckpointManager(checkpoint, tmp_path, 1).restore_or_initialize() is None
    assert f"no checkpoint named 'ckpt' to restore\n  {tmp_path} holds 'model-1'" in caplog.text
    assert "`checkpoint_name: model`" in caplog.text


def test_a_pathlib_directory_with_a_trailing_name_is_a_directory(tmp_path: Path) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path / "a" / "b", 1)
    assert manager.save() == str(tmp_path / "a" / "b" / "ckpt-1")
