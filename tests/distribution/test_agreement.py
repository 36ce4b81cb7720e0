"""Two workers: what fails in one fails in both, changes nothing, and does not hang.

All of it happens in one cluster, whose workers wait eight seconds for each other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from zoo.cluster import run_workers
from zoo.forkserver import results

PATIENCE = 8.0


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("agreement")


@pytest.fixture(scope="module")
def came(server, root) -> list[dict[str, Any]]:
    """What came of each call, in the chief and in the other worker."""
    return results(run_workers(server, 2, "zoo.agreement:agree", str(root), patience=PATIENCE))


REFUSED = {  # name → what the chief raises, what the other one does, what both say
    # what one cannot read, and another plan in one
    "absent": ("RestoreError", "CheckpointNotFoundError", "absent"),
    "damaged": ("RestoreError", "DamagedCheckpointError", "checksum"),
    "other": ("RestoreError", "RestoreError", "the plan of worker 1 differs"),
    # what fails in the chief, other objects in one, and one that is late
    "no directory": ("SaveError", "SaveError", "could not be written"),
    "other objects": ("SaveError", "SaveError", "the values of worker 1 differ"),
    "late": ("SaveError", "SaveError", "worker 1 of 2 did not join"),
}
SAID = {"absent": "worker 1 failed", "no directory": "file/run", "late": "8 seconds"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_fails_in_one_is_raised_in_all_and_changes_nothing(came, name) -> None:
    *kinds, words = REFUSED[name]
    for worker, kind in zip(came, kinds, strict=True):
        found, text, unchanged, seconds = worker[name]
        assert kind in found, (name, worker[name])
        assert words in text
        assert unchanged
        print(f"{name}: {seconds:.1f} s")
    assert SAID.get(name, "") in came[0][name][1]


RETURNED = {  # name → the path, or the value of the model
    **{f"save {number}": f"run/ckpt-{number}" for number in (1, 2, 3)},
    "right": 1.0,  # after a refusal the next restore is
    "chosen": 3.0,
    "no collective": 1.0,  # a restore needs none, which could hang
    "passed over": "run/ckpt-2",  # the newest is damaged
    "in the background": "behind/ckpt-3",
    "after it": "run/ckpt-4",  # after a save that failed
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_succeeds_is_the_same_in_all(came, root, name) -> None:
    expected = RETURNED[name]
    if isinstance(expected, str):
        assert [worker[name][1] for worker in came] == [f"{root}/{expected}"] * 2
    else:
        assert [worker[name][2] for worker in came] == [expected] * 2


def test_the_chief_alone_writes(came) -> None:
    found = {re.sub(r"-[0-9]{5}-of-[0-9]{5}", "", name) for name in came[0]["seen"]}
    files = [".index", ".data", ".tfckpt.json"]
    expected = {f"ckpt-{number}{file}" for number in (1, 2, 3, 4) for file in files}
    assert found == {".tfckpt.lock", "checkpoint", *expected}
    assert [worker["passed over"][2] for worker in came] == [2.0, 2.0]


def test_a_directory_of_a_worker_is_there_to_be_removed_and_a_line_says_where(came, root) -> None:
    own, latest = f"{root}/workertemp_1/tutorial", f"{root}/tutorial/ckpt-6"
    line = f"{own}: only the chief writes, into {root}/tutorial: restore from there\n"
    assert [worker["tutorial"] for worker in came] == [[latest, "", True], [latest, line, False]]


def test_a_signal_to_one_ends_all_after_one_save(came) -> None:
    assert [worker["stopped"] for worker in came] == [[4, 143, ["ckpt-1"]]] * 2
    assert [worker["stopped late"] for worker in came] == [[5, 143, ["ckpt-1"]]] * 2


def test_what_of_a_training_comes_back_is_the_same_in_all(came) -> None:
    assert [worker["taken up"] for worker in came] == [["training resumes after 2 epochs", 2]] * 2
