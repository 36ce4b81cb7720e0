"""`tfckpt list`, `prune` and `verify`."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
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


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tensorflow as tf

    directory = tmp_path_factory.mktemp("sound")
    checkpoint = tfckpt.Checkpoint(a=tf.Variable(tf.range(90.0)), b=tf.Variable(tf.ones(40)))
    manager = tfckpt.CheckpointManager(checkpoint, directory, None)
    for _ in range(3):
        manager.save()
    return directory


@pytest.fixture
def damaged_runs(sound: Path, tmp_path: Path) -> Path:
    """Three checkpoints; in the second one `a` is damaged, the third one's data is cut off."""
    shutil.copytree(sound, tmp_path / "runs")
    second = tmp_path / "runs" / "ckpt-2.data-00000-of-00001"
    content = second.read_bytes()
    at = content.index(b"\0\0\x80\x3f\0\0\0\x40")  # 1.0, 2.0
    second.write_bytes(content[:at] + b"\1" + content[at + 1 :])
    third = tmp_path / "runs" / "ckpt-3.data-00000-of-00001"
    third.write_bytes(third.read_bytes()[:100])
    return tmp_path / "runs"


def test_quarantine_moves_what_is_damaged_and_nothing_else(damaged_runs: Path) -> None:
    before = {file.name: file.read_bytes() for file in damaged_runs.iterdir()}
    found = document("verify", damaged_runs, "--quarantine", status=1)
    moved = [one["quarantine"] for one in found["checkpoints"]]
    assert moved == [
        f"{damaged_runs}/quarantine/ckpt-3",
        f"{damaged_runs}/quarantine/ckpt-2",
        None,
    ]
    after = {file.name: file.read_bytes() for file in damaged_runs.rglob("*") if file.is_file()}
    for changed in ("checkpoint", ".tfckpt.lock"):
        after.pop(changed)
        before.pop(changed, None)
    assert after == before
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(str(damaged_runs))
    assert tf.train.latest_checkpoint(str(damaged_runs)) == f"{damaged_runs}/ckpt-1"
    assert state.all_model_checkpoint_paths == [f"{damaged_runs}/ckpt-1"]
    assert sorted(file.name for file in damaged_runs.glob("ckpt-*")) == [
        "ckpt-1.data-00000-of-00001",
        "ckpt-1.index",
        "ckpt-1.tfckpt.json",
    ]
    assert run("verify", damaged_runs).status == 0
    assert run("inspect", damaged_runs).status == 0


def test_a_second_quarantine_overwrites_nothing(damaged_runs: Path) -> None:
    files = {file: file.read_bytes() for file in damaged_runs.glob("ckpt-2.*")}
    run("verify", damaged_runs / "ckpt-2", "--quarantine")
    for file, content in files.items():
        file.write_bytes(content)
    found = document("verify", damaged_runs / "ckpt-2", "--quarantine", status=1)
    assert found["checkpoints"][0]["quarantine"] == f"{damaged_runs}/quarantine/ckpt-2~2"
    assert len(list((damaged_runs / "quarantine" / "ckpt-2").iterdir())) == 3


def test_nothing_is_moved_while_somebody_saves(
    damaged_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfckpt.stored.commits import writer_lock

    def taken(_: object) -> bool:
        raise tfckpt.InUseError("another process saves into this directory")

    monkeypatch.setattr(writer_lock.WriterLock, "acquire", taken)
    ended = run("verify", damaged_runs, "--quarantine")
    assert ended.status == 1
    assert "another process" in ended.err
    assert not (damaged_runs / "quarantine").exists()


def test_data_alone_is_torn(damaged_runs: Path) -> None:
    (damaged_runs / "ckpt-1.index").unlink()
    (damaged_runs / "ckpt-1.tfckpt.json").unlink()
    *_, first = document("verify", damaged_runs, status=1)["checkpoints"]
    assert "the index is missing" in first["faults"][0]["message"]


def test_a_lost_record_index_or_shard_is_damage(damaged_runs: Path) -> None:
    (damaged_runs / "ckpt-1.data-00000-of-00001").unlink()
    found = document("verify", damaged_runs / "ckpt-1", status=1)["checkpoints"][0]
    assert {fault["file"] for fault in found["faults"]} == {
        f"{damaged_runs}/ckpt-1.data-00000-of-00001"
    }
    (damaged_runs / "ckpt-2.tfckpt.json").write_bytes(b"{}")
    found = document("verify", damaged_runs / "ckpt-2", status=1)["checkpoints"][0]
    assert f"{damaged_runs}/ckpt-2.tfckpt.json" in {fault["file"] for fault in found["faults"]}


def test_what_nobody_can_read_does_not_keep_the_others_from_being_checked(
    damaged_runs: Path,
) -> None:
    record = damaged_runs / "ckpt-1.tfckpt.json"
    body = record.read_bytes().rpartition(b',\n"sha256"')[0].replace(b'"format": 1', b'"format": 2')
    seal = hashlib.sha256(body).hexdigest()
    record.write_bytes(body + f',\n"sha256": "{seal}"\n}}\n'.encode())
    found = document("verify", damaged_runs, "--quarantine", status=1)["checkpoints"]
    assert [one["quarantine"] is not None for one in found] == [True, True, False]
    assert "newer tfckpt" in found[2]["faults"][0]["message"]
    (listed,) = document("list", damaged_runs, status=1)["checkpoints"]
    assert (listed["state"], listed["number"]) == ("committed", 1)
    assert "newer tfckpt" in listed["problem"]


def test_names_that_would_move_the_cursor_are_harmless(tmp_path: Path) -> None:
    import tensorflow as tf

    directory = tmp_path / "runs\x1b[2J"
    values = {"a\x1b[31m": tf.Variable(tf.range(9.0)), "b\u202e": tf.Variable(1)}
    path = tf.train.Checkpoint(**values).save(f"{directory}/ck\x1bpt")
    values["a\x1b[31m"].assign(tf.zeros(9))
    tf.train.Checkpoint(**values).save(f"{directory}/ck\x1bpt")
    for command in (
        ["list", directory],
        ["verify", directory],
        ["inspect", path, "--values"],
        ["inspect", path, "--keys"],
        ["inspect", path, "--name", "**"],
        ["diff", path, directory, "--values"],
        ["prune", directory, "--keep", "latest=1"],
        ["list", f"{directory}/absent\x1b"],
    ):
        ended = run(*command)
        assert ended.out + ended.err, command
        for text in (ended.out, ended.err):
            assert not {"\x1b", "\u202e"} & {*text}, command
