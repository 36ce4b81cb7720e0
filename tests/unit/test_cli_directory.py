"""`tfckpt list` and `prune`: the checkpoints of a directory."""

from __future__ import annotations

import errno
import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest
from zoo.command_line import document, run

import tfckpt
from tfckpt.stored.commits import commit
from tfckpt.stored.io.files import LOCAL, LocalFiles, LocalHandle

if TYPE_CHECKING:
    from pathlib import Path

LOSSES = (0.5, 0.1, 0.4, 0.3)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tensorflow as tf

    directory = tmp_path_factory.mktemp("saved")
    checkpoint = tfckpt.Checkpoint(a=tf.Variable(tf.range(9.0)))
    manager = tfckpt.CheckpointManager(checkpoint, directory, None)
    for number, loss in enumerate(LOSSES, 1):
        manager.save(step=100 * number, epoch=number, metrics={"loss": loss})
    return directory


@pytest.fixture
def runs(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of plain TensorFlow's, of a root object, whose names only a live side knows."""
    import tensorflow as tf

    directory = tmp_path_factory.mktemp("foreign")
    root = tf.Module()
    root.w = tf.Variable(tf.range(5.0))
    checkpoint = tf.train.Checkpoint(root, global_step=tf.Variable(7, dtype=tf.int64))
    manager = tf.train.CheckpointManager(checkpoint, str(directory), None)
    manager.save()
    root.w.assign([1.0, 2.0, float("nan"), 4.0, 5.0])
    manager.save()
    return directory


def names(directory: Path) -> set[str]:
    return {file.name.removesuffix(".index") for file in directory.glob("*.index")}


# --- list


def test_each_checkpoint_with_what_its_record_says(runs: Path) -> None:
    ended = run("list", runs)
    assert ended.status == 0
    rows = [line.split() for line in ended.out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["ckpt-4", "ckpt-3", "ckpt-2", "ckpt-1"]
    assert [row[1] for row in rows] == ["400", "300", "200", "100"]
    assert [row[-2:] for row in rows] == [["committed", f"{x}"] for x in LOSSES[::-1]]
    assert max(map(len, ended.out.splitlines())) <= 80


def test_each_metric_that_has_room_has_a_column(tmp_path: Path) -> None:
    import tensorflow as tf

    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(x=tf.Variable(1.0)), tmp_path, 5)
    manager.save(metrics={"loss": 0.25, "accuracy_of_head_two": 0.5, "recall": 0.75})
    title, row, *more = run("list", tmp_path).out.splitlines()
    assert title.split()[5:] == ["loss", "recall", "notes"]
    assert row.split()[-3:-1] == ["0.25", "0.75"]
    assert " ".join([row, *more]).split()[-2:] == ["accuracy_of_head_two", "0.5"]


def test_sizes_are_those_of_the_files(runs: Path) -> None:
    found = document("list", runs)["checkpoints"]
    for one in found:
        files = runs.glob(os.path.basename(one["path"]) + ".*")  # noqa: PTH119
        assert one["nbytes"] == sum(file.stat().st_size for file in files)
        assert (one["kept"], one["delete"], one["problem"]) == (None, None, None)


def test_ages_of_what_has_no_record_are_those_of_the_files(runs: Path) -> None:
    (runs / "ckpt-1.tfckpt.json").unlink()
    for file in runs.glob("ckpt-1.*"):
        os.utime(file, (0, time.time() - 7300))
    *_, row = run("list", runs).out.splitlines()
    assert "2 h" in row
    assert "uncommitted" in row


def test_rules_say_what_stays_and_why(runs: Path) -> None:
    rules = ("--keep", "latest=1", "--keep", "best=1,monitor=loss,mode=min", "--keep", "pin=1,9")
    found = document("list", runs, *rules)["checkpoints"]
    assert [one["delete"] for one in found] == [False, True, False, False]
    fourth, third, second, first = (one["kept"] for one in found)
    assert "latest 1" in fourth
    assert third == []
    assert second == ["best 1 by loss (0.1)"]
    assert first == ["pinned"]
    out = run("list", runs, *rules).out
    assert "no rule keeps it: would be" in out
    assert " 0.1 best 1 by loss (0.1) " in " ".join(out.split())


def test_what_is_damaged_torn_or_foreign_is_told_apart(runs: Path, foreign: Path) -> None:
    (runs / "ckpt-4.index").write_bytes(b"\0" * 90)
    (runs / "ckpt-3.index").unlink()
    (runs / "ckpt-2.tfckpt.json").unlink()
    (runs / "ckpt-9.data-00000-of-00001").touch()
    for file in foreign.glob("ckpt-1.*"):
        shutil.copy(file, runs / file.name.replace("ckpt-1", "other"))
    listed = document("list", runs, status=1)["checkpoints"]
    found = {one["path"].rpartition("/")[2]: one for one in listed}
    assert {name: one["state"] for name, one in found.items()} == {
        "ckpt-9": "torn",
        "ckpt-4": "damaged",
        "ckpt-3": "damaged",
        "ckpt-2": "uncommitted",
        "ckpt-1": "committed",
        "other": "foreign",
    }
    assert found["other"]["number"] is None
    assert "index" in found["ckpt-4"]["problem"]
    assert run("list", runs).status == 1


def test_what_is_written_without_a_number_is_committed_and_never_pruned(runs: Path) -> None:
    import tensorflow as tf

    tfckpt.Checkpoint(a=tf.Variable(1)).write(runs / "best")
    listed = document("list", runs)["checkpoints"]
    [best] = [one for one in listed if one["number"] is None]
    assert (best["path"], best["state"]) == (f"{runs}/best", "committed")
    assert run("prune", runs, "--keep", "latest=1", "--yes").status == 0
    assert {file.stem.partition(".")[0] for file in runs.glob("*.index")} == {"best", "ckpt-4"}


@pytest.mark.parametrize("command", ["list", "verify"])
def test_what_a_training_deletes_meanwhile_is_no_damage(
    runs: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    genuine = LocalFiles.open_read

    def open_read(self: LocalFiles, path: str) -> LocalHandle:
        monkeypatch.setattr(LocalFiles, "open_read", genuine)
        commit.delete(f"{runs}/ckpt-1", LOCAL)
        return genuine(self, path)

    monkeypatch.setattr(LocalFiles, "open_read", open_read)
    ended = run(command, runs)
    assert (ended.status, "ckpt-1" in ended.out) == (0, False), ended
    assert names(runs) == {"ckpt-2", "ckpt-3", "ckpt-4"}


def test_an_empty_directory_is_no_list(tmp_path: Path) -> None:
    ended = run("list", tmp_path)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == f"tfckpt: no checkpoint in {tmp_path}\n  {tmp_path} is empty\n"
    ended = run("list", tmp_path / "absent")
    assert ended.status == 1
    assert f"{tmp_path}/absent does not exist" in ended.err


# --- prune


def test_prune_deletes_nothing_without_yes(runs: Path) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in runs.iterdir()}
    ended = run("prune", runs, "--keep", "latest=2")
    assert ended.status == 0
    assert ended.out.splitlines()[-1].startswith("2 checkpoints (")
    assert "would be deleted; use --yes to delete" in ended.out
    assert {file.name: file.stat().st_mtime_ns for file in runs.iterdir()} == before
    found = document("prune", runs, "--keep", "latest=2")
    assert found["done"] is False
    assert found["delete"] == [f"{runs}/ckpt-1", f"{runs}/ckpt-2"]


def test_prune_deletes_what_no_rule_keeps(runs: Path) -> None:
    import tensorflow as tf

    found = document(
        "prune", runs, "--keep", "latest=1", "--keep", "best=1,monitor=loss,mode=min", "--yes"
    )
    assert (found["done"], found["failed"]) == (True, {})
    assert names(runs) == {"ckpt-2", "ckpt-4"}
    assert tf.train.latest_checkpoint(str(runs)) == f"{runs}/ckpt-4"
    assert not [file for file in runs.iterdir() if "ckpt-1" in file.name or "ckpt-3" in file.name]


def test_prune_makes_room_on_a_full_disk(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    def full(self: LocalFiles, path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(LocalFiles, "write_atomic", full)
    assert run("prune", runs, "--keep", "latest=2", "--yes").status == 0
    assert names(runs) == {"ckpt-3", "ckpt-4"}
    state = tf.train.get_checkpoint_state(runs)
    assert {os.path.split(one)[1] for one in state.all_model_checkpoint_paths} == names(runs)
    assert tf.train.latest_checkpoint(runs) == f"{runs}/ckpt-4"


def test_prune_keeps_one_that_can_be_read(runs: Path) -> None:
    data = runs / "ckpt-4.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[4] ^= 1
    data.write_bytes(content)
    ended = run("prune", runs, "--keep", "latest=1", "--yes")
    assert ended.status == 0
    assert {path.stem for path in runs.glob("*.index")} == {"ckpt-3", "ckpt-4"}
    assert run("verify", runs / "ckpt-3").status == 0
    (row,) = (line for line in ended.out.splitlines() if line.startswith("ckpt-4"))
    assert "damaged" in row


def test_prune_takes_the_rules_of_a_config(runs: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("version: 1\nmanager: {directory: x, keep: [{latest: 3}]}\n")
    assert run("prune", runs, "--config", config, "--yes").status == 0
    assert names(runs) == {"ckpt-2", "ckpt-3", "ckpt-4"}


def test_what_is_damaged_is_neither_deleted_nor_counted(runs: Path) -> None:
    (runs / "ckpt-4.data-00000-of-00001").write_bytes(b"")
    assert run("prune", runs, "--keep", "latest=1", "--yes").status == 0
    assert names(runs) == {"ckpt-3", "ckpt-4"}


def test_what_others_wrote_is_never_pruned(runs: Path, foreign: Path) -> None:
    ended = run("prune", foreign, "--keep", "latest=1", "--yes")
    assert ended.status == 1
    assert "retention rules never delete what other software wrote" in ended.err
    (runs / "ckpt-1.tfckpt.json").unlink()
    run("prune", runs, "--keep", "latest=1", "--yes")
    assert names(runs) == {"ckpt-1", "ckpt-4"}


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (
            "best=1,monitor=los,mode=min",
            "no checkpoint has the metric 'los' yet; the checkpoints have loss; "
            "did you mean 'loss'?",
        ),
        (
            "best=1,monitor=nope,mode=max",
            "no checkpoint has the metric 'nope' yet; the checkpoints have loss",
        ),
        ("pin=3,9", "has no checkpoint 9 to pin; it has 1, 2, 3, 4"),
    ],
)
def test_a_rule_that_goes_by_what_is_not_there_prunes_nothing(
    runs: Path, rule: str, says: str
) -> None:
    for more in ((), ("--yes",)):
        ended = run("prune", runs, "--keep", "latest=1", "--keep", rule, *more)
        assert (ended.status, ended.out) == (2, "")
        assert f"{runs}" in ended.err
        assert says in ended.err
    assert len(names(runs)) == 4


def test_rules_that_go_by_what_no_save_had_prune_nothing(tmp_path: Path) -> None:
    import tensorflow as tf

    directory = tmp_path / "unmeasured"
    checkpoint = tfckpt.Checkpoint(a=tf.Variable(1.0))
    manager = tfckpt.CheckpointManager(checkpoint, directory, None)
    for _ in range(3):
        manager.save(metrics={"loss": float("nan")})
    ended = run("prune", directory, "--keep", "best=1,monitor=loss,mode=min", "--yes")
    assert ended.status == 2
    assert "the metric 'loss' is NaN in every checkpoint so far" in ended.err
    ended = run("prune", directory, "--keep", "every_n_steps=100", "--yes")
    assert ended.status == 2
    assert "no checkpoint has a step, which `every_n_steps` requires" in ended.err
    assert len(names(directory)) == 3


def test_a_config_may_pin_what_is_yet_to_come(runs: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("version: 1\nmanager: {directory: x, keep: [{latest: 1}, {pin: [2, 40]}]}\n")
    assert run("prune", runs, "--config", config, "--yes").status == 0
    assert names(runs) == {"ckpt-2", "ckpt-4"}
    config.write_text(
        "version: 1\nmanager:\n  directory: x\n"
        "  keep: [{best: 1, monitor: los, mode: min}, {latest: 1}]\n"
    )
    assert run("prune", runs, "--config", config, "--yes").status == 2
    out = " ".join(run("list", runs, "--config", config).out.split())
    assert "no checkpoint has the metric 'los' yet" in out


def test_prune_judges_each_run_by_itself(runs: Path) -> None:
    import tensorflow as tf

    fresh = tfckpt.CheckpointManager(tfckpt.Checkpoint(a=tf.Variable(1.0)), runs, None)
    fresh.save(step=10)
    fresh.save(step=20)
    found = document("prune", runs, "--keep", "latest=1")
    assert found["delete"] == [f"{runs}/ckpt-{number}" for number in (1, 2, 3, 5)]
    assert list(found["kept"]) == [f"{runs}/ckpt-4", f"{runs}/ckpt-6"]


def test_prune_waits_for_nobody(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tfckpt.manager.directory import Directory

    def taken(_: object) -> None:
        raise tfckpt.InUseError("another process saves into this directory")

    monkeypatch.setattr(Directory, "claim", taken)
    ended = run("prune", runs, "--keep", "latest=1", "--yes")
    assert ended.status == 1
    assert "another process" in ended.err
    assert len(names(runs)) == 4


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([], "one of the arguments --keep --config is required"),
        (["--keep", "latst=1"], "latst"),
        (["--keep", "latest"], "is not a valid rule; use e.g. best=2,monitor=loss,mode=min"),
        (["--keep", "latest=0"], "latest"),
        (["--keep", "best=1"], "monitor"),
        (["--keep", "latest=1", "--config", "c.yaml"], "not allowed with argument --keep"),
        (
            ["--keep", "latest=1", "--checkpoint_name", "model"],
            "has no checkpoints named model; it has ckpt",
        ),
    ],
)
def test_rules_that_are_none_are_misuse(rules: list[str], says: str, runs: Path) -> None:
    ended = run("prune", runs, *rules, "--yes")
    assert ended.status == 2
    assert says in ended.err
    assert len(names(runs)) == 4


def test_of_several_names_one_must_be_said(runs: Path) -> None:
    import tensorflow as tf

    other = tfckpt.Checkpoint(a=tf.Variable(1.0))
    tfckpt.CheckpointManager(other, runs, None, checkpoint_name="other").save()
    assert run("prune", runs, "--keep", "latest=1", "--yes").status == 2
    flags = ("--keep", "latest=1", "--checkpoint_name", "ckpt", "--yes")
    assert run("prune", runs, *flags).status == 0
    assert names(runs) == {"ckpt-4", "other-1"}


def test_what_others_wrote_is_restored_and_stays(foreign: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    directory = tmp_path / "foreign"
    shutil.copytree(foreign, directory)
    for saver in (tf.train.Checkpoint, tfckpt.Checkpoint):
        root = tf.Module()
        root.w = tf.Variable(tf.zeros(5))
        checkpoint = saver(root, global_step=tf.Variable(0, dtype=tf.int64))
        checkpoint.restore(f"{directory}/ckpt-1").assert_consumed()
        assert root.w.numpy().tolist() == [0, 1, 2, 3, 4]
    tfckpt.CheckpointManager(checkpoint, directory, 1).save()
    assert names(directory) == {"ckpt-1", "ckpt-2", "ckpt-3"}
