"""`tfckpt verify`: what is printed, and what --quarantine moves."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

import pytest
from zoo.command_line import document, run

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path


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
def runs(sound: Path, tmp_path: Path) -> Path:
    """Three checkpoints; in the second one `a` is damaged, the third one's data is cut off."""
    shutil.copytree(sound, tmp_path / "runs")
    second = tmp_path / "runs" / "ckpt-2.data-00000-of-00001"
    content = second.read_bytes()
    at = content.index(b"\0\0\x80\x3f\0\0\0\x40")  # 1.0, 2.0
    second.write_bytes(content[:at] + b"\1" + content[at + 1 :])
    third = tmp_path / "runs" / "ckpt-3.data-00000-of-00001"
    third.write_bytes(third.read_bytes()[:100])
    return tmp_path / "runs"


def test_each_checkpoint_is_a_line_and_each_fault_names_its_value(runs: Path) -> None:
    ended = run("verify", runs)
    assert ended.status == 1
    third, *_ = ended.out.splitlines()
    assert third.split()[0] == "damaged"
    second = ended.out[ended.out.index("ckpt-2\n") :].splitlines()
    assert second[1].strip() == "a"
    assert "ckpt-2.data-00000-of-00001" in second[2]
    assert second[-1].split()[0] == "ok"
    assert ended.err == ""


def test_the_document_names_file_and_value(runs: Path) -> None:
    found = document("verify", runs, status=1)
    third, second, first = found["checkpoints"]
    assert (found["ok"], first["ok"]) == (False, True)
    assert [fault["name"] for fault in second["faults"]] == ["a"]
    assert {fault["name"] for fault in third["faults"]} >= {"a", "b"}
    assert document("verify", runs / "ckpt-1")["ok"] is True


def test_quarantine_moves_what_is_damaged_and_nothing_else(runs: Path) -> None:
    before = {file.name: file.read_bytes() for file in runs.iterdir()}
    found = document("verify", runs, "--quarantine", status=1)
    moved = [one["quarantine"] for one in found["checkpoints"]]
    assert moved == [f"{runs}/quarantine/ckpt-3", f"{runs}/quarantine/ckpt-2", None]
    after = {file.name: file.read_bytes() for file in runs.rglob("*") if file.is_file()}
    for changed in ("checkpoint", ".tfckpt.lock"):
        after.pop(changed)
        before.pop(changed, None)
    assert after == before
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(str(runs))
    assert tf.train.latest_checkpoint(str(runs)) == f"{runs}/ckpt-1"
    assert state.all_model_checkpoint_paths == [f"{runs}/ckpt-1"]
    assert sorted(file.name for file in runs.glob("ckpt-*")) == [
        "ckpt-1.data-00000-of-00001",
        "ckpt-1.index",
        "ckpt-1.tfckpt.json",
    ]
    assert run("verify", runs).status == 0
    assert run("inspect", runs).status == 0


def test_a_damaged_state_file_does_not_matter(runs: Path) -> None:
    (runs / "checkpoint").write_bytes(b"model_checkpoint_path: ")
    found = document("verify", runs, "--quarantine", status=1)
    moved = [one["quarantine"] for one in found["checkpoints"]]
    assert moved == [f"{runs}/quarantine/ckpt-3", f"{runs}/quarantine/ckpt-2", None]


def test_a_second_quarantine_overwrites_nothing(runs: Path) -> None:
    files = {file: file.read_bytes() for file in runs.glob("ckpt-2.*")}
    run("verify", runs / "ckpt-2", "--quarantine")
    for file, content in files.items():
        file.write_bytes(content)
    found = document("verify", runs / "ckpt-2", "--quarantine", status=1)
    assert found["checkpoints"][0]["quarantine"] == f"{runs}/quarantine/ckpt-2~2"
    assert len(list((runs / "quarantine" / "ckpt-2").iterdir())) == 3


def test_nothing_is_moved_while_somebody_saves(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tfckpt.stored.commits import writer_lock

    def taken(_: object) -> bool:
        raise tfckpt.InUseError("another process saves into this directory")

    monkeypatch.setattr(writer_lock.WriterLock, "acquire", taken)
    ended = run("verify", runs, "--quarantine")
    assert ended.status == 1
    assert "another process" in ended.err
    assert not (runs / "quarantine").exists()


def test_data_alone_is_torn(runs: Path) -> None:
    (runs / "ckpt-1.index").unlink()
    (runs / "ckpt-1.tfckpt.json").unlink()
    *_, first = document("verify", runs, status=1)["checkpoints"]
    assert "the index is missing" in first["faults"][0]["message"]


def test_a_lost_record_index_or_shard_is_damage(runs: Path) -> None:
    (runs / "ckpt-1.data-00000-of-00001").unlink()
    found = document("verify", runs / "ckpt-1", status=1)["checkpoints"][0]
    assert {fault["file"] for fault in found["faults"]} == {f"{runs}/ckpt-1.data-00000-of-00001"}
    (runs / "ckpt-2.tfckpt.json").write_bytes(b"{}")
    found = document("verify", runs / "ckpt-2", status=1)["checkpoints"][0]
    assert f"{runs}/ckpt-2.tfckpt.json" in {fault["file"] for fault in found["faults"]}


def test_what_nobody_can_read_does_not_keep_the_others_from_being_checked(runs: Path) -> None:
    record = runs / "ckpt-1.tfckpt.json"
    body = record.read_bytes().rpartition(b',\n"sha256"')[0].replace(b'"format": 1', b'"format": 2')
    seal = hashlib.sha256(body).hexdigest()
    record.write_bytes(body + f',\n"sha256": "{seal}"\n}}\n'.encode())
    found = document("verify", runs, "--quarantine", status=1)["checkpoints"]
    assert [one["quarantine"] is not None for one in found] == [True, True, False]
    assert "newer tfckpt" in found[2]["faults"][0]["message"]
    (listed,) = document("list", runs, status=1)["checkpoints"]
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


def test_a_message_and_its_hint_are_text(tmp_path: Path) -> None:
    """Of a map of shards one of which was not copied along."""
    (tmp_path / "m.weights.json").write_text('{"weight_map": {"a": ["m_00000.weights.h5"]}}')
    for ended in (run("verify", tmp_path / "m.weights.json"), run("list", tmp_path)):
        words = " ".join((ended.out + ended.err).split())
        assert "Copy all shards along with the file that lists them." in words
        assert "\\n" not in words
