"""`tfckpt.CheckpointManager`: what is kept, recorded, refused, and what goes wrong."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document, run
from zoo.struck import struck

import tfckpt

LEAST = {"best": 1, "monitor": "loss", "mode": "min"}
UNREADABLE = OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def value() -> tf.Variable:
    return tf.Variable(0)


@pytest.fixture
def directory(tmp_path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def manager(value, directory):
    """``manager(2)``: a new one, of a new Checkpoint, as after a restart."""

    def build(max_to_keep: int | None = None, **more: Any) -> tfckpt.CheckpointManager:
        checkpoint = tfckpt.Checkpoint(value=value)
        return tfckpt.CheckpointManager(checkpoint, directory, max_to_keep, **more)

    return build


@pytest.fixture
def save(value):
    """``save(manager, 7)``: saves with that value."""

    def call(manager: Any, number: int, **more: Any) -> str:
        value.assign(number)
        return manager.save(**more)

    return call


def numbers(manager: Any) -> list[int]:
    return [int(path.rpartition("-")[2]) for path in manager.checkpoints]


def counter(manager: Any) -> int:
    return int(manager.checkpoint.save_counter)


def found_by_tensorflow(directory: Path) -> int:
    path = tf.train.latest_checkpoint(str(directory))
    return int(tf.train.load_checkpoint(path).get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE"))


# What is kept


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "damage", [lambda data: os.truncate(data, 3), os.remove], ids=["cut", "lost"]
)
def test_damaged_checkpoints_do_not_count(manager, directory, damage, restarted) -> None:
    first = manager(3)
    for _ in range(3):
        first.save()
    for number in (2, 3):
        damage(directory / f"ckpt-{number}.data-00000-of-00001")
    if restarted:
        first = manager(3)
    first.save()
    first.save()
    assert numbers(first) == [1, 2, 3, 4, 5]
    assert [path[-6:] for path in first.retention().kept] == ["ckpt-1", "ckpt-4", "ckpt-5"]


def test_a_number_below_an_existing_one_is_refused_and_the_same_is_saved_anew(
    manager, save, value, directory
) -> None:
    first = manager()
    assert first.save(checkpoint_number=0).endswith("ckpt-0")
    for number in (6, 7):
        save(first, number, checkpoint_number=700)
    before = sorted(directory.iterdir())
    for one, below in ((first, 600), (manager(), 699)):
        counted = counter(one)
        with pytest.raises(tfckpt.SaveError) as caught:
            save(one, 6, checkpoint_number=below)
        said = f"ckpt-700 exists and would be restored before ckpt-{below}"
        assert said in str(caught.value)
        assert "delete ckpt-700, or use another directory" in str(caught.value)
        assert (sorted(directory.iterdir()), counter(one)) == (before, counted)
    assert manager().restore_or_initialize() == first.latest_checkpoint
    assert (value.numpy(), numbers(first)) == (7, [0, 700])
    assert first.save().endswith("ckpt-701")


# The best, by metrics that are given with a save or found later


def test_what_is_written_has_no_counter_and_is_numbered_all_the_same(
    manager, save, value, directory
) -> None:
    first = manager(2, api="write")
    paths = [save(first, number) for number in (1, 2, 3)]
    assert [path[-6:] for path in paths] == ["ckpt-1", "ckpt-2", "ckpt-3"]
    kept = manager(2, api="write")
    assert kept.checkpoints == paths[1:]
    names = {name for name, _ in tf.train.list_variables(paths[-1])}
    assert not any("save_counter" in name for name in names)
    value.assign(0)
    tf.train.Checkpoint(value=value).read(paths[-1]).assert_consumed()
    assert value.numpy() == 3
    value.assign(0)
    assert kept.restore_or_initialize() == paths[-1]
    assert value.numpy() == 3
    config = {"version": 1, "manager": {"directory": str(directory), "api": "write"}}
    run = tfckpt.from_config(config, value=value)
    assert run.restore().path == paths[-1]
    assert not any("save_counter" in name for name, _ in tf.train.list_variables(run.save()))


def test_the_best_is_found_by_the_rule_after_a_restart(manager, directory) -> None:
    first = manager(keep=[{"latest": 9}, LEAST])
    assert first.best is None
    for loss in (0.5, 0.1, float("nan"), 0.3):
        first.save(metrics={"loss": loss, "accuracy": 1 - loss})
    first.save()
    assert first.best == manager(keep=[{"latest": 9}, LEAST]).best == f"{directory}/ckpt-2"

    def selected(**source) -> str:
        config = {"version": 1, "restore": {"directory": str(directory), **source}}
        return tfckpt.restore(config, value=tf.Variable(0)).path

    assert selected(select="best") == f"{directory}/ckpt-2"
    assert selected(select="best", monitor="accuracy", mode="min") == f"{directory}/ckpt-1"
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="their metrics are accuracy, loss"):
        selected(select="best", monitor="acc", mode="max")
    marked = run("list", directory).out.splitlines()
    assert [line.split()[0] for line in marked if "the best by loss" in line] == ["ckpt-2"]
    listed = document("list", directory)["checkpoints"]
    assert [each["number"] for each in listed if each["best"]] == [2]


def test_without_a_rule_nothing_is_called_the_best(manager, directory) -> None:
    first = manager()
    first.save(metrics={"loss": 0.5})
    with pytest.raises(tfckpt.TfckptError, match="by which metric"):
        _ = first.best
    assert "the best" not in run("list", directory).out
    for source, error, reason in (
        ({"select": "best"}, tfckpt.CheckpointNotFoundError, "`monitor` and `mode`"),
        ({"select": "best", "mode": "min"}, tfckpt.PolicyError, "needs `monitor`"),
        ({"monitor": "loss", "mode": "min"}, tfckpt.PolicyError, "select: best"),
    ):
        config = {"version": 1, "restore": {"directory": str(directory), **source}}
        with pytest.raises(error, match=reason):
            tfckpt.restore(config, value=tf.Variable(0))


# What is recorded and told


def test_what_is_given_is_recorded_and_shown(manager, directory) -> None:
    numbers = {"rate": np.float32(0.5), "count": np.int64(3), "sizes": (1, 2)}
    given = {"commit": "1c9f2e", **numbers, "deep": {"none": None, "yes": True}}
    metrics = {"loss": tf.constant(0.25), "accuracy": np.float32(0.5)}
    manager().save(step=tf.Variable(7), epoch=np.array(2), metrics=metrics, metadata=given)
    plain = {**given, "rate": 0.5, "count": 3, "sizes": [1, 2]}
    found = document("inspect", directory)
    assert found["metadata"] == document("list", directory)["checkpoints"][0]["metadata"] == plain
    assert (found["step"], found["epoch"]) == (7, 2)
    assert found["metrics"] == {"loss": 0.25, "accuracy": 0.5}
    shown = run("inspect", directory).out
    assert "\n  commit: 1c9f2e\n" in shown
    assert '\n  deep: {"none": null, "yes": true}\n' in shown


REFUSED: list[tuple[str, Any, str]] = [
    ("metadata", {"a": object()}, r"metadata\['a'\] must be"),
    ("metadata", {"a": {"b": [float("nan")]}}, r"metadata\['a'\]\['b'\]\[0\] must be"),
    ("metadata", {"a": 1 << 64}, r"metadata\['a'\] must be"),
    ("metadata", {1: 2}, "a key of metadata must be a string"),
    ("metadata", {"a": "x" * 70_000}, "70,009 bytes, but at most 65,536 are allowed"),
    ("metadata", {"a": "\ud800"}, "not valid Unicode"),
    ("metadata", ["a"], "metadata must be a dict"),
    *(("checkpoint_number", no, "checkpoint_number") for no in (-3, 1.5, "7", True, 10**18)),
    *(("epoch", no, "epoch") for no in (-1, 1.5, "3", True, 2**63)),
    *(("metrics", {"loss": no}, "metric") for no in ("0.5", None, 10**400, [0.5, 0.25])),
    ("metrics", {3: 0.5}, "must be a string"),
]


@pytest.mark.parametrize(("name", "given", "message"), REFUSED)
def test_what_a_record_cannot_hold_is_refused_before_anything_is_written(
    manager, directory, name, given, message
) -> None:
    first = manager()
    with pytest.raises(tfckpt.SaveError, match=message):
        first.save(**{name: given})
    assert not directory.exists()
    assert counter(first) == 0


@pytest.mark.parametrize("enable_async", [False, True])
def test_a_function_is_called_after_each_save_and_fails_none(
    manager, directory, enable_async, caplog
) -> None:
    reports = []

    def saved(report: tfckpt.SaveReport) -> None:
        assert tf.train.latest_checkpoint(directory) == report.path
        reports.append((report, threading.current_thread() is threading.main_thread()))
        raise RuntimeError("no room in the copy")

    first = manager(on_saved=saved, enable_async=enable_async)
    path = first.save(step=3, metrics={"loss": 0.5}, metadata={"a": 1})
    first.sync()
    ((report, by_the_caller),) = reports
    assert by_the_caller is not enable_async
    assert (report.path, report.number, report.step, report.epoch) == (path, 1, 3, None)
    assert (report.metrics, report.metadata) == ({"loss": 0.5}, {"a": 1})
    assert report.nbytes == sum(file.stat().st_size for file in directory.glob("ckpt-1.*"))
    assert report.seconds > 0
    assert first.checkpoints == [path]
    (warning,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.getMessage() == f"{path} is saved, but on_saved failed"
    assert "no room in the copy" in str(warning.exc_info)


@pytest.mark.parametrize(
    ("error", "name", "values"),
    [
        (ValueError, "max_to_keep", [0, -1]),
        (ValueError, "checkpoint_interval", [3]),
        (ValueError, "keep_checkpoint_every_n_hours", [-1, float("nan")]),
        (ValueError, "checkpoint_name", ["", "a/b", "a\0b"]),
        (TypeError, "max_to_keep", [1.5, "3", True]),
        (TypeError, "keep_checkpoint_every_n_hours", ["2"]),
        (TypeError, "checkpoint_name", [None]),
    ],
)
def test_what_the_constructor_refuses(manager, tmp_path, error, name, values) -> None:
    for value in values:
        with pytest.raises(error):
            manager(**{name: value})
    with pytest.raises(TypeError, match=r"tfckpt\.Checkpoint"):
        tfckpt.CheckpointManager(tf.train.Checkpoint(), str(tmp_path), 1)


# What fails


@pytest.mark.parametrize("call", ["write_atomic", "remove"])
def test_a_committed_save_succeeds_although_the_tidying_fails(manager, save, value, call) -> None:
    first = manager(max_to_keep=1)
    save(first, 1)
    with struck(
        call, UNREADABLE, lambda path, *_: call == "remove" or path.endswith("/checkpoint")
    ):
        assert save(first, 2).endswith("ckpt-2")
    value.assign(0)
    assert manager().restore_or_initialize().endswith("ckpt-2")
    assert value.numpy() == 2
    save(first, 3)
    assert numbers(first) == [3]


def test_where_no_thread_can_be_had_the_save_is_made_at_once(manager) -> None:
    one = manager(enable_async=True)
    with struck("start", RuntimeError("can't start new thread"), owner=threading.Thread):
        path = one.save()
        assert one.checkpoints == [path]


def state_fails(code: int = errno.EIO) -> Any:
    """The state file cannot be written."""
    error = OSError(code, os.strerror(code))
    return struck("write_atomic", error, lambda path, _: path.endswith("/checkpoint"))


@pytest.mark.parametrize(("code", "in_background"), [(errno.EACCES, False), (errno.EIO, True)])
def test_what_the_state_file_names_stays_until_it_is_written_again(
    manager, save, directory, code, in_background, caplog
) -> None:
    one = manager(1, enable_async=in_background)
    for step, named, there in ((1, 1, [1]), (2, 1, [1, 2]), (3, 1, [1, 3])):
        with state_fails(code) if step > 1 else contextlib.nullcontext():
            save(one, step)
            one._checkpoint.sync()  # the manager's own would try again
        assert (found_by_tensorflow(directory), numbers(one)) == (named, there)
    assert "could not write the state file" in caplog.text
    assert "ckpt-1: not deleted; the next save tries again" in caplog.text
    one.sync()
    assert (found_by_tensorflow(directory), numbers(one)) == (3, [3])
    state = directory / "checkpoint"
    written = state.read_bytes()
    state.write_bytes(written[:9])
    with state_fails(code):
        save(one, 4)
        one._checkpoint.sync()
    assert numbers(one) == [3, 4]  # nobody can tell what it names
    state.write_bytes(written)
    assert found_by_tensorflow(directory) == 3


@pytest.mark.parametrize("keep", [None, 1])
def test_on_a_full_disk_the_state_file_is_written_in_its_place(
    manager, save, value, directory, keep, caplog
) -> None:
    one, state = manager(keep), directory / "checkpoint"
    save(one, 1)
    size, node = state.stat().st_size, state.stat().st_ino
    with state_fails(errno.ENOSPC):
        for step in (2, 3):
            save(one, step)
            assert found_by_tensorflow(directory) == step
        assert (state.stat().st_size, state.stat().st_ino) == (size, node)
        assert numbers(one) == ([3] if keep else [1, 2, 3])
        other = tfckpt.Checkpoint(value=value).save(str(directory / "other"))
        assert tf.train.latest_checkpoint(str(directory)) == other
    assert "state file" not in caplog.text


def test_a_change_of_the_working_directory_takes_no_checkpoint_elsewhere(
    value, directory, tmp_path, monkeypatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    one = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), "run", 2)
    assert one.save() == "run/ckpt-1"
    monkeypatch.chdir(tmp_path / "elsewhere")
    one.save()
    assert {path.stem for path in directory.glob("*.index")} == {"ckpt-1", "ckpt-2"}
    assert not list((tmp_path / "elsewhere").iterdir())
