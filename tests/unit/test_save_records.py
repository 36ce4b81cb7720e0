"""What a save records beside the values, which checkpoint is the best, and what follows a save."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document, run

import tfckpt

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


def test_too_many_levels_are_refused(managed) -> None:
    deep: dict = {}
    for _ in range(10_000):
        deep = {"a": deep}
    with pytest.raises(tfckpt.SaveError, match="more than 16 levels"):
        managed().save(metadata=deep)


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
