"""Directories that are named oddly, are links, hold links, are moved, and clocks that go back."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from attacks.trial import OWN, manager_of, restored, save, seen

HERE = Path(__file__)
VICTIM = b"precious"
SUFFIX = re.compile(r"\.(index|data-[0-9]{5}-of-[0-9]{5}|tfckpt\.json)$")


def kept(manager: Any) -> list[str]:
    return [Path(path).name for path in manager.checkpoints]


def files_of(directory: str | Path) -> set[str]:
    """The checkpoints that have files there, finished or not."""
    names = {path.name for path in Path(directory).iterdir()} - set(OWN)
    return {SUFFIX.sub("", name) for name in names}


# Names


def a_run_in(directory: str, decoy: str) -> None:
    """Four saves of which two are kept; what a pattern of that name would match stays as it is."""
    if decoy:
        Path(decoy).mkdir(parents=True)
        for name in ("ckpt-1.index", "ckpt-1.data-00000-of-00001", "checkpoint"):
            Path(decoy, name).write_bytes(VICTIM)
        before = seen(Path(decoy))
    manager = manager_of(directory, 2)
    assert manager.restore_or_initialize() is None
    paths = [save(manager, step) for step in (1, 2, 3, 4)]
    expected = [Path(directory, f"ckpt-{number}") for number in (1, 2, 3, 4)]
    assert list(map(Path, paths)) == expected, paths
    assert kept(manager) == ["ckpt-3", "ckpt-4"], kept(manager)
    assert manager.latest_checkpoint == paths[-1]
    assert files_of(directory) == {"ckpt-3", "ckpt-4"}, files_of(directory)
    assert restored(directory, max_to_keep=2) == ("ckpt-4", 4)
    assert not decoy or seen(Path(decoy)) == before


NAMES = {  # with a name that it would match were it a pattern
    "run[1]": "run1",
    "a*b": "aXb",
    "a?b": "aXb",
    "[!x]": "y",
    "a b": "",
    " ": "",
    "läuft-日本-🙂": "",
    "a\nb": "",
    "a\\b": "a",
    "{run,walk}": "run",
    "%s $HOME ~": "",
    "~": "",
    "-rf": "",
    "ckpt-9": "",
    "ckpt-9.index": "",
    "run.01234567.tmp": "",
    "x" * 255: "",
}


def runs_in(place: str, names: list[str]) -> None:
    for name in names:
        case = Path(place, str(list(NAMES).index(name)))
        case.mkdir()
        a_run_in(str(case / name), str(case / NAMES[name]) if NAMES[name] else "")


def test_a_directory_may_have_any_name(server, tmp_path) -> None:
    halves = [list(NAMES)[half::2] for half in (0, 1)]
    requests = [((HERE, "runs_in"), str(tmp_path), names) for names in halves]
    assert [str(one) for one in server.run_many(requests) if one.error] == []


def a_run_in_a_relative_directory(place: str, name: str) -> None:
    os.chdir(place)
    a_run_in(name, "")


@pytest.mark.parametrize("name", [".", "run", "./run/", "run//inner", "inner/../run"])
def test_a_directory_may_be_relative(server, tmp_path, name) -> None:
    if name.startswith("inner"):
        (tmp_path / "inner").mkdir()
    server.run((HERE, "a_run_in_a_relative_directory"), str(tmp_path), name).result()


def a_run_in_a_name_of_bytes(place: str) -> str:
    """TensorFlow's paths are UTF-8: such a name can be refused, not misunderstood."""
    directory = os.fsdecode(os.fsencode(place) + b"/\xff\xfe")
    try:
        save(manager_of(directory, 2), 1)
    except (OSError, ValueError) as error:
        left = [path.name for path in Path(place).rglob("*") if not path.is_dir()]
        assert left in ([], [".tfckpt.lock"]), left
        return type(error).__name__
    return "saved as " + repr(restored(directory))


def test_a_name_that_is_no_text_is_refused_or_works(server, tmp_path) -> None:
    ended = server.run((HERE, "a_run_in_a_name_of_bytes"), str(tmp_path)).result()
    assert ended in ("SaveError", "saved as ('ckpt-1', 1)")


def a_run_through_a_link(place: str) -> None:
    """The directory is a link to one elsewhere: it is used through the link, which stays."""
    real, link = Path(place, "real"), Path(place, "link")
    real.mkdir()
    link.symlink_to(real)
    a_run_in(str(link), "")
    assert link.is_symlink()
    assert restored(real) == ("ckpt-4", 4)
    assert Path(save(manager_of(real), 5)).name == "ckpt-5"
    assert restored(link) == ("ckpt-5", 5)


def test_a_directory_may_be_a_link(server, tmp_path) -> None:
    server.run((HERE, "a_run_through_a_link"), str(tmp_path)).result()


# Moved


def a_run_moved_between(place: str) -> None:
    old, new = Path(place, "old"), Path(place, "new")
    first = manager_of(old, 2)
    for step in (1, 2, 3):
        save(first, step)
    old.rename(new)
    shutil.copytree(new, old)  # another run has begun where this one was
    before = seen(old)
    assert restored(new) == ("ckpt-3", 3)
    manager = manager_of(new, 2)
    manager.restore_or_initialize()
    assert [Path(save(manager, step)).parent for step in (4, 5)] == [new, new]
    assert files_of(new) == {"ckpt-4", "ckpt-5"}
    assert restored(new) == ("ckpt-5", 5)
    assert seen(old) == before


def a_run_moved_while_it_runs(place: str, replaced: bool) -> None:
    """The save goes to the path that was given, above what is there; what was moved, stays."""
    run, moved = Path(place, "run"), Path(place, "moved")
    manager = manager_of(run, 2)
    for step in (1, 2, 3):
        save(manager, step)
    run.rename(moved)
    before = {name: one for name, one in seen(moved).items() if name != ".tfckpt.lock"}
    if replaced:
        other = manager_of(Path(place, "other"))
        for step in range(1, 8):
            save(other, step)
        Path(place, "other").rename(run)
    saved = save(manager, 4)
    assert Path(saved).parent == run
    assert restored(run) == (Path(saved).name, 4)
    assert int(Path(saved).name[5:]) > (7 if replaced else 3)
    now = {name: one for name, one in seen(moved).items() if name != ".tfckpt.lock"}
    assert now == before
    assert restored(moved) == ("ckpt-3", 3)
    assert kept(manager)[-1] == Path(saved).name


def test_a_directory_may_be_moved_between_runs(server, tmp_path) -> None:
    server.run((HERE, "a_run_moved_between"), str(tmp_path)).result()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_directory_may_be_moved_while_the_run_goes_on(server, tmp_path, replaced) -> None:
    server.run((HERE, "a_run_moved_while_it_runs"), str(tmp_path), replaced).result()


# Clocks


def a_run_whose_clock_goes_back(place: str, hours: float | None) -> None:
    """Newest is the highest number, whatever the time says."""
    real = time.time
    for step, now in enumerate((2e9, 2e9 + 7200, 1e9, 1e9 + 1, 1.5e9), 1):
        time.time = lambda now=now: now
        manager = manager_of(place, 2, keep_checkpoint_every_n_hours=hours)
        if step > 1:
            assert restored(place) == (f"ckpt-{step - 1}", step - 1)
        assert Path(save(manager, step)).name == f"ckpt-{step}"
        for path in Path(place).iterdir():
            os.utime(path, (now, now))
        assert kept(manager)[-1] == f"ckpt-{step}"
    time.time = real
    assert restored(place) == ("ckpt-5", 5)
    assert kept(manager_of(place))[-2:] == ["ckpt-4", "ckpt-5"]
    if hours is None:
        assert kept(manager_of(place)) == ["ckpt-4", "ckpt-5"], kept(manager_of(place))


@pytest.mark.parametrize("hours", [None, 1.0])
def test_a_clock_that_is_set_back_changes_no_order(server, tmp_path, hours) -> None:
    server.run((HERE, "a_run_whose_clock_goes_back"), str(tmp_path / "run"), hours).result()


# Two names in one directory


def two_runs_in_one_directory(place: str, first: str, second: str) -> None:
    managers = {name: manager_of(place, 2, checkpoint_name=name) for name in (first, second)}
    paths: dict[str, list[str]] = {first: [], second: []}
    order = (first, second, second, first, second, second, first, first, second)
    for step, name in enumerate(order, 1):
        own = managers[name]
        others = {
            path.name: path.read_bytes()
            for other, manager in managers.items()
            if other != name
            for prefix in manager.checkpoints
            for path in Path(place).glob(Path(prefix).name + ".*")
        }
        paths[name].append(save(own, step))
        for file, content in others.items():
            assert Path(place, file).read_bytes() == content
        for each, manager in managers.items():
            assert manager.checkpoints == paths[each][-2:], (manager.checkpoints, paths)
    for name, saved in paths.items():
        numbers = [int(path.rpartition("-")[2]) for path in saved]
        assert numbers == sorted(set(numbers)), numbers
        assert [str(Path(place, f"{name}-{number}")) for number in numbers] == saved
    last = [Path(saved[-1]).name for saved in paths.values()]
    assert restored(place, checkpoint_name=first) == (last[0], 8)
    assert restored(place, checkpoint_name=second) == (last[1], 9)
    expected = {Path(path).name for saved in paths.values() for path in saved[-2:]}
    assert files_of(place) == expected, (files_of(place), expected)


PAIRS = [("ckpt", "ckpt-1"), ("model", "model-2"), ("a", "a.b"), ("ckpt", "ckpt-1-1"), ("x", "xx")]


@pytest.mark.parametrize(("first", "second"), [*PAIRS, *(p[::-1] for p in PAIRS)])
def test_two_names_in_one_directory_leave_each_other_alone(server, tmp_path, first, second) -> None:
    outcome = server.run((HERE, "two_runs_in_one_directory"), str(tmp_path), first, second)
    outcome.result()
