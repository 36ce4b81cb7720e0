"""What a save leaves on disk, records, and writes of that moment."""

from __future__ import annotations

import errno
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.command_line import document, run

import tfckpt
from tfckpt.live import save, snapshot
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.commits import record_file
from tfckpt.stored.io.files import LocalFiles, LocalOutput

if TYPE_CHECKING:
    from collections.abc import Callable
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


def test_a_value_that_is_not_finite_leaves_nothing_of_many_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(save, "files_for", lambda _: 2)
    model = model_with_everything(keras)
    model.layers[0].kernel.assign(tf.fill((3, 3), np.inf))
    checkpoint = tfckpt.Checkpoint(model=model)
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, 1, on_nonfinite="refuse")
    with pytest.raises(tfckpt.SaveError, match="kernel"):
        manager.save()
    assert files(tmp_path) == {}


RULE = {"best": 1, "monitor": "loss", "mode": "min"}


@pytest.fixture
def managed(tmp_path):
    """Makes a manager of one variable."""
    return lambda **given: tfckpt.CheckpointManager(
        tfckpt.Checkpoint(v=tf.Variable(1.0)), tmp_path, None, **given
    )


def test_what_is_given_is_recorded_and_shown(managed, tmp_path) -> None:
    given = {
        "commit": "1c9f2e",
        "rate": np.float32(0.5),
        "count": np.int64(3),
        "sizes": (1, 2),
        "deep": {"none": None, "yes": True},
    }
    managed().save(step=7, epoch=2, metrics={"loss": np.float32(0.25)}, metadata=given)
    plain = {**given, "rate": 0.5, "count": 3, "sizes": [1, 2]}
    found = document("inspect", tmp_path)
    assert found["metadata"] == plain
    assert (found["step"], found["epoch"], found["metrics"]) == (7, 2, {"loss": 0.25})
    listed = document("list", tmp_path)
    assert listed["checkpoints"][0]["metadata"] == plain
    shown = run("inspect", tmp_path).out
    assert "\n  commit: 1c9f2e\n" in shown
    assert '\n  deep: {"none": null, "yes": true}\n' in shown


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"a": object()}, r"metadata\['a'\] must be"),
        ({"a": {"b": [float("nan")]}}, r"metadata\['a'\]\['b'\]\[0\] must be"),
        ({"a": 1 << 64}, r"metadata\['a'\] must be"),
        ({1: 2}, "a key of metadata must be a string"),
        ({"a": "x" * 70_000}, "70,009 bytes, but at most 65,536 are allowed"),
        ({"a": "\ud800"}, "not valid Unicode"),
        (["a"], "metadata must be a dict"),
    ],
    ids=["object", "nan", "large", "key", "long", "surrogate", "list"],
)
def test_what_a_record_cannot_hold_is_refused_before_anything_is_written(
    managed, tmp_path, wrong, message
) -> None:
    with pytest.raises(tfckpt.SaveError, match=message):
        managed().save(metadata=wrong)
    assert not list(tmp_path.iterdir())


def test_the_best_is_found_by_the_rule_after_a_restart(managed, tmp_path) -> None:
    manager = managed(keep=[{"latest": 9}, RULE])
    assert manager.best is None
    for loss in (0.5, 0.1, float("nan"), 0.3):
        manager.save(metrics={"loss": loss, "accuracy": 1 - loss})
    manager.save()
    assert manager.best == managed(keep=[{"latest": 9}, RULE]).best == f"{tmp_path}/ckpt-2"

    def selected(**source) -> str:
        config = {"version": 1, "restore": {"directory": str(tmp_path), **source}}
        return tfckpt.restore(config, v=tf.Variable(0.0)).path

    assert selected(select="best") == f"{tmp_path}/ckpt-2"
    assert selected(select="best", monitor="accuracy", mode="min") == f"{tmp_path}/ckpt-1"
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="their metrics are accuracy, loss"):
        selected(select="best", monitor="acc", mode="max")
    marked = run("list", tmp_path).out.splitlines()
    assert [line.split()[0] for line in marked if "the best by loss" in line] == ["ckpt-2"]
    listed = document("list", tmp_path)["checkpoints"]
    assert [each["number"] for each in listed if each["best"]] == [2]


def test_without_a_rule_nothing_is_called_the_best(managed, tmp_path) -> None:
    manager = managed()
    manager.save(metrics={"loss": 0.5})
    with pytest.raises(tfckpt.TfckptError, match="by which metric"):
        _ = manager.best
    config = {"version": 1, "restore": {"directory": str(tmp_path), "select": "best"}}
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="`monitor` and `mode`"):
        tfckpt.restore(config, v=tf.Variable(0.0))
    assert "the best" not in run("list", tmp_path).out


@pytest.mark.parametrize(
    "source", [{"monitor": "loss", "mode": "min"}, {"select": "best", "mode": "min"}]
)
def test_keys_that_mean_nothing_alone_are_refused(source) -> None:
    with pytest.raises(tfckpt.PolicyError, match=r"select: best|needs `monitor`"):
        tfckpt.restore({"version": 1, "restore": {"directory": "x", **source}}, v=tf.Variable(0.0))


@pytest.mark.parametrize("enable_async", [False, True])
def test_a_function_is_called_after_each_save(managed, tmp_path, enable_async) -> None:
    reports = []

    def saved(report: tfckpt.SaveReport) -> None:
        assert tf.train.latest_checkpoint(tmp_path) == report.path
        reports.append((report, threading.current_thread() is threading.main_thread()))

    manager = managed(on_saved=saved, enable_async=enable_async)
    path = manager.save(step=3, metrics={"loss": 0.5}, metadata={"a": 1})
    manager.sync()
    ((report, by_the_caller),) = reports
    assert by_the_caller is not enable_async
    assert (report.path, report.number, report.step, report.epoch) == (path, 1, 3, None)
    assert (report.metrics, report.metadata) == ({"loss": 0.5}, {"a": 1})
    own = [file for file in tmp_path.iterdir() if file.name.startswith("ckpt-1.")]
    assert report.nbytes == sum(file.stat().st_size for file in own)
    assert report.seconds > 0


def test_what_the_function_raises_fails_no_save(managed, caplog) -> None:
    def saved(report: tfckpt.SaveReport) -> None:
        raise RuntimeError("no room in the copy")

    manager = managed(on_saved=saved)
    path = manager.save()
    assert manager.checkpoints == [path]
    (warning,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.getMessage() == f"{path} is saved, but on_saved failed"
    assert "no room in the copy" in str(warning.exc_info)


def stored(prefix: str, key: str) -> Any:
    return tf.train.load_checkpoint(prefix).get_tensor(f"{key}/.ATTRIBUTES/VARIABLE_VALUE")


@pytest.mark.parametrize("saves", [1, 2])
def test_what_is_updated_after_a_save_is_not_in_it(saves: int, tmp_path: Path) -> None:
    dense = tf.Variable(tf.zeros([3, 2]))
    sparse = tf.Variable(tf.zeros([3, 2]))
    rows = tf.IndexedSlices(tf.ones([1, 2]), [1])
    sparse.scatter_add(rows)  # from now on it is updated in place
    checkpoint = tfckpt.Checkpoint(dense=dense, sparse=sparse)
    asynchronous = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    for number in range(saves):
        dense.assign(tf.fill([3, 2], float(number)))
        before = sparse.numpy()
        path = checkpoint.save(str(tmp_path / "ckpt"), options=asynchronous)
        dense.assign_add(tf.ones([3, 2]))
        sparse.scatter_add(rows)
    checkpoint.sync()
    assert (stored(path, "dense") == saves - 1).all()
    assert (stored(path, "sparse") == before).all()


def test_the_state_that_a_seed_generator_has_now_is_saved(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.5)])
    checkpoint = tfckpt.Checkpoint(model=model)
    checkpoint.save(str(tmp_path / "ckpt"))
    generator = model.layers[0].seed_generator
    generator.state = keras.random.SeedGenerator(7).state
    path = checkpoint.save(str(tmp_path / "ckpt"))
    generator.next()
    checkpoint.restore(path).assert_consumed()
    np.testing.assert_array_equal(generator.state, [7, 0])


def _module_whose_children_vary() -> tuple[Any, Callable[[], None]]:
    class Varying(tf.Module):  # type: ignore[misc]
        def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return {**super()._trackable_children(*args, **kwargs), **elsewhere}

    elsewhere: dict[str, Any] = {}
    return Varying(), lambda: elsewhere.update(more=tf.Variable(2.0))


def _module_whose_class_gets_a_method() -> tuple[Any, Callable[[], None]]:
    class Plain(tf.Module):  # type: ignore[misc]
        pass

    module, more = Plain(), tf.Variable(2.0)
    return module, lambda: setattr(Plain, "_trackable_children", lambda *_, **__: {"more": more})


def _module_with_a_method_of_its_own() -> tuple[Any, Callable[[], None]]:
    module, elsewhere = tf.Module(), {"more": tf.Variable(1.0)}
    vars(module)["_trackable_children"] = lambda *_, **__: elsewhere
    return module, lambda: elsewhere.update(more=tf.Variable(2.0))


@pytest.mark.parametrize(
    "made",
    [
        _module_whose_children_vary,
        _module_whose_class_gets_a_method,
        _module_with_a_method_of_its_own,
    ],
)
def test_code_of_the_user_s_own_is_asked_at_each_save(made: Any, tmp_path: Path) -> None:
    module, change = made()
    checkpoint = tfckpt.Checkpoint(module=module, v=tf.Variable(1))
    checkpoint.save(str(tmp_path / "ckpt"))
    change()
    assert stored(checkpoint.save(str(tmp_path / "ckpt")), "module/more") == 2.0
