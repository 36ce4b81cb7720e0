"""Directories that are named oddly, are links, are moved, or have two runs."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from attacks.trial import OWN, manager_of, names_of, restored, save, seen

HERE = Path(__file__)
SUFFIX = re.compile(r"\.(index|data-[0-9]{5}-of-[0-9]{5}|tfckpt\.json)$")


def files_of(directory: str | Path) -> set[str]:
    """The checkpoints that have files there, finished or not."""
    names = {path.name for path in Path(directory).iterdir()} - set(OWN)
    return {SUFFIX.sub("", name) for name in names}


# Names


def a_run_in(directory: str, decoy: str = "") -> None:
    """Four saves of which two are kept; what a pattern of that name would match stays as it is."""
    if decoy:
        Path(decoy).mkdir(parents=True)
        for name in ("ckpt-1.index", "ckpt-1.data-00000-of-00001", "checkpoint"):
            Path(decoy, name).write_bytes(b"precious")
        before = seen(Path(decoy))
    manager = manager_of(directory, 2)
    assert manager.restore_or_initialize() is None
    paths = [save(manager, step) for step in (1, 2, 3, 4)]
    assert list(map(Path, paths)) == [Path(directory, f"ckpt-{number}") for number in (1, 2, 3, 4)]
    assert names_of(manager) == ["ckpt-3", "ckpt-4"]
    assert manager.latest_checkpoint == paths[-1]
    assert files_of(directory) == {"ckpt-3", "ckpt-4"}, files_of(directory)
    assert restored(directory, max_to_keep=2) == ("ckpt-4", 4)
    assert not decoy or seen(Path(decoy)) == before


NAMES = {  # with a name that it would match were it a pattern
    "run[1]": "run1",
    "a*b": "aXb",
    "[!x]": "y",
    " ": "",
    "läuft-日本-🙂": "",
    "a\nb": "",
    "a\\b": "a",
    "{run,walk}": "run",
    "%s $HOME ~": "",
    "-rf": "",
    "ckpt-9.index": "",
    "run.01234567.tmp": "",
    "x" * 255: "",
}


def runs_in(place: str) -> None:
    for number, (name, decoy) in enumerate(NAMES.items()):
        case = Path(place, str(number))
        case.mkdir()
        a_run_in(str(case / name), str(case / decoy) if decoy else "")


def runs_in_relative_directories(place: str) -> None:
    for number, name in enumerate((".", "run", "./run/", "run//inner", "inner/../run")):
        case = Path(place, str(number))
        (case / "inner").mkdir(parents=True) if "inner/" in name else case.mkdir()
        os.chdir(case)
        a_run_in(name)


def a_name_of_bytes(place: str) -> None:
    """TensorFlow's paths are UTF-8: such a name can be refused, not misunderstood."""
    import tfckpt

    directory = os.fsdecode(os.fsencode(place) + b"/\xff\xfe")
    try:
        save(manager_of(directory, 2), 1)
    except tfckpt.SaveError:
        left = [path.name for path in Path(place).rglob("*") if not path.is_dir()]
        assert left in ([], [".tfckpt.lock"]), left
    else:
        assert restored(directory) == ("ckpt-1", 1)


def a_run_through_a_link(place: str) -> None:
    """The directory is a link to one elsewhere: it is used through the link, which stays."""
    real, link = Path(place, "real"), Path(place, "link")
    real.mkdir()
    link.symlink_to(real)
    a_run_in(str(link))
    assert link.is_symlink()
    assert restored(real) == ("ckpt-4", 4)
    assert Path(save(manager_of(real), 5)).name == "ckpt-5"
    assert restored(link) == ("ckpt-5", 5)


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


def a_run_moved_while_it_runs(place: str) -> None:
    """The save goes to the path that was given, above what is there; what was moved, stays."""
    for replaced in (False, True):
        run, moved = Path(place, f"run-{replaced}"), Path(place, f"moved-{replaced}")
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
        saved = Path(save(manager, 4))
        assert saved.parent == run
        assert restored(run) == (saved.name, 4)
        assert int(saved.name[5:]) > (7 if replaced else 3)
        now = {name: one for name, one in seen(moved).items() if name != ".tfckpt.lock"}
        assert now == before
        assert restored(moved) == ("ckpt-3", 3)
        assert names_of(manager)[-1] == saved.name


# Two names in one directory


def two_runs_in_one_directory(place: str, first: str, second: str) -> None:
    managers = {name: manager_of(place, 2, checkpoint_name=name) for name in (first, second)}
    paths: dict[str, list[str]] = {first: [], second: []}
    order = (first, second, second, first, second, second, first, first, second)
    for step, name in enumerate(order, 1):
        other = second if name == first else first
        others = [Path(place).glob(f"{Path(one).name}.*") for one in managers[other].checkpoints]
        before = {path: path.read_bytes() for found in others for path in found}
        paths[name].append(save(managers[name], step))
        assert {path: path.read_bytes() for path in before} == before
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


def pairs(place: str) -> None:
    for number, pair in enumerate(PAIRS):
        first, second = pair[:: (1, -1)[number % 2]]
        two_runs_in_one_directory(f"{place}/{first} {second}", first, second)


SCENES = [
    *(runs_in, runs_in_relative_directories, a_name_of_bytes, a_run_through_a_link),
    *(a_run_moved_between, a_run_moved_while_it_runs, pairs),
]


def scenes(place: str) -> None:
    for scene in SCENES:
        print(scene.__name__, flush=True)
        directory = Path(place, scene.__name__)
        directory.mkdir()
        scene(str(directory))


def test_an_odd_directory_is_one_like_others(server: Any, tmp_path: Path) -> None:
    server.run((HERE, "scenes"), str(tmp_path), timeout=120).result()
