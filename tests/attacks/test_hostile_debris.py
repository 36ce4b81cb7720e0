"""What looks like the leavings of a dead writer, and was put there: nothing sound is lost by it.

A writer finishes or undoes what a dead one began, by what it finds under the names that only
writers use. Whoever puts something else there must not make it delete or replace a checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attacks.forging import sealed_record
from attacks.trial import OWN, make_victim, manager_of, save, seen, values

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__)
RECORD = ".tfckpt.json"
DATA = ".data-00000-of-00001"


def _mark(run: Path, base: str, content: bytes = b"") -> None:
    (run / f"{base}.tfckpt.mark").write_bytes(content)


def _deletion(run: Path, base: str) -> bytes:
    """A mark of a deletion is the record."""
    return (run / f"{base}{RECORD}").read_bytes()


def mark(run: Path) -> None:
    _mark(run, "ckpt-3")


def mark_that_is_none(run: Path) -> None:
    _mark(run, "ckpt-3", b"garbage" * 1000)


def mark_of_a_deletion_of_another(run: Path) -> None:
    _mark(run, "ckpt-3", _deletion(run, "ckpt-2"))


def mark_without_a_checkpoint(run: Path) -> None:
    _mark(run, "ckpt-9", _deletion(run, "ckpt-3"))


def mark_that_is_a_link(run: Path) -> None:
    (run / "ckpt-3.tfckpt.mark").symlink_to("../victim/checkpoint")


def mark_that_is_a_link_to_a_checkpoint(run: Path) -> None:
    (run / "ckpt-3.tfckpt.mark").symlink_to("ckpt-2.index")


def mark_that_is_a_directory(run: Path) -> None:
    (run / "ckpt-9.tfckpt.mark" / "inner").mkdir(parents=True)
    (run / "ckpt-9.tfckpt.mark" / "inner" / "link").symlink_to("../../../victim")


def copy_of_the_record(run: Path) -> None:
    _mark(run, "ckpt-3")
    (run / "ckpt-3.tfckpt.draft").write_bytes((run / f"ckpt-3{RECORD}").read_bytes())


def draft_that_is_none(run: Path) -> None:
    _mark(run, "ckpt-3")
    (run / "ckpt-3.tfckpt.draft").write_bytes(b"garbage")


def draft_of_another(run: Path) -> None:
    _mark(run, "ckpt-3")
    (run / "ckpt-3.tfckpt.draft").write_bytes((run / f"ckpt-2{RECORD}").read_bytes())


def draft_without_a_checkpoint(run: Path) -> None:
    _mark(run, "ckpt-9")
    (run / "ckpt-9.tfckpt.draft").write_bytes((run / f"ckpt-3{RECORD}").read_bytes())


def draft_that_is_a_link(run: Path) -> None:
    _mark(run, "ckpt-3")
    (run / "ckpt-3.tfckpt.draft").symlink_to("../victim/checkpoint")


def part_that_is_a_link(run: Path) -> None:
    _mark(run, "ckpt-3")
    (run / "ckpt-3.tfckpt.part").symlink_to("../victim")


def part_with_a_checkpoint(run: Path) -> None:
    _mark(run, "ckpt-3")
    (run / "ckpt-3.tfckpt.part").mkdir()
    for end in (".index", RECORD, DATA):
        (run / "ckpt-3.tfckpt.part" / f"ckpt-3{end}").symlink_to(f"../../victim/{end}")


def record_that_claims_other_files(run: Path) -> None:
    """The oldest is released by the next save, with the files that its record names."""
    path = run / f"ckpt-1{RECORD}"
    tree = json.loads(path.read_bytes())
    names = [f"ckpt-2{DATA}", "../victim/checkpoint", "ckpt-1-3.index", "ckpt-1-x/../ckpt-2.index"]
    tree["files"] = [*tree.get("files", []), *names]
    path.write_bytes(sealed_record(tree))
    (run / "ckpt-1-3.index").write_bytes(b"of another name")


PLANTS: list[Callable[[Path], None]] = [
    mark,
    mark_that_is_none,
    mark_of_a_deletion_of_another,
    mark_without_a_checkpoint,
    mark_that_is_a_link,
    mark_that_is_a_link_to_a_checkpoint,
    mark_that_is_a_directory,
    copy_of_the_record,
    draft_that_is_none,
    draft_of_another,
    draft_without_a_checkpoint,
    draft_that_is_a_link,
    part_that_is_a_link,
    part_with_a_checkpoint,
    record_that_claims_other_files,
]


def a_save_beside(place: str, plant: str) -> None:
    case = Path(place)
    run, victim = case / "run", case / "victim"
    manager = manager_of(run)
    for step in (1, 2, 3):
        save(manager, step)
    make_victim(victim)
    before, outside = seen(run), seen(victim)
    globals()[plant](run)
    claimed = (run / "ckpt-1-3.index").exists()
    saved = save(manager_of(run, 3), 4)
    assert Path(saved).name in ("ckpt-4", "ckpt-10"), saved
    assert seen(victim) == outside, "outside was touched"
    now = seen(run)
    newer = [name for name in before if name.startswith(("ckpt-2", "ckpt-3"))]
    lost = [name for name in newer if name not in now or now[name][2] != before[name][2]]
    assert not lost, f"changed or deleted: {lost}"
    assert not claimed or (run / "ckpt-1-3.index").exists(), "a file of another name was deleted"
    for path, step in ((run / "ckpt-2", 2), (run / "ckpt-3", 3), (saved, 4)):
        values().set(0)
        manager.checkpoint.restore(str(path)).assert_consumed()
        assert values().step() == step, path
    listed = [Path(path).name for path in manager.checkpoints]
    assert listed[-3:] == ["ckpt-2", "ckpt-3", Path(saved).name], listed
    names = {name for base in listed for name in (base + ".index", base + RECORD, base + DATA)}
    assert set(now) - set(OWN) - {"ckpt-1-3.index"} <= names, list(now)


@pytest.mark.parametrize("plant", [plant.__name__ for plant in PLANTS])
def test_what_was_planted_costs_no_checkpoint(server, tmp_path, plant) -> None:
    server.run((HERE, "a_save_beside"), str(tmp_path), plant).result()
