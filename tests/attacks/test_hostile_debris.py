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


def _staging(run: Path, base: str, **content: Path | bytes | None) -> None:
    """A staging directory of a base; a path is copied, None is a link to the victim's file."""
    staging = run / f"{base}.01234567.tmp"
    staging.mkdir()
    for name, what in content.items():
        target = staging / (base + {"index": ".index", "record": RECORD, "data": DATA}[name])
        if what is None:
            target.symlink_to("../../victim/checkpoint")
        else:
            target.write_bytes(what if isinstance(what, bytes) else what.read_bytes())


def _parts(run: Path, base: str) -> dict[str, Path | bytes | None]:
    names = {"index": ".index", "record": RECORD, "data": DATA}
    return {part: run / (base + name) for part, name in names.items()}


def whole_copy(run: Path) -> None:
    _staging(run, "ckpt-3", **_parts(run, "ckpt-3"))


def copy_without_data(run: Path) -> None:
    _staging(run, "ckpt-3", **{**_parts(run, "ckpt-3"), "data": b""})
    (run / "ckpt-3.01234567.tmp" / f"ckpt-3{DATA}").unlink()


def copy_of_the_record(run: Path) -> None:
    _staging(run, "ckpt-3", record=run / f"ckpt-3{RECORD}")


def record_that_is_none(run: Path) -> None:
    _staging(run, "ckpt-3", record=b"garbage")


def record_of_another(run: Path) -> None:
    _staging(run, "ckpt-3", record=run / f"ckpt-2{RECORD}")


def record_without_a_checkpoint(run: Path) -> None:
    _staging(run, "ckpt-9", record=run / f"ckpt-3{RECORD}")


def index_that_is_none(run: Path) -> None:
    _staging(run, "ckpt-3", index=b"garbage")


def links(run: Path) -> None:
    _staging(run, "ckpt-3", index=None, record=None, data=None)


def record_that_is_a_link(run: Path) -> None:
    _staging(run, "ckpt-3", record=None)


def link_to_a_checkpoint_elsewhere(run: Path) -> None:
    (run / "ckpt-3.01234567.tmp").symlink_to("../victim")


def directories_in_it(run: Path) -> None:
    staging = run / "ckpt-9.01234567.tmp" / "ckpt-9.index" / "inner"
    staging.mkdir(parents=True)
    (staging / "link").symlink_to("../../../../victim")


def marker_beside_a_record(run: Path) -> None:
    (run / "ckpt-3.tfckpt.deleted").write_bytes(b"garbage")


def record_that_claims_other_files(run: Path) -> None:
    """The oldest is released by the next save, with the files that its record names."""
    path = run / f"ckpt-1{RECORD}"
    tree = json.loads(path.read_bytes())
    names = [f"ckpt-2{DATA}", "../victim/checkpoint", "ckpt-1-3.index", "ckpt-1-x/../ckpt-2.index"]
    tree["files"] = [*tree.get("files", []), *names]
    path.write_bytes(sealed_record(tree))
    (run / "ckpt-1-3.index").write_bytes(b"of another name")


PLANTS: list[Callable[[Path], None]] = [
    whole_copy,
    copy_without_data,
    copy_of_the_record,
    record_that_is_none,
    record_of_another,
    record_without_a_checkpoint,
    index_that_is_none,
    links,
    record_that_is_a_link,
    link_to_a_checkpoint_elsewhere,
    directories_in_it,
    marker_beside_a_record,
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
