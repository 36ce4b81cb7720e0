"""The commit record: what is written is read, and what is not as it was written is damage."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tfckpt.core.inventory import (
    LIST,
    SEQUENCE,
    Container,
    Entry,
    Inventory,
    Layer,
    Origin,
    Restored,
    Role,
    Root,
)
from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.commits import record_file

INDEX = b"the content of an index"
ENTRIES = [
    Entry("model/ä/kernel", Role.WEIGHT, "float32", (3, 4), 48, "model/k/.A/V", crc32c=2**32 - 1),
    Entry("optimizer/m/ä", Role.SLOT, "float32", (3, 4), 48, "o", "m", "model/ä/kernel", 0),
    Entry("optimizer/iterations", Role.ITERATIONS, "int64", (), 8, "i", crc32c=5),
    Entry("iterator", Role.OBJECT, "", None, 0, "it"),
    Entry("empty", Role.STATE, "float32", (0, 2**40)),
    Entry('any "name"],\n\u2028\0\x7f\U0001f600', Role.METRIC, "", (), 2**63 - 1, '"entries": ['),
]
INVENTORY = Inventory(
    "the live objects",
    {entry.name: entry for entry in ENTRIES},
    MappingProxyType(
        {
            "model": Container(
                SEQUENCE, (Layer("dense_1", "dense_4", True), Layer("head")), sizes=(4, 5)
            ),
            "model/blocks": Container(LIST, (Layer("0", "mine", given=True), Layer("1"))),
            "inner": Container(SEQUENCE, ()),
        }
    ),
    {"model/tied": "model/ä"},
    {"optimizer": "adam", "other": ""},
    complete=True,
    private={"model": "a"},
    roots={"net": Root("model", "model"), "": Root("optimizer", "optimizer"), "step": Root("step")},
    left_out={"iterator": "it has no state"},
)
ORIGIN = Origin("zoo/a", "e3", "finetune", "44")
RECORD = record_file.CommitRecord(
    number=12,
    inventory=INVENTORY,
    index_sha256=hashlib.sha256(INDEX).hexdigest(),
    created="2025-01-31T12:00:00+00:00",
    step=6000,
    epoch=3,
    finite=True,
    metrics={"val_loss": 0.1, "best": float("inf")},
    metadata={"entries": ['"entries": [']},
    best_by=("val_loss", "min"),
    training={"callbacks": {"patience": [1, None, True, "x", 1e-300]}},
    versions={"tfckpt": "0.1.0", "tensorflow": "2.21.0"},
    run_began=1.5,
    run="a",
    files=("ckpt-12.data-00000-of-00001", "ckpt-12-saver"),
    preserved=(3,),
    lineage=(Restored((ORIGIN,), {"LOADED": 2}),),
)
RENDERED = record_file.render(RECORD)


@pytest.fixture
def prefix(tmp_path) -> str:
    (tmp_path / "ckpt-12.index").write_bytes(INDEX)
    return str(tmp_path / "ckpt-12")


def read(prefix: str, data: bytes) -> Any:
    Path(record_file.path_of(prefix)).write_bytes(data)
    return record_file.read(prefix)


def test_a_record_round_trips_exactly(prefix) -> None:
    found = read(prefix, RENDERED)
    inventory = dataclasses.replace(INVENTORY, source=prefix)
    assert found == dataclasses.replace(RECORD, inventory=inventory)
    assert list(found.inventory.entries) == list(INVENTORY.entries)
    assert {type(entry.role) for entry in found.inventory.entries.values()} == {Role}
    head = record_file.parse(RENDERED, "record", prefix, head=True)
    assert (head.lineage, head.inventory.entries) == (RECORD.lineage, {})


def test_its_file_is_json_with_one_value_per_line_and_always_the_same() -> None:
    tree = json.loads(RENDERED)
    assert [entry[0] for entry in tree["entries"]] == list(INVENTORY.entries)
    lines = [line.rstrip(",") for line in RENDERED.decode().split("\n") if line[:2] == '["']
    assert [json.loads(line) for line in lines] == tree["entries"]
    other = dataclasses.replace(RECORD, metrics=dict(reversed(RECORD.metrics.items())))
    assert record_file.render(other) == RENDERED


def test_the_files_of_a_copy_have_its_name(prefix) -> None:
    copy = f"{Path(prefix).parent / 'best'}"
    Path(f"{copy}.index").write_bytes(INDEX)
    assert read(copy, RENDERED).files == ("best.data-00000-of-00001", "best-saver")


def test_a_record_never_vouches_for_another_index(prefix) -> None:
    Path(f"{prefix}.index").write_bytes(INDEX + b".")
    assert read(prefix, RENDERED) is None
    Path(f"{prefix}.index").unlink()
    with pytest.raises(DamagedCheckpointError, match="index is missing"):
        record_file.read(prefix)


def refused(prefix: str, data: bytes) -> str:
    with pytest.raises(DamagedCheckpointError) as caught:
        read(prefix, data)
    assert caught.value.path == record_file.path_of(prefix)
    return str(caught.value)


def test_any_damage_to_the_file_is_found() -> None:
    for at in range(len(RENDERED)):
        for data in (RENDERED[:at], RENDERED[:at] + bytes([RENDERED[at] ^ 4]) + RENDERED[at + 1 :]):
            with pytest.raises(DamagedCheckpointError, match="the record's path"):
                record_file.parse(data, "the record's path", "ckpt-12")


# What was made to have the right checksum


def sealed(text: str | bytes) -> bytes:
    body = text.encode() if isinstance(text, str) else text
    return body + b',\n"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


TREE = {**json.loads(RENDERED), "metadata": {}}
del TREE["sha256"]


def text(**changes: Any) -> str:
    return json.dumps({n: v for n, v in {**TREE, **changes}.items() if v is not ...})


def changed(**changes: Any) -> bytes:
    return sealed(text(**changes)[:-1])


ENTRY_FIELDS = ["model/a", "weight", "float32", [2], 8, "model/a", "", "", 7]
LAYER_FIELDS = ["dense", "dense", True, False, "dense", 0, "", "", ""]


def entry(number: int, value: Any) -> bytes:
    return changed(entries=[[*ENTRY_FIELDS[:number], value, *ENTRY_FIELDS[number + 1 :]]])


def held(*layers: Any, kind: str = "sequence", order: str = "all") -> bytes:
    return changed(containers={"model": [kind, layers, order, [1]]})


def lineage(**counts: Any) -> bytes:
    (restored,) = TREE["lineage"]
    return changed(lineage=[{**restored, "counts": counts}])


ANOTHERS = {"roots": {"model": ["model", "model"], "step": ["model", ""]}}
FORGED = {
    "nested too deeply": sealed('{"format": ' + "[" * 100_000),
    "nested too deeply, closed": sealed('{"training": ' + "[" * 100_000 + "]" * 100_000),
    "entries nested too deeply": sealed(text(entries=[])[:-2] + "[" * 100_000),
    "a number of a million digits": sealed('{"number": ' + "9" * 1_000_000),
    "a number of 30 digits in what is not looked at": changed(training={"x": 10**29}),
    "a size of many digits": entry(3, [10**3000]),
    "not JSON": sealed("{format: 1"),
    "not UTF-8": sealed('{"format": 1')[:3] + b"\xff",
    "a list": sealed('{"x": [')[:-3] + b"]",
    "no format": changed(format=...),
    "no entries": changed(entries=...),
    "what follows the entries": changed(entries=[], more=1),
    "a negative number": changed(number=-1),
    "a number too large": changed(number=2**63),
    "a negative epoch": changed(epoch=-1),
    "a negative size": entry(3, [-1]),
    "a size too large": entry(3, [2**63]),
    "created no time": changed(created="yesterday"),
    "created without a zone": changed(created="2025-01-31T12:00:00"),
    "created in another zone": changed(created="2025-01-31T12:00:00+01:00"),
    "run_began infinite": changed(run_began=float("inf")),
    "two objects of one name": changed(
        **ANOTHERS, entries=[[name, *ENTRY_FIELDS[1:]] for name in ("model/a", "step")]
    ),
    "two values of one name": changed(entries=[ENTRY_FIELDS, ENTRY_FIELDS]),
    "files of two checkpoints": changed(files=[f"ckpt-{n}.data-00000-of-00001" for n in (7, 12)]),
    "a file of another directory": changed(files=["../ckpt-1-saver"]),
    "the index among the files": changed(files=["ckpt-1-2.index"]),
    "an unknown kind of container": held(LAYER_FIELDS, kind="pile"),
    "an unknown order": held(LAYER_FIELDS, order="none"),
    "a layer of eight fields": held(LAYER_FIELDS[:-1]),
    "a layer with what only live layers have": held([*LAYER_FIELDS, True, "a", []]),
    "an entry of eight fields": changed(entries=[ENTRY_FIELDS[:-1]]),
    "an entry of ten fields": changed(entries=[[*ENTRY_FIELDS, 1]]),
    "an empty name": entry(0, ""),
    "an unknown role": entry(1, "wheel"),
    "a checksum too large": entry(8, 2**32),
    "a negative count": lineage(LOADED=-1),
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED.keys())
def test_a_forged_record_is_the_one_error(prefix, data) -> None:
    refused(prefix, data)


def places(tree: Any, *path: Any):
    """The paths of all values, but for those in what is the caller's own."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*path, key)
        if isinstance(value, (dict, list)) and key not in FREE:
            yield from places(value, *path, key)


FREE = {"metadata", "training"}
NONE_TOO = {"epoch", "step", "best_by", "finite", "private", "run", "run_began"}
WRONG = ["wrong", -1, 12.5, True, None, [], {}, [None], {"a": None}]


def test_every_field_has_its_kind(prefix) -> None:
    tried = 0
    for path in places(TREE):
        for wrong in WRONG:
            tree = place = copy.deepcopy(TREE)
            for key in path[:-1]:
                place = place[key]
            old, place[path[-1]] = place[path[-1]], wrong
            own = type(old) is type(wrong) and (path[-1] in FREE or wrong not in WRONG[-2:])
            none = path[0] in {*NONE_TOO, "entries", "containers"} and None in (old, wrong)
            if not own and not none and (type(old), type(wrong)) != (float, int):
                with pytest.raises(DamagedCheckpointError):
                    pytest.fail(f"{path}: {wrong}, {read(prefix, sealed(json.dumps(tree)[:-1]))}")
                tried += 1
    assert tried > 500


def test_a_record_of_a_newer_tfckpt_says_so(prefix) -> None:
    with pytest.raises(UnsupportedCheckpointError, match="newer tfckpt"):
        read(prefix, changed(format=2))


@pytest.mark.parametrize("field", sorted({*TREE} - {"format", "entries"}))
def test_a_record_that_lacks_a_field_is_damage(prefix, field) -> None:
    assert f"missing required field `{field}`" in refused(prefix, changed(**{field: ...}))
