"""Every way in which an index can be malformed, checksums valid; each gives the one error.

TensorFlow's own reader aborts the process on some of these.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import cramjam
import pytest

from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.table import read_table


def test_the_forge_itself_forges_nothing(forge: Any) -> None:
    forge.write_items(forge.items())
    assert forge.path.read_bytes() != forge.original
    with Bundle.open(forge.prefix) as bundle:
        forge.assert_original(bundle)


def _no_header(items: dict[bytes, Any]) -> None:
    del items[b""]


def _dtype(number: int) -> Any:
    def change(items: dict[bytes, Any]) -> None:
        items[b"a/kernel"] = bytes([0x08]) + _varint(number) + _tail(items[b"a/kernel"])

    return change


def _varint(number: int) -> bytes:
    code = bytearray()
    while number > 127:
        code.append(number & 127 | 128)
        number >>= 7
    return bytes([*code, number])


def _tail(entry: Any) -> bytes:
    entry.dtype = 0
    return entry.SerializeToString()


def _set(**fields: int) -> Any:
    def change(items: dict[bytes, Any]) -> None:
        for field, value in fields.items():
            setattr(items[b"a/kernel"], field, value)

    return change


def _shape(*sizes: int, unknown: bool = False, key: bytes = b"a/kernel") -> Any:
    def change(items: dict[bytes, Any]) -> None:
        shape = items[key].shape
        del shape.dim[:]
        for size in sizes:
            shape.dim.add(size=size)
        shape.unknown_rank = unknown

    return change


def _raw(value: bytes, key: bytes = b"a/kernel") -> Any:
    def change(items: dict[bytes, Any]) -> None:
        items[key] = value

    return change


def _append(value: bytes, key: bytes = b"a/kernel") -> Any:
    def change(items: dict[bytes, Any]) -> None:
        items[key] = items[key].SerializeToString() + value

    return change


def _overlap(items: dict[bytes, Any]) -> None:
    items[b"b/bias"].offset = items[b"a/kernel"].offset + 4


def _rename(old: bytes, new: bytes) -> Any:
    def change(items: dict[bytes, Any]) -> None:
        items[new] = items.pop(old)

    return change


def _slices(change_slices: Any) -> Any:
    def change(items: dict[bytes, Any]) -> None:
        change_slices(items[b"p/part"].slices)

    return change


def _piece(**fields: int) -> Any:
    def change(items: dict[bytes, Any]) -> None:
        piece = next(entry for key, entry in items.items() if key[:1] == b"\0")
        for field, value in fields.items():
            setattr(piece, field, value)

    return change


def _turned_piece(items: dict[bytes, Any]) -> None:
    piece = next(entry for key, entry in items.items() if key[:1] == b"\0")
    piece.shape.dim.reverse()


def _cut_checksum(items: dict[bytes, Any]) -> None:
    items[b"e/empty"] = items[b"e/empty"].SerializeToString()[:-1]


def _drop_piece(items: dict[bytes, Any]) -> None:
    del items[next(key for key in items if key[:1] == b"\0")]


def _moved_slice(slices: Any) -> None:
    slices[1].extent[0].start = 1


def _axis(slices: Any) -> None:
    slices[0].extent.add()


ENTRIES = {
    "no header": _no_header,
    "header is no message": _raw(b"\xff\xff", b""),
    "header has a negative shard count": _raw(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b""),
    "header has no shard": _raw(b"", b""),
    "header with a field of number 0": _append(b"\x00\x01", b""),
    "header has an unknown byte order": _raw(b"\x08\x01\x10\x05", b""),
    "dtype 0": _dtype(0),
    "dtype 99": _dtype(99),
    "dtype a reference": _dtype(101),
    "dtype of 64 bits": _dtype(2**63),
    "entry empty": _raw(b""),
    "entry cut in a field": _raw(b"\x08\x01\x12\x08\x12"),
    "entry cut in a number": _raw(b"\x08\x01\x28\x80"),
    "entry with an endless number": _raw(b"\x08" + b"\xff" * 30),
    "entry with a field of number 0": _append(b"\x00\x01"),
    "entry with a shape twice": _append(b"\x12\x04\x12\x02\x08\x02"),
    "entry with a checksum cut": _cut_checksum,
    "shape negative": _shape(-3, -4),
    "shape -1": _shape(-1),
    "shape of unknown rank": _shape(unknown=True, key=b"c/step"),
    "shape overflows": _shape(2**40, 2**40),
    "shape overflows beside a zero": _shape(2**62, 2**62, 0, key=b"e/empty"),
    "shape wraps to the right size": _shape(2**62 + 3, 4),
    "shape of 300 axes": _shape(*[1] * 298, 3, 4),
    "shape too large": _shape(3, 5),
    "shape too small": _shape(3, 3),
    "more strings than bytes": _shape(2**30, key=b"d/text"),
    "shard 1 of 1": _set(shard_id=1),
    "shard negative": _set(shard_id=-1),
    "offset negative": _set(offset=-8),
    "offset beyond the file": _set(offset=2**40),
    "offset so that the value ends beyond": _set(offset=200),
    "size negative": _set(size=-48),
    "size 0": _set(size=0),
    "size huge": _set(size=2**62),
    "two values overlap": _overlap,
    "key is not UTF-8": _rename(b"a/kernel", b"\xff\xfe"),
    "value under the key of a slice": _rename(b"a/kernel", b"\0a/kernel"),
    "slice missing": _drop_piece,
    "slice twice": _slices(lambda slices: slices.append(slices[0])),
    "slice left out": _slices(lambda slices: slices.pop()),
    "slice moved": _slices(_moved_slice),
    "slice with another rank": _slices(_axis),
    "slice with a negative start": _slices(lambda s: setattr(s[0].extent[0], "start", -1)),
    "slice with a huge length": _slices(lambda s: setattr(s[0].extent[0], "length", 2**62)),
    "slice of another dtype": _piece(dtype=3),
    "slice of another shape": _turned_piece,
    "slice that overlaps a value": _piece(offset=0),
}


@pytest.mark.parametrize("change", ENTRIES.values(), ids=ENTRIES.keys())
def test_a_forged_entry_is_refused_on_opening(forge: Any, change: Any) -> None:
    items = forge.items()
    change(items)
    forge.write_items(items)
    with pytest.raises(DamagedCheckpointError) as caught:
        Bundle.open(forge.prefix)
    assert caught.value.path.startswith(forge.prefix)


@pytest.mark.parametrize("more", [b"\x28\x30", b"\x43\x44"], ids=["a size twice", "a group"])
def test_what_protobuf_allows_is_read_as_tensorflow_reads_it(forge: Any, more: bytes) -> None:
    items = forge.items()
    _append(more)(items)
    forge.write_items(items)
    with Bundle.open(forge.prefix) as bundle:
        forge.assert_original(bundle)


def test_the_error_names_the_value(forge: Any) -> None:
    items = forge.items()
    items[b"a/kernel"].size = 44
    forge.write_items(items)
    with pytest.raises(DamagedCheckpointError, match="44 bytes") as caught:
        Bundle.open(forge.prefix)
    assert caught.value.name == "a/kernel"


def test_overlapping_slices_that_add_up_are_refused(forge: Any) -> None:
    items = forge.items()
    keys = [key for key in items if key[:1] == b"\0"]
    first = items[keys[0]]
    items[b"p/part"].slices[1].CopyFrom(items[b"p/part"].slices[0])
    items[b"p/part"].slices[1].extent[0].start = 1
    moved = keys[1].replace(b"\x82\x82\x80", b"\x81\x82\x80")
    items[moved] = items.pop(keys[1])
    assert first.size == items[moved].size
    forge.write_items(items)
    with pytest.raises(DamagedCheckpointError, match="overlap"):
        Bundle.open(forge.prefix)


def test_a_newer_version_is_unsupported_not_damaged(forge: Any) -> None:
    items = forge.items()
    items[b""].version.min_consumer = 2
    forge.write_items(items)
    with pytest.raises(UnsupportedCheckpointError, match="version 2"):
        Bundle.open(forge.prefix)


HEADER = b"\x08\x01"
EMPTY_VALUE = bytes([0x08, 3, 0x12, 2, 0x12, 0])


def _pairs(*keys: bytes) -> list[tuple[bytes, bytes]]:
    return [(key, EMPTY_VALUE if key else HEADER) for key in keys]


def _sound(t: Any) -> bytes:
    return t.table([t.plain_block(_pairs(b"", b"k"))], [b"k"])


def _block(content: bytes, *restarts: int) -> Any:
    """A table of the header and a block of this content."""

    def build(t: Any) -> bytes:
        body = content + struct.pack(f"<{len(restarts)}I", *restarts)
        return t.table([t.plain_block(_pairs(b"")), body], [b"a", b"z"])

    return build


def _handle(make: Any) -> Any:
    def build(t: Any) -> bytes:
        block = t.plain_block(_pairs(b"", b"k"))
        return t.table([block], [b"k"], handles=[make(t, len(block))])

    return build


def _blocks(bounds: list[bytes], *blocks: list[bytes]) -> Any:
    def build(t: Any) -> bytes:
        return t.table([t.plain_block(_pairs(*keys)) for keys in blocks], bounds)

    return build


def _swap(kind: int) -> Any:
    def build(t: Any) -> bytes:
        block = t.plain_block(_pairs(b"", b"k"))
        return _sound(t).replace(t.seal(block), t.seal(block, kind))

    return build


ENTRY = b"\0\1\6k" + EMPTY_VALUE
TABLES = {
    "empty": lambda t: b"",
    "one byte short of a footer": lambda t: b"\0" * 39 + t.MAGIC,
    "only a footer": lambda t: b"\0" * 40 + t.MAGIC,
    "wrong magic": lambda t: _sound(t)[:-8] + b"\0" * 8,
    "footer handles of 64 bits": lambda t: _sound(t)[:-48] + (b"\xff" * 9 + b"\1") * 4 + t.MAGIC,
    "footer handles endless": lambda t: _sound(t)[:-48] + b"\xff" * 40 + t.MAGIC,
    "checksum wrong": lambda t: b"\1" + _sound(t)[1:],
    "metaindex damaged": lambda t: _sound(t).replace(t.seal(t.plain_block([])), b"\1" * 13),
    "compression unknown": _swap(9),
    "not Snappy": _swap(1),
    "handle outside the file": _handle(lambda t, n: t.varint(2**40) + t.varint(n)),
    "handle of a size outside the file": _handle(lambda t, n: t.varint(0) + t.varint(2**63)),
    "handle cut": _handle(lambda t, n: b"\x80"),
    "handle with something behind": _handle(lambda t, n: t.varint(0) + t.varint(n) + b"\0"),
    "same block twice": lambda t: t.table(
        [t.plain_block(_pairs(b""))] * 2, [b"a", b"k"], handles=[t.varint(0) + t.varint(13)] * 2
    ),
    "blocks in the wrong order": _blocks([b"a", b"l", b"m"], [b""], [b"l"], [b"k"]),
    "keys in the wrong order": _blocks([b"l"], [b"", b"l", b"k"]),
    "key twice": _blocks([b"k"], [b"", b"k", b"k"]),
    "key twice, in two blocks": _blocks([b"k", b"l"], [b"", b"k"], [b"k"]),
    "bound below its block": _blocks([b"a"], [b"", b"k"]),
    "bound above the next block": _blocks([b"z", b"zz"], [b""], [b"k"]),
    "no blocks": _blocks([]),
    "block without keys first": _blocks([b"a", b"k"], [], [b"", b"k"]),
    "block too short": lambda t: t.table([b""], [b"k"]),
    "no restart points": _block(ENTRY, 0),
    "restart points beyond the block": _block(ENTRY, 0, 5, 2**31),
    "restart points not entries": _block(ENTRY, 0, 1, 2),
    "restart points out of order": _block(ENTRY + b"\0\1\6l" + EMPTY_VALUE, 10, 0, 2),
    "restart points not in order": _block(
        b"".join(b"\0\1\6" + key + EMPTY_VALUE for key in (b"k", b"l", b"m")), 0, 20, 10, 3
    ),
    "restart points do not start at 0": _block(ENTRY + b"\0\1\6l" + EMPTY_VALUE, 10, 1),
    "entry beyond the block": _block(b"\0\x7f\1k", 0, 1),
    "entry with an endless number": _block(b"\xff" * 20, 0, 1),
    "shares in the first entry": _block(b"\5\1\6k" + EMPTY_VALUE, 0, 1),
    "shares more than there is": _block(ENTRY + b"\2\1\6l" + EMPTY_VALUE, 0, 1),
}


@pytest.mark.parametrize("build", TABLES.values(), ids=TABLES.keys())
def test_a_forged_table_is_refused(tmp_path: Path, tables: Any, build: Any) -> None:
    (tmp_path / "ckpt-1.data-00000-of-00001").write_bytes(b"")
    (tmp_path / "ckpt-1.index").write_bytes(build(tables))
    with pytest.raises(DamagedCheckpointError):
        Bundle.open(str(tmp_path / "ckpt-1"))


def _snappy(t: Any) -> bytes:
    small = bytes(cramjam.snappy.compress_raw(t.plain_block(_pairs(b"", b"k"))))
    return t.table([small], [b"k"]).replace(t.seal(small), t.seal(small, 1))


@pytest.mark.parametrize(
    "build", [_sound, _snappy, _block(ENTRY, 0, 1), _blocks([b"a", b"l"], [b""], [b"k"])]
)
def test_tables_built_like_these_but_sound_are_read(
    tmp_path: Path, tables: Any, build: Any
) -> None:
    (tmp_path / "ckpt-1.data-00000-of-00001").write_bytes(b"")
    (tmp_path / "ckpt-1.index").write_bytes(build(tables))
    with Bundle.open(str(tmp_path / "ckpt-1")) as bundle:
        assert bundle.entries["k"].shape == (0,)


def test_keys_that_unfold_to_far_more_than_the_file_are_refused(tables: Any) -> None:
    size = 2_000
    body = b"\0" + tables.varint(size) + b"\0" + b"k" * size
    for number in range(1, 2_000):
        body += tables.varint(size + number - 1) + b"\x01\0" + b"k"
    table = tables.table([body + struct.pack("<II", 0, 1)], [b"l"])
    with pytest.raises(DamagedCheckpointError, match="expand to far more"):
        list(read_table(table, "ckpt-1.index"))


def test_a_block_inside_another_is_refused(tables: Any) -> None:
    inner = tables.plain_block([(b"z", b"v")])
    outer = tables.plain_block([(b"a" + tables.seal(inner), b"v")])
    places = [(0, len(outer)), (outer.index(inner), len(inner))]
    handles = [tables.varint(start) + tables.varint(size) for start, size in places]
    table = tables.table([outer], [b"b", b"z"], handles=handles)
    with pytest.raises(DamagedCheckpointError, match="points to an invalid block"):
        list(read_table(table, "ckpt-1.index"))


@pytest.mark.parametrize("field", ["offset", "size"])
def test_a_negative_number_is_refused_without_the_data_too(forge: Any, field: str) -> None:
    items = forge.items()
    setattr(items[b"d/text"], field, -8)
    forge.write_items(items)
    Path(f"{forge.prefix}.data-00000-of-00001").unlink()
    with pytest.raises(DamagedCheckpointError, match="negative"):
        Bundle.open(forge.prefix)


def test_a_negative_shape_is_named_as_such(forge: Any) -> None:
    items = forge.items()
    items[b"a/kernel"].shape.dim[0].size = -3
    forge.write_items(items)
    with pytest.raises(DamagedCheckpointError, match="negative size, -3"):
        Bundle.open(forge.prefix)


def test_a_snappy_bomb_is_refused(tmp_path: Path, tables: Any) -> None:
    index = tables.plain_block([(b"k", tables.varint(0) + tables.varint(8))])
    bomb = tables.seal(tables.varint(2**31) + b"\xfe\0\0", 1)
    data = bomb + tables.seal(tables.plain_block([])) + tables.seal(index)
    meta = tables.varint(len(bomb)) + tables.varint(8)
    place = tables.varint(len(bomb) + 13) + tables.varint(len(index))
    (tmp_path / "ckpt-1.index").write_bytes(data + (meta + place).ljust(40, b"\0") + tables.MAGIC)
    with pytest.raises(DamagedCheckpointError, match="2147483648 bytes"):
        Bundle.open(str(tmp_path / "ckpt-1"))
