"""Something else lies under the names that writers use: links, directories, FIFOs, altered files.

Nothing is written through them, whatever they lead to, and no sound checkpoint is lost by what
looks like the leavings of a dead writer: the save takes another number, or puts its own file in
their place, or says which name is in its way.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf
from attacks.forging import sealed_record
from attacks.trial import OWN, STEPS, make, manager_of, names_of, restored, seen, values
from zoo.command_line import run

import tfckpt

HERE = Path(__file__)
NAMES = (
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


def _directory(path: Path, _: Path) -> None:
    path.mkdir()
    (path / "inner").symlink_to("../../victim")


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "link to a file": lambda path, victim: path.symlink_to(victim / "checkpoint"),
    "link to a directory": lambda path, victim: path.symlink_to(victim),
    "link to a checkpoint": lambda path, victim: path.symlink_to("ckpt-2.index"),
    "link to nothing": lambda path, victim: path.symlink_to(victim / "new"),
    "link to itself": lambda path, victim: path.symlink_to(path.name),
    "hard link": lambda path, victim: os.link(victim / "checkpoint", path),
    "directory": _directory,
    "FIFO": lambda path, victim: os.mkfifo(path),
}


def _mark(run: Path, number: int = 3, content: bytes = b"") -> None:
    (run / f"ckpt-{number}.tfckpt.mark").write_bytes(content)


def _record(run: Path, number: int) -> bytes:
    """Of a deletion, it is the mark."""
    return (run / f"ckpt-{number}.tfckpt.json").read_bytes()


def _leaving(end: str, target: str) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        _mark(run)
        (run / f"ckpt-3.tfckpt.{end}").symlink_to(target)

    return plant


def part_with_links(run: Path) -> None:
    _mark(run)
    (run / "ckpt-3.tfckpt.part").mkdir()
    for end in (".index", ".tfckpt.json", ".data-00000-of-00001"):
        (run / "ckpt-3.tfckpt.part" / f"ckpt-3{end}").symlink_to(f"../../victim/ckpt-3{end}")


def claims(run: Path, *names: str) -> None:
    """The oldest is released by the next save, with the files that its record names."""
    tree = json.loads(_record(run, 1))
    tree["files"] = [*tree["files"], *names]
    (run / "ckpt-1.tfckpt.json").write_bytes(sealed_record(tree))
    (run / "ckpt-1-3.index").write_bytes(b"of another name")


LEAVINGS: dict[str, Callable[[Path], None]] = {
    "mark without a checkpoint": lambda run: _mark(run, 9, _record(run, 3)),
    "draft that is a link": _leaving("draft", "../victim/checkpoint"),
    "part that is a link": _leaving("part", "../victim"),
    "part with links": part_with_links,
    "record that claims a checkpoint": lambda run: claims(run, "ckpt-1-3.index"),
    "record that claims data": lambda run: claims(run, "ckpt-2.data-00000-of-00001"),
    "record that claims what is outside": lambda run: claims(run, "../victim/checkpoint"),
}


def save_beside(place: Path, name: str, kind: str, number: int | None) -> None:
    """In a child: nothing outside is touched, and nothing is lost or left over."""
    run, victim, path = place / "run", place / "victim", place / "run" / name
    outside = seen(victim)
    sound = {one: what for one, what in seen(run).items() if one.startswith(("ckpt-2", "ckpt-3"))}
    if name:
        path.unlink(missing_ok=True)  # the lock of the process that made it
        KINDS[kind](path, victim)
        outside = seen(victim)  # a hard link has changed no content
    else:
        LEAVINGS[kind](run)
    manager = manager_of(run, 3)
    if not name:
        manager.restore_or_initialize()  # and with it the run, which deletes its own
    values().set(9)
    try:
        saved = manager.save(checkpoint_number=number)
    except tfckpt.SaveError as error:
        expected, refused = ("ckpt-3", 3), str(error)
    else:
        expected, refused = (Path(saved).name, 9), ""
    assert not refused or (name and name in refused), refused
    now = seen(run)
    assert restored(run) == expected, (restored(run), expected)
    assert {one: now[one][2] for one in sound} == {one: what[2] for one, what in sound.items()}
    assert seen(victim) == outside, "outside was written"
    if not name:
        listed = names_of(manager_of(run))
        assert listed[-3:] == ["ckpt-2", "ckpt-3", expected[0]], listed
        left = [one for one in now if one not in OWN and one.partition(".")[0] not in listed]
        assert left in ([], ["ckpt-1-3.index"]), left
        assert not [one for one in now if one.endswith((".mark", ".draft", ".part", ".tmp"))]
        assert left or "claims" not in kind, "of another name, and deleted"


def saves_beside(place: str, cases: list[tuple[str, str, int | None]]) -> None:
    make(f"{place}/template")
    for number, case in enumerate(cases):
        shutil.copytree(f"{place}/template", f"{place}/{number}", symlinks=True)
        print(case, flush=True)
        save_beside(Path(place, str(number)), *case)


# Whoever copies a run by hard links, as backups do, must be able to go on in it.
PAIRS = [pair for pair in itertools.product(NAMES, KINDS) if pair != (".tfckpt.lock", "hard link")]
LEFT = [("", kind) for kind in LEAVINGS]
EACH = [PAIRS[::3], [None]], pytest.param(PAIRS, [None, 4], marks=pytest.mark.long)


@pytest.mark.parametrize(("pairs", "numbers"), EACH, ids=["some", "all"])
def test_nothing_is_written_through_and_nothing_lost(server, tmp_path, pairs, numbers) -> None:
    cases = [(*pair, number) for number in numbers for pair in (*pairs, *LEFT)]
    requests = [
        ((HERE, "saves_beside"), str(tmp_path / str(part)), cases[part::2]) for part in range(2)
    ]
    outcomes = server.run_many(requests, timeout=600)
    assert [str(one) for one in outcomes if one.error] == []


# What is moved into quarantine

DATA = "ckpt-3.data-00000-of-00001"


def _linked(name: str) -> Callable[[Path], None]:
    """A file or directory of the run that a link leads to, outside of it."""

    def plant(run: Path) -> None:
        (run / name).rename(run.parent / "victim" / f"own {name}")
        (run / name).symlink_to(f"../victim/own {name}")

    return plant


def _move_begun(run: Path, into: str) -> None:
    digest = hashlib.sha256((run / "ckpt-3.index").read_bytes()).hexdigest()
    _mark(run, 3, f"move {digest} {into}\n".encode())


def _moved_through(run: Path) -> None:
    (run / "quarantine").symlink_to("../victim")
    _move_begun(run, "ckpt-3")


def _moved_to_a_link(run: Path) -> None:
    (run / "quarantine").mkdir()
    (run / "quarantine" / "ckpt-3").symlink_to("../../victim")
    _move_begun(run, "ckpt-3")


def _moved_elsewhere(run: Path) -> None:
    _move_begun(run, "../../victim")


QUARANTINE: dict[str, Callable[[Path], None]] = {
    "quarantine": lambda run: (run / "quarantine").symlink_to("../victim"),
    "quarantine in nothing": lambda run: (run / "quarantine").symlink_to("../victim/new"),
    "quarantine in itself": lambda run: (run / "quarantine").symlink_to("quarantine"),
    **{name: _linked(name) for name in (DATA, "ckpt-3.index", "ckpt-3.tfckpt.json", "checkpoint")},
    "a move that goes on": _moved_through,
    "a move to a link": _moved_to_a_link,
    "a move elsewhere": _moved_elsewhere,
}


@pytest.mark.parametrize("case", QUARANTINE)
def test_nothing_is_moved_through_a_link(tmp_path: Path, case: str) -> None:
    directory, victim, value = tmp_path / "run", tmp_path / "victim", tf.Variable(0.0)
    victim.mkdir()
    (victim / "ckpt-3").write_bytes(b"precious")
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(v=value), str(directory), None)
    paths = [manager.save() for _ in STEPS]
    with (directory / DATA).open("r+b") as file:
        file.write(b"damage")
    QUARANTINE[case](directory)
    outside = seen(victim)
    ended = run("verify", directory, "--quarantine")
    assert seen(victim) == outside
    if case in ("a move to a link", "a move elsewhere"):
        assert (names_of(manager), ended.err) == (["ckpt-1", "ckpt-2"], "")
    else:
        assert names_of(manager) == ["ckpt-1", "ckpt-2", "ckpt-3"]
        assert "is a symbolic link" in ended.err
        assert "nothing was" in ended.err
    manager.checkpoint.read(paths[1]).assert_consumed()
    assert manager.save() == manager.latest_checkpoint
    assert seen(victim) == outside
