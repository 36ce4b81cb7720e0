from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt.core.inventory import (
    LIST,
    ORDERS,
    SEQUENCE,
    Container,
    Entry,
    Inventory,
    Layer,
    Role,
    Root,
)
from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.commits import record_file

if TYPE_CHECKING:
    from tfckpt.stored.commits.record_file import CommitRecord

INDEX = b"the content of an index"
ENTRIES = [
    Entry("model/ä/kernel", Role.WEIGHT, "float32", (3, 4), 48, "model/k/.A/V", crc32c=2**32 - 1),
    Entry("optimizer/m/ä", Role.SLOT, "float32", (3, 4), 48, "o", "m", "model/ä/kernel", 0),
    Entry("optimizer/iterations", Role.ITERATIONS, "int64", (), 8, "i", crc32c=5),
    Entry("seed/dropout", Role.SEED, "uint32", (2,), 8, "s"),
    Entry("iterator", Role.OBJECT, "", None, 0, "it"),
    Entry("empty", Role.STATE, "float32", (0, 2**40)),
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
            "other": Container(SEQUENCE, (Layer("layer_with_weights-0"),)),
            "inner": Container(SEQUENCE, ()),
        }
    ),
    {"model/tied": "model/ä"},
    {"optimizer": "adam", "other": ""},
    complete=True,
    roots={"net": Root("model", "model"), "": Root("optimizer", "optimizer"), "step": Root("step")},
)
RECORD = record_file.CommitRecord(
    number=12,
    inventory=INVENTORY,
    index_sha256=hashlib.sha256(INDEX).hexdigest(),
    created="2025-01-31T12:00:00+00:00",
    step=6000,
    epoch=None,
    metrics={"val_loss": 0.1, "best": float("inf")},
    training={"callbacks": {"patience": [1, None, True, "x", 1e-300]}},
    versions={"tfckpt": "0.1.0", "tensorflow": "2.21.0"},
)


def written(prefix: str, record: CommitRecord) -> None:
    Path(record_file.path_of(prefix)).write_bytes(record_file.render(record))


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    (tmp_path / "ckpt-12.index").write_bytes(INDEX)
    return str(tmp_path / "ckpt-12")


def test_a_record_round_trips_exactly(prefix: str) -> None:
    written(prefix, RECORD)
    read = record_file.read(prefix)
    assert read == dataclasses.replace(
        RECORD, inventory=dataclasses.replace(INVENTORY, source=prefix)
    )
    assert list(read.inventory.entries) == list(INVENTORY.entries)
    assert {type(entry.role) for entry in read.inventory.entries.values()} == {Role}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
NATURAL = st.integers(0, 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | NATURAL | st.floats(allow_nan=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
ENTRY = st.builds(
    Entry,
    NAMES.filter(bool),
    st.sampled_from(Role),
    NAMES,
    st.none() | st.lists(NATURAL, max_size=3).map(tuple),
    NATURAL,
    NAMES,
    NAMES,
    NAMES,
    st.none() | st.integers(0, 2**32 - 1),
)
TRUTH = st.booleans()
LAYER = st.tuples(NAMES, NAMES, TRUTH, st.none() | TRUTH, NAMES, NATURAL, NAMES, NAMES, NAMES).map(
    lambda fields: Layer(*fields)
)
HELD = st.builds(
    Container,
    st.sampled_from([SEQUENCE, LIST]),
    st.lists(LAYER, max_size=3).map(tuple),
    st.sampled_from(ORDERS),
    st.lists(NATURAL, max_size=2).map(tuple),
)


@given(
    st.lists(ENTRY, max_size=4, unique_by=lambda entry: entry.name),
    st.dictionaries(NAMES, HELD, max_size=3),
    st.dictionaries(NAMES, st.floats(allow_nan=False)),
    st.dictionaries(NAMES, JSON, max_size=3),
    st.dictionaries(NAMES, NAMES, max_size=3),
    st.fixed_dictionaries(
        {
            "finite": st.none() | st.booleans(),
            "run_began": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "run": st.none() | st.text(max_size=20),
            "preserved": st.lists(NATURAL, max_size=3).map(tuple),
            "files": st.sampled_from([(), ("ckpt-1.data-00000-of-00001", "ckpt-1-saver.bin")]),
        }
    ),
    st.booleans(),
)
def test_any_record_round_trips_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[Entry],
    containers: Any,
    metrics: Any,
    training: Any,
    left_out: Any,
    more: Any,
    complete: bool,
) -> None:
    prefix = str(tmp_path_factory.mktemp("record") / "ckpt-1")
    Path(f"{prefix}.index").write_bytes(INDEX)
    inventory = Inventory(
        prefix,
        {entry.name: entry for entry in entries},
        containers,
        complete=complete,
        left_out=left_out,
    )
    given = {"metrics": metrics, "training": training, **more}
    record = dataclasses.replace(RECORD, inventory=inventory, **given)
    written(prefix, record)
    assert record_file.read(prefix) == record


def test_its_file_is_json_with_one_value_per_line_and_always_the_same(prefix: str) -> None:
    written(prefix, RECORD)
    data = Path(record_file.path_of(prefix)).read_bytes()
    tree = json.loads(data)
    assert [entry[0] for entry in tree["entries"]] == list(INVENTORY.entries)
    assert [
        json.loads(line.rstrip(",")) for line in data.decode().splitlines() if line[:2] == '["'
    ] == tree["entries"]
    other = dataclasses.replace(RECORD, metrics=dict(reversed(RECORD.metrics.items())))
    assert record_file.render(other) == data


def test_the_files_of_a_copy_have_its_name(prefix: str) -> None:
    files = ("ckpt-12.data-00000-of-00002", "ckpt-12-saver", "ckpt-12.data-00001-of-00002")
    written(prefix, dataclasses.replace(RECORD, files=files))
    copy = f"{Path(prefix).parent / 'best'}"
    Path(record_file.path_of(copy)).write_bytes(Path(record_file.path_of(prefix)).read_bytes())
    Path(f"{copy}.index").write_bytes(INDEX)
    named = tuple(file.replace("ckpt-12", "best") for file in files)
    assert record_file.read(copy).files == named


def test_a_record_never_vouches_for_another_index(prefix: str) -> None:
    written(prefix, RECORD)
    Path(f"{prefix}.index").write_bytes(INDEX + b".")
    assert record_file.read(prefix) is None
    Path(f"{prefix}.index").unlink()
    with pytest.raises(DamagedCheckpointError, match="index is missing"):
        record_file.read(prefix)


def test_any_damage_to_the_file_is_found(prefix: str) -> None:
    path = Path(record_file.path_of(prefix))
    sound = record_file.render(RECORD)
    damaged = [sound[:length] for length in range(len(sound))]
    damaged += [sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :] for at in range(len(sound))]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(DamagedCheckpointError) as caught:
            record_file.read(prefix)
        assert caught.value.path == str(path)


def _sealed(text: str) -> bytes:
    body = text.encode()
    return body + b',\n"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def _changed(**changes: Any) -> bytes:
    return _sealed(_text(**changes)[:-1])


def _text(**changes: Any) -> str:
    tree = json.loads(record_file.render(RECORD))
    del tree["sha256"]
    for name, value in changes.items():
        if value is ...:
            del tree[name]
        else:
            tree[name] = value
    return json.dumps(tree)


ENTRY = ["model/a", "weight", "float32", [2], 8, "model/a", "", "", 7]


def _entry(*changes: Any) -> bytes:
    """Fields of a value, by number, and what they are instead."""
    entry = list(ENTRY)
    for number, value in zip(changes[::2], changes[1::2], strict=True):
        entry[number] = value
    return _changed(entries=[entry])


LAYER_FIELDS = ["dense", "dense", True, False, "dense", 0, "", "", ""]


def _held(layer: Any) -> bytes:
    return _changed(containers={"model": ["sequence", [layer], "all", [1]]})


FORGED = {
    "nested too deeply": _sealed('{"format": ' + "[" * 100_000),
    "nested too deeply, closed": _sealed('{"training": ' + "[" * 100_000 + "]" * 100_000),
    "a number of a million digits": _sealed('{"number": ' + "9" * 1_000_000),
    "a number of 30 digits in what is not looked at": _changed(training={"x": 10**29}),
    "not JSON": _sealed("{format: 1"),
    "not UTF-8": _sealed('{"format": 1')[:3] + b"\xff",
    "a list": _sealed('{"x": [')[:-3] + b"]",
    "no format": _changed(format=...),
    "format a text": _changed(format="1"),
    "format true": _changed(format=True),
    "number negative": _changed(number=-1),
    "number too large": _changed(number=2**63),
    "number a float": _changed(number=12.0),
    "no inventory": _changed(entries=...),
    "entries a dict": _changed(entries={}),
    "entry a list": _changed(entries=[["model/a"]]),
    "entry null": _changed(entries=[None]),
    "step a text": _changed(step="6000"),
    "epoch negative": _changed(epoch=-1),
    "metric a text": _changed(metrics={"val_loss": "low"}),
    "metric a boolean": _changed(metrics={"val_loss": True}),
    "training a list": _changed(training=[]),
    "version a number": _changed(versions={"tfckpt": 1}),
    "created a number": _changed(created=0),
    "created no time": _changed(created="yesterday"),
    "created without a zone": _changed(created="2025-01-31T12:00:00"),
    "created in another zone": _changed(created="2025-01-31T12:00:00+01:00"),
    "digest a number": _changed(index_sha256=5),
    "complete a number": _changed(complete=1),
    "two objects of one name": _changed(
        roots={"model": ["model", "model"], "step": ["model", ""]},
        entries=[[name, *ENTRY[1:]] for name in ("model/a", "step")],
    ),
    "finite a number": _changed(finite=1),
    "run_began infinite": _changed(run_began=float("inf")),
    "run a number": _changed(run=1),
    "preserved a text": _changed(preserved=["3"]),
    "left_out without a reason": _changed(left_out={"iterator": None}),
    "files of two checkpoints": _changed(
        files=["ckpt-7.data-00000-of-00001", "ckpt-12.data-00000-of-00001"]
    ),
    "a file of another directory": _changed(files=["../ckpt-1-saver"]),
    "the index among the files": _changed(files=["ckpt-1-2.index"]),
    "container a text": _changed(containers={"model": "dense"}),
    "container of an unknown kind": _changed(containers={"model": ["pile", [], "all", []]}),
    "container with a text for a size": _changed(containers={"model": ["list", [], "all", ["2"]]}),
    "layer a text": _held("dense"),
    "layer of eight": _held(LAYER_FIELDS[:-1]),
    "layer with a number for a name": _held([1, *LAYER_FIELDS[1:]]),
    "layer with a text for a truth": _held([*LAYER_FIELDS[:2], "", *LAYER_FIELDS[3:]]),
    "alias a list": _changed(aliases={"a": ["b"]}),
    "optimizer null": _changed(optimizers={"optimizer": None}),
    "layer with what only live layers have": _held([*LAYER_FIELDS, True, "a", []]),
    "container of an unknown order": _changed(containers={"model": ["list", [], "none", []]}),
    "entry of eight fields": _changed(entries=[ENTRY[:-1]]),
    "entry of ten fields": _changed(entries=[[*ENTRY, 1]]),
    "entry an object": _changed(entries=[{"name": "model/a", "role": "weight"}]),
    "entry with an empty name": _entry(0, ""),
    "entry with a number for a name": _entry(0, 1),
    "entry without a size": _entry(3, [None]),
    "entry of an unknown role": _entry(1, "wheel"),
    "entry with a negative size": _entry(3, [-1]),
    "entry with a size too large": _entry(3, [2**63]),
    "entry with a size of many digits": _entry(3, [10**3000]),
    "entry with a boolean size": _entry(3, [True]),
    "entry with a text for bytes": _entry(4, "8"),
    "entry with a checksum too large": _entry(8, 2**32),
    "entry with a key that is none": _entry(5, 5),
    "entries nested too deeply": _sealed(_text(entries=[])[:-2] + "[" * 100_000),
    "what follows the entries": _changed(entries=[], more=1),
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED.keys())
def test_a_forged_record_is_the_one_error(prefix: str, data: bytes) -> None:
    path = Path(record_file.path_of(prefix))
    path.write_bytes(data)
    with pytest.raises(DamagedCheckpointError) as caught:
        record_file.read(prefix)
    assert caught.value.path == str(path)


def test_two_values_of_one_name_are_refused(prefix: str) -> None:
    Path(record_file.path_of(prefix)).write_bytes(_changed(entries=[ENTRY, ENTRY]))
    with pytest.raises(DamagedCheckpointError, match="two values have this name"):
        record_file.read(prefix)


def test_a_record_of_a_newer_tfckpt_says_so(prefix: str) -> None:
    Path(record_file.path_of(prefix)).write_bytes(_changed(format=2))
    with pytest.raises(UnsupportedCheckpointError, match="newer tfckpt"):
        record_file.read(prefix)


WRITTEN = set(json.loads(record_file.render(RECORD))) - {"format", "entries", "sha256"}


@pytest.mark.parametrize("field", sorted(WRITTEN))
def test_a_record_that_lacks_a_field_is_damage(prefix: str, field: str) -> None:
    path = Path(record_file.path_of(prefix))
    path.write_bytes(_changed(**{field: ...}))
    with pytest.raises(DamagedCheckpointError, match=f"missing required field `{field}`") as caught:
        record_file.read(prefix)
    assert caught.value.path == str(path)
