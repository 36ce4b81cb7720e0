"""Something else lies under the names that a save would use: links, directories, FIFOs.

Nothing is written through them, whatever they lead to: the save takes another number, or puts its
own file in their place, or says which name is in its way.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from attacks.trial import manager_of, restored, save, seen, values

HERE = Path(__file__)
VICTIM = b"precious"


def plant(path: Path, kind: str, victim: Path) -> None:
    if kind == "link to a file":
        path.symlink_to(victim / "file")
    elif kind == "link to a directory":
        path.symlink_to(victim / "directory")
    elif kind == "link to nothing":
        path.symlink_to(victim / "new")
    elif kind == "link to itself":
        path.symlink_to(path.name)
    elif kind == "hard link":
        os.link(victim / "file", path)
    elif kind == "directory":
        path.mkdir()
        (path / "inner").write_bytes(VICTIM)
    else:
        os.mkfifo(path)


KINDS = (
    "link to a file",
    "link to a directory",
    "link to nothing",
    "link to itself",
    "hard link",
    "directory",
    "FIFO",
)
PLACES = (
    "ckpt-4",
    "ckpt-4.index",
    "ckpt-4.data-00000-of-00001",
    "ckpt-4.data-00000-of-00002",
    "ckpt-4.tfckpt.json",
    "ckpt-4.tfckpt.mark",
    "ckpt-4.tfckpt.draft",
    "ckpt-4.tfckpt.part",
    "ckpt-4_temp",
    "ckpt-2.tfckpt.mark",
    "ckpt-2.tfckpt.draft",
    "ckpt-4.index.01234567.tmp",
    "checkpoint.01234567.tmp",
    ".tfckpt.lock",
)


def a_save_beside(case: Path, name: str, kind: str, number: int | None) -> str:
    """Returns how it ended; asserts that nothing outside was touched and nothing was lost."""
    import tfckpt

    run, victim = case / "run", case / "victim"
    path = run / name
    path.unlink(missing_ok=True)  # the lock of the process that made it
    plant(path, kind, victim)
    outside = seen(victim)
    sound = {one: what for one, what in seen(run).items() if one.startswith("ckpt-3")}
    values().set(9)
    try:
        saved = manager_of(run, 3).save(checkpoint_number=number)
    except tfckpt.SaveError as error:
        reason, ended, expected = str(error), "refused", ("ckpt-3", 3)
    else:
        reason, ended, expected = name, "saved", (Path(saved).name, 9)
    assert name in reason, f"{name} is not in {reason}"
    assert restored(run) == expected, (restored(run), expected)
    now = seen(run)
    assert {one: now.get(one) for one in sound} == sound, set(now)
    assert seen(victim) == outside, "outside was written"
    return ended


def all_saves_beside(place: str, name: str, number: int | None) -> dict[str, str]:
    template = Path(place, "template")
    manager = manager_of(template / "run")
    for step in (1, 2, 3):
        save(manager, step)
    (template / "victim").mkdir()
    (template / "victim" / "file").write_bytes(VICTIM)
    (template / "victim" / "directory").mkdir()
    (template / "victim" / "directory" / "ckpt-4-saver").write_bytes(VICTIM)
    ends = {}
    for kind in KINDS:
        # Whoever copies a run by hard links, as backups do, must be able to go on in it.
        if (name, kind) != (".tfckpt.lock", "hard link"):
            shutil.copytree(template, Path(place, kind))
            ends[kind] = a_save_beside(Path(place, kind), name, kind, number)
    return ends


def check_saves_beside(server: Any, place: Path, number: int | None) -> None:
    requests = [((HERE, "all_saves_beside"), str(place / name), name, number) for name in PLACES]
    outcomes = dict(zip(PLACES, server.run_many(requests), strict=True))
    for name, outcome in outcomes.items():
        print(f"{name:28} {outcome.value or outcome.error}")
    assert {name: str(one) for name, one in outcomes.items() if one.error} == {}


def test_what_lies_where_a_save_would_write_is_not_written_through(server, tmp_path) -> None:
    check_saves_beside(server, tmp_path, None)


@pytest.mark.long
def test_what_lies_where_a_save_must_write_is_not_written_through(server, tmp_path) -> None:
    check_saves_beside(server, tmp_path, 4)
