"""Metrics that are found later are seen by whatever looks at the record, which stays one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

KEEP = [{"best": 1, "monitor": "score", "mode": "max"}, {"latest": 1}]


def managed(directory: Path) -> tfckpt.CheckpointManager:
    checkpoint = tfckpt.Checkpoint(step=tf.Variable(3))
    return tfckpt.CheckpointManager(checkpoint, directory, None, keep=KEEP)


def record_of(path: str) -> dict[str, Any]:
    return json.loads(Path(f"{path}.tfckpt.json").read_text())


def test_a_running_manager_keeps_what_was_found_to_be_the_best(tmp_path) -> None:
    manager = managed(tmp_path)
    first, second, third = (manager.save(metrics={"score": score}) for score in (0.5, 0.2, 0.1))
    assert manager.checkpoints == [first, third]
    tfckpt.annotate(third, metrics={"score": 0.7})
    assert manager.best == third
    fourth = manager.save(metrics={"score": 0.3})
    assert manager.checkpoints == [third, fourth]
    assert second not in manager.checkpoints


def test_select_best_and_a_new_process_see_it(tmp_path) -> None:
    manager = managed(tmp_path)
    paths = [manager.save(), manager.save()]
    assert manager.best is None
    tfckpt.annotate(paths[0], metrics={"score": 0.5, "loss": 2})
    assert managed(tmp_path).best == paths[0]
    step = tf.Variable(0)
    report = tfckpt.restore(str(tmp_path), step=step, select="best")
    assert (report.path, report.metrics) == (paths[0], {"score": 0.5, "loss": 2.0})


def test_all_else_of_the_record_is_as_it_was(tmp_path) -> None:
    path = managed(tmp_path).save(metrics={"score": 0.5, "old": 1.0}, metadata={"note": "ä"})
    before = record_of(path)
    tfckpt.annotate(path, metrics={"score": float("nan"), "new": 3})
    after = record_of(path)
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {"metrics", "sha256"}
    assert (after["metrics"]["old"], after["metrics"]["new"]) == (1.0, 3.0)
    assert tfckpt.verify(path)[0].ok
    assert not [*tmp_path.glob("*.tmp"), *tmp_path.glob("*.mark"), *tmp_path.glob("*.draft")]


def plain(directory: Path) -> str:
    return tf.train.Checkpoint(step=tf.Variable(3)).write(str(directory / "plain"))


@pytest.mark.parametrize(
    ("at", "metrics", "error", "reason"),
    [
        (lambda path: managed(path).save(), {"score": "high"}, tfckpt.SaveError, "a number"),
        (lambda path: managed(path).save(), {3: 1.0}, tfckpt.SaveError, "must be a string"),
        (lambda path: path / "none", {"a": 1}, tfckpt.CheckpointNotFoundError, "no checkpoint"),
        (lambda path: path, {"a": 1}, tfckpt.CheckpointNotFoundError, "is a directory"),
        (plain, {"a": 1}, tfckpt.UnsupportedCheckpointError, "another program wrote it"),
    ],
)
def test_what_has_no_metrics_is_refused(
    at: Callable[[Path], Any], metrics: Any, error: Any, reason: str, tmp_path
) -> None:
    with pytest.raises(error, match=reason):
        tfckpt.annotate(at(tmp_path), metrics=metrics)


def test_a_damaged_record_stays_as_it_is(tmp_path) -> None:
    path = managed(tmp_path).save()
    file = Path(f"{path}.tfckpt.json")
    file.write_bytes(data := file.read_bytes().replace(b'"number": 1', b'"number": 2'))
    with pytest.raises(tfckpt.DamagedCheckpointError, match="checksum"):
        tfckpt.annotate(path, metrics={"a": 1})
    assert file.read_bytes() == data
