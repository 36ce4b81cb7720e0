from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tfckpt.stored.commits.discovery import Candidate, CheckpointKind, candidates, highest_number

if TYPE_CHECKING:
    from pathlib import Path


def touch(directory: Path, *names: str) -> None:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).touch()


def numbers(found: list[Candidate]) -> list[int]:
    return [one.number for one in found]


def test_newest_first_by_number_not_by_alphabet_or_time(tmp_path: Path) -> None:
    order = [2, 9, 10, 100, 11, 1]
    random.Random(3).shuffle(order)
    touch(tmp_path, *(f"ckpt-{number}.index" for number in order))
    assert numbers(candidates(str(tmp_path))) == [100, 11, 10, 9, 2, 1]


def test_a_record_makes_a_checkpoint_committed(tmp_path: Path) -> None:
    touch(tmp_path, "ckpt-1.index", "ckpt-2.index", "ckpt-2.tfckpt.json", "ckpt-3.tfckpt.json")
    assert candidates(str(tmp_path)) == [
        Candidate(2, f"{tmp_path}/ckpt-2", CheckpointKind.COMMITTED),
        Candidate(1, f"{tmp_path}/ckpt-1", CheckpointKind.FOREIGN),
    ]


def test_one_that_lost_its_index_is_damaged_with_a_record_and_torn_without(tmp_path: Path) -> None:
    shard = "data-00000-of-00001"
    touch(tmp_path, "ckpt-1.index", f"ckpt-4.{shard}", "ckpt-5.tfckpt.json", "ckpt-6.index")
    touch(tmp_path, f"ckpt-7.{shard}", "ckpt-7.tfckpt.json", f"best-8.{shard}")
    assert candidates(str(tmp_path)) == [
        Candidate(7, f"{tmp_path}/ckpt-7", CheckpointKind.DAMAGED),
        Candidate(6, f"{tmp_path}/ckpt-6", CheckpointKind.FOREIGN),
        Candidate(4, f"{tmp_path}/ckpt-4", CheckpointKind.TORN),
        Candidate(1, f"{tmp_path}/ckpt-1", CheckpointKind.FOREIGN),
    ]


def test_what_is_being_saved_or_deleted_is_none(tmp_path: Path) -> None:
    data = "data-00000-of-00001"
    touch(tmp_path, f"ckpt-1.{data}", "ckpt-1.tfckpt.mark")
    touch(tmp_path, f"ckpt-2.{data}", "ckpt-2.tfckpt.mark", "ckpt-3.tfckpt.mark")
    assert candidates(str(tmp_path)) == []
    assert highest_number(str(tmp_path)) == 3
    touch(tmp_path, "ckpt-1.index")  # it is whole; plain TensorFlow may have taken its number
    assert numbers(candidates(str(tmp_path))) == [1]


def test_the_state_file_has_no_say(tmp_path: Path) -> None:
    touch(tmp_path, "ckpt-1.index")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/ckpt-9"\n')
    assert numbers(candidates(str(tmp_path))) == [1]


def test_only_the_given_name_or_any(tmp_path: Path) -> None:
    touch(tmp_path, "ckpt-1.index", "best-2.index", "my-ckpt-3.index", "ckpt-1-4.index", "x.index")
    touch(tmp_path, "ckpt-.index", "ckpt-5.index.1a2b.tmp", "ckpt-٦.index")
    assert numbers(candidates(str(tmp_path))) == [1]
    assert numbers(candidates(str(tmp_path), "ckpt-1")) == [4]
    assert numbers(candidates(str(tmp_path), None)) == [4, 3, 2, 1]


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?", "ru\\n"])
def test_glob_characters_are_literal(tmp_path: Path, name: str) -> None:
    touch(tmp_path / name, "ckpt[a]-7.index")
    touch(tmp_path / "run1", "ckpt[a]-8.index")
    assert numbers(candidates(str(tmp_path / name), "ckpt[a]")) == [7]
    assert highest_number(str(tmp_path / name), "ckpt[a]") == 7
    assert highest_number(str(tmp_path / name), "ckpta") == 0


def test_no_directory_and_an_empty_one_hold_none(tmp_path: Path) -> None:
    assert candidates(str(tmp_path)) == []
    assert candidates(str(tmp_path / "absent")) == []
    assert highest_number(str(tmp_path / "absent")) == 0


def test_the_working_directory_is_meant_by_an_empty_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "ckpt-1.index")
    monkeypatch.chdir(tmp_path)
    assert [one.prefix for one in candidates("")] == ["ckpt-1"]


@pytest.mark.parametrize(
    "name",
    [
        "ckpt-7.index",
        "ckpt-7.data-00000-of-00001",
        "ckpt-7.tfckpt.json",
        "ckpt-7.tfckpt.json.0a1b2c3d.tmp",
        "ckpt-7_temp",
        "ckpt-7",
        "ckpt-007.index",
    ],
)
def test_every_trace_of_a_number_counts_as_used(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "ckpt-3.index", name, "best-9.index", "ckpt-x-8.index")
    assert highest_number(str(tmp_path)) == 7


def test_a_dangling_link_uses_its_number(tmp_path: Path) -> None:
    (tmp_path / "ckpt-4.index").symlink_to(tmp_path / "nowhere")
    assert highest_number(str(tmp_path)) == 4


def test_tensorflow_takes_the_next_number_for_free(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    checkpoint = tf.train.Checkpoint(step=tf.Variable(1))
    for number in (1, 2, 3):
        path = checkpoint.save(str(tmp_path / "ckpt"))
        assert highest_number(str(tmp_path)) == number
        assert candidates(str(tmp_path))[0].prefix == path


def test_a_number_too_long_for_a_save_counter_is_none(tmp_path: Path) -> None:
    touch(tmp_path, "ckpt-3.index", f"ckpt-{'9' * 20}.index")
    assert numbers(candidates(str(tmp_path))) == [3]
    assert highest_number(str(tmp_path)) == 3
