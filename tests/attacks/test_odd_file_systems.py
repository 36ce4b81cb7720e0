"""A disk that is full, out of names, or read-only: the save says so, and nothing is lost by it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from attacks.namespaces import make_read_only, mount_small, own_mounts
from attacks.trial import NOBODY, manager_of, restored, save, seen, values

HERE = Path(__file__)


def result_or_skip(outcome: Any) -> Any:
    if outcome.error and "NotPermittedError" in outcome.error:
        pytest.skip(outcome.error)
    return outcome.result()


def a_save_that_is_refused(manager: Any, step: int, where: Path) -> str:
    """Asserts that nothing is left of it and no counter has moved; returns the message."""
    import tfckpt

    before, counter = seen(where), int(manager.checkpoint.save_counter)
    values().set(step)
    with pytest.raises(tfckpt.SaveError) as caught:
        manager.save()
    assert str(where) in str(caught.value)
    now = seen(where)
    for found in (before, now):
        found.pop(".tfckpt.lock", None)
    assert now == before
    assert int(manager.checkpoint.save_counter) == counter
    return str(caught.value)


# Full


def a_full_disk(place: str, options: str, fill: str) -> str:
    import tensorflow as tf

    own_mounts()
    mount_small(place, options)
    run, filler = Path(place, "run"), Path(place, "filler")
    counter = tf.Variable(0)
    ballast = tf.Variable(tf.zeros(20_000))  # 80 kB: more than what is left free
    values().objects["ballast"] = ballast
    manager = manager_of(run, 2, durable=True, step_counter=counter, checkpoint_interval=10)
    assert Path(save(manager, 1)).name == "ckpt-1"
    counter.assign(10)
    assert Path(save(manager, 2)).name == "ckpt-2"
    _fill(filler, fill)
    counter.assign(20)
    message = a_save_that_is_refused(manager, 3, run)
    a_save_that_is_refused(manager, 3, run)
    assert restored(run) == ("ckpt-2", 2)
    shutil.rmtree(filler)
    assert Path(save(manager, 3)).name == "ckpt-3"
    assert manager.save() is None  # nothing is due: the interval counts from this step
    assert restored(run) == ("ckpt-3", 3)
    assert [Path(path).name for path in manager.checkpoints] == ["ckpt-2", "ckpt-3"]
    assert {path.name.split(".")[0] for path in run.glob("ckpt*")} == {"ckpt-2", "ckpt-3"}
    return message


def _fill(filler: Path, what: str) -> None:
    """All space but some 40 kB, all space, or all names."""
    filler.mkdir()
    try:
        if what == "names":
            for number in range(10_000):
                (filler / str(number)).touch()
        else:
            with (filler / "file").open("wb", buffering=0) as file:
                while file.write(bytes(4096)) == 4096:
                    pass
    except OSError:
        pass
    if what == "some space":
        os.truncate(filler / "file", (filler / "file").stat().st_size - 40_960)


@pytest.mark.parametrize(
    ("options", "fill"),
    [("size=2m", "some space"), ("size=2m", "space"), ("size=2m,nr_inodes=60", "names")],
)
def test_a_full_disk_costs_one_save(server, tmp_path, options, fill) -> None:
    outcome = server.run((HERE, "a_full_disk"), str(tmp_path), options, fill)
    assert "No space left" in result_or_skip(outcome)


# Read-only


def a_read_only_file_system(place: str) -> str:
    own_mounts()
    run = Path(place, "run")
    manager = manager_of(run)
    for step in (1, 2):
        save(manager, step)
    make_read_only(place)
    assert restored(run) == ("ckpt-2", 2)
    assert len(manager_of(run, 1).checkpoints) == 2
    a_save_that_is_refused(manager, 3, run)
    return a_save_that_is_refused(manager_of(run, 1), 3, run)


def a_directory_of_somebody_else(place: str) -> str:
    """Root may write everywhere: it becomes somebody else."""
    run = Path(place, "run")
    manager = manager_of(run, None)
    for step in (1, 2):
        save(manager, step)
    restored(run)  # loads what the user whom root becomes might not be able to load
    (run / ".tfckpt.lock").unlink(missing_ok=True)
    run.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    assert restored(run) == ("ckpt-2", 2)
    assert len(manager_of(run, 1).checkpoints) == 2
    return a_save_that_is_refused(manager_of(run, 1), 3, run)


def test_what_may_only_be_read_is_restored_and_refuses_a_save(server, tmp_path) -> None:
    outcome = server.run((HERE, "a_read_only_file_system"), str(tmp_path))
    assert "Read-only file system" in result_or_skip(outcome)


def test_a_directory_that_others_own_is_restored_and_refuses_a_save(server) -> None:
    place = tempfile.mkdtemp()  # not below pytest's directory, which only its owner may enter
    Path(place).chmod(0o755)
    try:
        outcome = server.run((HERE, "a_directory_of_somebody_else"), place)
    finally:
        shutil.rmtree(place)
    assert "Permission denied" in outcome.result()
