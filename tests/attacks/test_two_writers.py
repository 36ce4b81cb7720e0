"""Several at once in one directory: processes that save, one that reads, threads.

The value of every variable is the number of its checkpoint, so a mixture shows. The processes wait
for each other's files; every wait ends with the time of the request.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from attacks.trial import manager_of, save, values

HERE = Path(__file__)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


def number_of(path: str) -> int:
    return int(path.rpartition("-")[2])


def save_as_its_number(manager: Any, number: int) -> int:
    assert number_of(save(manager, number)) == number
    return number


def first_writer(place: str, count: int, keep: int | None) -> dict[str, Any]:
    """Saves so many times; from the middle on only once the other has been turned away."""
    manager = manager_of(Path(place, "run"), keep)
    for number in range(1, count + 1):
        save_as_its_number(manager, number)
        Path(place, "begun").touch()
        if number == count // 2:
            wait_for(Path(place, "turned away"))
    return {"pid": os.getpid(), "last": count}


def second_writer(place: str, count: int, keep: int | None) -> dict[str, Any]:
    """Tries until it may; then goes on where the first one ended."""
    import tfckpt

    wait_for(Path(place, "begun"))
    manager = manager_of(Path(place, "run"), keep)
    turned_away = []
    saved: list[int] = []
    while not saved:
        try:
            saved.append(number_of(save(manager, 0)))
        except tfckpt.InUseError as error:  # noqa: PERF203 (that it is raised is what counts)
            turned_away.append(str(error))
            Path(place, "turned away").touch()
            time.sleep(0.01)
    assert saved == [count + 1]  # above all that the first one saved
    while len(saved) < count:
        saved.append(save_as_its_number(manager, saved[-1] + 1))
    Path(place, "done").touch()
    return {"turned away": turned_away, "saved": saved}


def reader(place: str) -> dict[str, Any]:
    """Restores all the while; every restore is of one checkpoint, and never of an older one."""
    wait_for(Path(place, "begun"))
    seen = [0]
    reads = 0
    zero = []
    while not Path(place, "done").exists():
        path = manager_of(Path(place, "run")).restore_or_initialize()
        assert path is not None
        step = values().step()
        if step == 0:
            zero.append(number_of(path))
        else:
            assert step == number_of(path), (path, values().steps())
        assert number_of(path) >= seen[-1], (path, seen)
        if number_of(path) > seen[-1]:
            seen.append(number_of(path))
        reads += 1
    return {"seen": seen[1:], "reads": reads, "zero": sorted(set(zero))}


def contents(place: str) -> dict[str, Any]:
    """What all checkpoints of the directory hold, and every other name in it."""
    run = Path(place, "run")
    found = {}
    manager = manager_of(run)
    for path in manager.checkpoints:
        manager.checkpoint.restore(path).assert_consumed()
        found[Path(path).name] = values().step()
    others = [p.name for p in run.iterdir() if p.name.split(".")[0] not in found]
    return {"values": found, "others": sorted(others)}


def check(server: Any, place: Path, count: int, keep: int | None) -> None:
    requests = [
        ((HERE, "first_writer"), str(place), count, keep),
        ((HERE, "second_writer"), str(place), count, keep),
        ((HERE, "reader"), str(place)),
    ]
    outcomes = server.run_many(requests, workers=3, timeout=60 + count)
    wrong = [str(outcome) for outcome in outcomes if outcome.error]
    assert not wrong, "\n".join(wrong)
    first, second, read = (outcome.value for outcome in outcomes)
    assert all(str(first["pid"]) in text for text in second["turned away"])
    assert second["saved"] == list(range(count + 1, 2 * count + 1))
    assert set(read["zero"]) <= {count + 1}
    print(f"\nturned away {len(second['turned away'])} times; {read['reads']} reads,")
    print(f"of {len(read['seen'])} of the {2 * count} checkpoints")
    found = server.run((HERE, "contents"), str(place), timeout=300).result()
    ends = (count, 2 * count)  # of two runs, each of which deletes its own
    kept = [n for end in ends for n in range(end - (keep or count) + 1, end + 1)]
    expected = {f"ckpt-{n}": 0 if n == count + 1 else n for n in kept}
    assert found["values"] == expected
    assert found["others"] == [".tfckpt.lock", "checkpoint"]


@pytest.mark.parametrize("keep", [None, 2])
def test_the_second_writer_waits_its_turn_and_nothing_is_lost(server, tmp_path, keep) -> None:
    check(server, tmp_path, 15, keep)


@pytest.mark.long
@pytest.mark.parametrize("keep", [None, 1, 2])
def test_a_hundred_saves_each(server, tmp_path, keep) -> None:
    check(server, tmp_path, 100, keep)


def two_threads(place: str, count: int, keep: int | None, background: bool) -> dict[str, Any]:
    import tensorflow as tf

    import tfckpt

    saved: dict[str, int] = {}
    errors: list[str] = []
    together = threading.Barrier(2)

    def save_all(first: int) -> None:
        value = tf.Variable(0)
        manager = tfckpt.CheckpointManager(
            tfckpt.Checkpoint(value=value), place, keep, durable=False, enable_async=background
        )
        together.wait()
        for number in range(first, first + count):
            value.assign(number)
            try:
                saved[manager.save()] = number
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
        manager.sync()

    threads = [threading.Thread(target=save_all, args=(first,)) for first in (100, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    value = tf.Variable(0)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), place, None)
    stored = {}
    for path in manager.checkpoints:
        manager.checkpoint.restore(path).assert_consumed()
        stored[path] = int(value)
    names = {Path(path).name for path in stored}
    others = [p.name for p in Path(place).iterdir() if p.name.split(".")[0] not in names]
    return {"saved": saved, "stored": stored, "errors": errors, "others": sorted(others)}


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("keep", [None, 2])
def test_two_managers_in_two_threads_share_a_directory(server, tmp_path, keep, background) -> None:
    count, run = 15, str(tmp_path / "run")
    found = server.run((HERE, "two_threads"), run, count, keep, background).result()
    assert found["errors"] == []
    assert len(found["saved"]) == 2 * count
    assert {path: found["saved"][path] for path in found["stored"]} == found["stored"]
    last = max(found["saved"], key=number_of)
    assert found["stored"][last] == found["saved"][last]
    assert found["others"] == [".tfckpt.lock", "checkpoint"]
    if keep is None:
        assert found["stored"] == found["saved"]
        assert sorted(map(number_of, found["saved"])) == list(range(1, 2 * count + 1))
