"""Two workers: what fails in one fails in both, changes nothing, and does not hang.

All of it happens in one cluster, whose workers wait eight seconds for each other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from zoo.cluster import run_workers
from zoo.forkserver import results

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 8.0


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("agreement")


@pytest.fixture(scope="module")
def came(server, root) -> list[dict[str, Any]]:
    """What came of each call, in the chief and in the other worker."""
    return results(run_workers(server, 2, "zoo.agreement:agree", str(root), patience=PATIENCE))


def refused(came, name: str, chief: str, other: str, *said: str) -> None:
    for worker, kind in zip(came, (chief, other), strict=True):
        kinds, text, unchanged, seconds = worker[name]
        assert kind in kinds, (name, worker[name])
        assert all(words in text for words in said), text
        assert unchanged
        print(f"{name}: {seconds:.1f} s")


def test_every_worker_gets_the_same_path_and_the_chief_alone_writes(came, root) -> None:
    for number in (1, 2, 3):
        assert [worker[f"save {number}"][1] for worker in came] == [f"{root}/run/ckpt-{number}"] * 2
    found = {re.sub(r"-[0-9]{5}-of-[0-9]{5}", "", name) for name in came[0]["seen"]}
    files = [".index", ".data", ".tfckpt.json"]
    expected = {f"ckpt-{number}{file}" for number in (1, 2, 3, 4) for file in files}
    assert found == {".tfckpt.lock", "checkpoint", *expected}


def test_one_that_cannot_read_makes_all_refuse(came) -> None:
    refused(came, "absent", "RestoreError", "CheckpointNotFoundError", "absent")
    refused(came, "damaged", "RestoreError", "DamagedCheckpointError", "checksum")
    assert "worker 1 failed" in came[0]["absent"][1]


def test_another_plan_in_one_is_an_error_in_all(came) -> None:
    refused(came, "other", "RestoreError", "RestoreError", "the plan of worker 1 differs")


def test_after_a_refusal_the_next_restore_is_right(came) -> None:
    assert [worker["right"][2] for worker in came] == [1.0, 1.0]
    assert [worker["chosen"][2] for worker in came] == [3.0, 3.0]


def test_a_restore_needs_no_collective_that_could_hang(came) -> None:
    assert [worker["no collective"][2] for worker in came] == [1.0, 1.0]


def test_a_damaged_newest_one_gives_way_in_all(came, root) -> None:
    assert [worker["passed over"][1] for worker in came] == [f"{root}/run/ckpt-2"] * 2
    assert [worker["passed over"][2] for worker in came] == [2.0, 2.0]


def test_what_fails_in_the_chief_is_raised_in_all(came) -> None:
    refused(came, "no directory", "SaveError", "SaveError", "could not be written", "file/run")


def test_other_objects_in_one_are_refused(came) -> None:
    refused(came, "other objects", "SaveError", "SaveError", "the values of worker 1 differ")


def test_a_save_in_the_background_ends_in_all(came, root) -> None:
    assert [worker["in the background"][1] for worker in came] == [f"{root}/behind/ckpt-3"] * 2


def test_a_late_worker_fails_the_save_in_all_and_the_next_one_succeeds(came, root) -> None:
    refused(came, "late", "SaveError", "SaveError", "worker 1 of 2 did not join", "8 seconds")
    assert [worker["after it"][1] for worker in came] == [f"{root}/run/ckpt-4"] * 2


def test_a_signal_to_one_ends_all_after_one_save(came) -> None:
    assert [worker["stopped"] for worker in came] == [[4, 143, ["ckpt-1"]]] * 2


def test_a_signal_that_comes_while_they_meet_ends_all_at_the_next_step(came) -> None:
    assert [worker["stopped late"] for worker in came] == [[5, 143, ["ckpt-1"]]] * 2


def test_what_of_a_training_comes_back_is_the_same_in_all(came) -> None:
    assert [worker["taken up"] for worker in came] == [["training resumes after 2 epochs", 2]] * 2
