"""Every way in which an index can be malformed, checksums valid; each gives the one error.

TensorFlow's own reader aborts the process on some of these.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import cramjam
import pytest
from attacks.forging import MAGIC, plain_block, seal, table, varint

from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.table import read_table

Items = dict[bytes, Any]
KERNEL, BIAS, STEP = b"a/kernel", b"b/bias", b"c/step"
TEXT, NONE, PART = b"d/text", b"e/empty", b"p/part"


def piece(items: Items) -> Any:
    """The entry of the first of two slices."""
    return items[pieces(items)[0]]


def pieces(items: Items) -> list[bytes]:
    return sorted(key for key in items if key[:1] == b"\0")


def dtype(items: Items, number: int) -> None:
    items[KERNEL].dtype = 0
    items[KERNEL] = b"\x08" + varint(number) + items[KERNEL].SerializeToString()


def shape(items: Items, key: bytes, *sizes: int) -> None:
    del items[key].shape.dim[:]
    for size in sizes:
        items[key].shape.dim.add(size=size)


def append(items: Items, key: bytes, more: bytes) -> None:
    items[key] = items[key].SerializeToString() + more


def slices(items: Items) -> Any:
    return items[PART].slices


def moved_piece(items: Items) -> None:
    """The second slice is said to begin at row 1, where the first one still is."""
    key = pieces(items)[1]
    slices(items)[1].CopyFrom(slices(items)[0])
    slices(items)[1].extent[0].start = 1
    items[key.replace(b"\x82\x82\x80", b"\x81\x82\x80")] = items.pop(key)


# name → what is done to the items of the index; and what the error says, where that matters
ENTRIES: dict[str, Any] = {
    "no header": lambda i: i.pop(b""),
    "header is no message": lambda i: i.update({b"": b"\xff\xff"}),
    "header has a negative shard count": lambda i: i.update({b"": b"\x08" + b"\xff" * 9 + b"\x01"}),
    "header has no shard": lambda i: i.update({b"": b""}),
    "header with a field of number 0": lambda i: append(i, b"", b"\x00\x01"),
    "header has an unknown byte order": lambda i: i.update({b"": b"\x08\x01\x10\x05"}),
    "dtype 0": lambda i: dtype(i, 0),
    "dtype 99": lambda i: dtype(i, 99),
    "dtype a reference": lambda i: dtype(i, 101),
    "dtype of 64 bits": lambda i: dtype(i, 2**63),
    "entry empty": lambda i: i.update({KERNEL: b""}),
    "entry cut in a field": lambda i: i.update({KERNEL: b"\x08\x01\x12\x08\x12"}),
    "entry cut in a number": lambda i: i.update({KERNEL: b"\x08\x01\x28\x80"}),
    "entry with an endless number": lambda i: i.update({KERNEL: b"\x08" + b"\xff" * 30}),
    "entry with a field of number 0": lambda i: append(i, KERNEL, b"\x00\x01"),
    "entry with a shape twice": lambda i: append(i, KERNEL, b"\x12\x04\x12\x02\x08\x02"),
    "entry with a checksum cut": lambda i: i.update({NONE: i[NONE].SerializeToString()[:-1]}),
    "shape negative": (lambda i: shape(i, KERNEL, -3, -4), "negative size, -3"),
    "shape -1": lambda i: shape(i, KERNEL, -1),
    "shape of unknown rank": lambda i: setattr(i[STEP].shape, "unknown_rank", True),
    "shape overflows": lambda i: shape(i, KERNEL, 2**40, 2**40),
    "shape overflows beside a zero": lambda i: shape(i, NONE, 2**62, 2**62, 0),
    "shape of more bytes than a number has, beside a zero": lambda i: shape(i, NONE, 2**60, 0),
    "shape wraps to the right size": lambda i: shape(i, KERNEL, 2**62 + 3, 4),
    "shape of 300 axes": lambda i: shape(i, KERNEL, *[1] * 298, 3, 4),
    "shape too large": lambda i: shape(i, KERNEL, 3, 5),
    "shape too small": lambda i: shape(i, KERNEL, 3, 3),
    "more strings than bytes": lambda i: shape(i, TEXT, 2**30),
    "shard 1 of 1": lambda i: setattr(i[KERNEL], "shard_id", 1),
    "shard negative": lambda i: setattr(i[KERNEL], "shard_id", -1),
    "offset negative": (lambda i: setattr(i[TEXT], "offset", -8), "negative"),
    "offset beyond the file": lambda i: setattr(i[KERNEL], "offset", 2**40),
    "offset so that the value ends beyond": lambda i: setattr(i[KERNEL], "offset", 200),
    "size negative": (lambda i: setattr(i[TEXT], "size", -48), "negative"),
    "size 0": lambda i: setattr(i[KERNEL], "size", 0),
    "size 44": (lambda i: setattr(i[KERNEL], "size", 44), r"value 'a/kernel'.*44 bytes"),
    "size huge": lambda i: setattr(i[KERNEL], "size", 2**62),
    "two values share a byte": lambda i: setattr(i[BIAS], "offset", i[KERNEL].offset + 47),
    "key is not UTF-8": lambda i: i.update({b"\xff\xfe": i.pop(KERNEL)}),
    "value under the key of a slice": lambda i: i.update({b"\0a/kernel": i.pop(KERNEL)}),
    "slice missing": lambda i: i.pop(pieces(i)[0]),
    "slice twice": lambda i: slices(i).append(slices(i)[0]),
    "slice left out": lambda i: slices(i).pop(),
    "slice moved": lambda i: setattr(slices(i)[1].extent[0], "start", 1),
    "slice moved over the other": (moved_piece, "overlap"),
    "slice with another rank": lambda i: slices(i)[0].extent.add(),
    "slice with a negative start": lambda i: setattr(slices(i)[0].extent[0], "start", -1),
    "slice with a huge length": lambda i: setattr(slices(i)[0].extent[0], "length", 2**62),
    "slice of another dtype": lambda i: setattr(piece(i), "dtype", 3),
    "slice of another shape": lambda i: piece(i).shape.dim.reverse(),
    "slice that overlaps a value": lambda i: setattr(piece(i), "offset", 0),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_forged_entry_is_refused_on_opening(forge: Any, name: str) -> None:
    entry, items = ENTRIES[name], forge.items()
    change, says = entry if isinstance(entry, tuple) else (entry, r"ckpt-1\.")
    change(items)
    forge.write_items(items)
    with pytest.raises(DamagedCheckpointError, match=says) as caught:
        Bundle.open(forge.prefix)
    assert caught.value.path.startswith(forge.prefix)
    if says == "negative":  # it is seen without the data, too
        forge.data.unlink()
        with pytest.raises(DamagedCheckpointError, match=says):
            Bundle.open(forge.prefix)


@pytest.mark.parametrize(
    "more", [b"", b"\x28\x30", b"\x43\x44"], ids=["", "a size twice", "a group"]
)
def test_what_protobuf_allows_is_read_as_tensorflow_reads_it(forge: Any, more: bytes) -> None:
    items = forge.items()
    append(items, KERNEL, more)
    forge.write_items(items)
    assert forge.path.read_bytes() != forge.original
    with Bundle.open(forge.prefix) as bundle:
        forge.assert_original(bundle)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda header: setattr(header.version, "min_consumer", 2), "version 2"),
        (lambda header: header.version.bad_consumers.append(1), "of the checkpoint format"),
        (
            lambda header: setattr(header, "endianness", 1),
            "highest byte[^$]*save it again on a",
        ),
    ],
)
def test_what_is_sound_and_not_supported_is_no_damage(forge: Any, change: Any, says: str) -> None:
    items = forge.items()
    change(items[b""])
    forge.write_items(items)
    with pytest.raises(UnsupportedCheckpointError, match=says) as caught:
        Bundle.open(forge.prefix)
    assert caught.value.path == str(forge.path)


HEADER = b"\x08\x01"
EMPTY_VALUE = bytes([0x08, 3, 0x12, 2, 0x12, 0])


def block(*keys: bytes) -> bytes:
    return plain_block([(key, EMPTY_VALUE if key else HEADER) for key in keys])


SOUND = table([block(b"", b"k")], [b"k"])


def blocks(bounds: list[bytes], *keys: list[bytes]) -> bytes:
    return table([block(*each) for each in keys], bounds)


def inside(content: bytes, *restarts: int) -> bytes:
    """A table of the header and a block of this content."""
    body = content + struct.pack(f"<{len(restarts)}I", *restarts)
    return table([block(b""), body], [b"a", b"z"])


def handle(made: bytes) -> bytes:
    return table([block(b"", b"k")], [b"k"], [made])


def swapped(kind: int) -> bytes:
    found = block(b"", b"k")
    return SOUND.replace(seal(found), seal(found, kind))


def packed() -> bytes:
    small = bytes(cramjam.snappy.compress_raw(block(b"", b"k")))
    return table([small], [b"k"]).replace(seal(small), seal(small, 1))


def bomb() -> bytes:
    index, packed = plain_block([(b"k", varint(0, 8))]), seal(varint(2**31) + b"\xfe\0\0", 1)
    data = packed + seal(plain_block([])) + seal(index)
    places = varint(len(packed), 8, len(packed) + 13, len(index))
    return data + places.ljust(40, b"\0") + MAGIC


def unfolding() -> bytes:
    """Keys of which each shares thousands of bytes with the one before."""
    size = 2_000
    body = b"\0" + varint(size) + b"\0" + b"k" * size
    for number in range(1, size):
        body += varint(size + number - 1) + b"\x01\0" + b"k"
    return table([body + struct.pack("<II", 0, 1)], [b"l"])


def nested() -> bytes:
    """A block that lies inside another."""
    inner = plain_block([(b"z", b"v")])
    outer = plain_block([(b"a" + seal(inner), b"v")])
    handles = [varint(0, len(outer)), varint(outer.index(inner), len(inner))]
    return table([outer], [b"b", b"z"], handles)


def entry(key: bytes) -> bytes:
    return b"\0\1\6" + key + EMPTY_VALUE


K, LENGTH = entry(b"k"), len(block(b"", b"k"))
TABLES: dict[str, Any] = {
    "empty": b"",
    "one byte short of a footer": b"\0" * 39 + MAGIC,
    "only a footer": b"\0" * 40 + MAGIC,
    "wrong magic": SOUND[:-8] + b"\0" * 8,
    "footer handles of 64 bits": SOUND[:-48] + (b"\xff" * 9 + b"\1") * 4 + MAGIC,
    "footer handles endless": SOUND[:-48] + b"\xff" * 40 + MAGIC,
    "checksum wrong": b"\1" + SOUND[1:],
    "metaindex damaged": SOUND.replace(seal(plain_block([])), b"\1" * 13),
    "compression unknown": swapped(9),
    "not Snappy": swapped(1),
    "a Snappy bomb": (bomb(), "2147483648 bytes"),
    "handle outside the file": handle(varint(2**40, LENGTH)),
    "handle of a size outside the file": handle(varint(0, 2**63)),
    "handle cut": handle(b"\x80"),
    "handle with something behind": handle(varint(0, LENGTH, 0)),
    "same block twice": table([block(b"")] * 2, [b"a", b"k"], [varint(0, 13)] * 2),
    "block inside another": (nested(), "points to an invalid block"),
    "blocks in the wrong order": blocks([b"a", b"l", b"m"], [b""], [b"l"], [b"k"]),
    "keys in the wrong order": blocks([b"l"], [b"", b"l", b"k"]),
    "key twice": blocks([b"k"], [b"", b"k", b"k"]),
    "key twice, in two blocks": blocks([b"k", b"l"], [b"", b"k"], [b"k"]),
    "keys that unfold to far more": (unfolding(), "expand to far more"),
    "bound below its block": blocks([b"a"], [b"", b"k"]),
    "bound above the next block": blocks([b"z", b"zz"], [b""], [b"k"]),
    "no blocks": blocks([]),
    "block without keys first": blocks([b"a", b"k"], [], [b"", b"k"]),
    "block too short": table([b""], [b"k"]),
    "no restart points": inside(K, 0),
    "restart points beyond the block": inside(K, 0, 5, 2**31),
    "restart points not entries": inside(K, 0, 1, 2),
    "restart points out of order": inside(K + entry(b"l"), 10, 0, 2),
    "restart points not in order": inside(K + entry(b"l") + entry(b"m"), 0, 20, 10, 3),
    "restart points do not start at 0": inside(K + entry(b"l"), 10, 1),
    "entry beyond the block": inside(b"\0\x7f\1k", 0, 1),
    "entry with an endless number": inside(b"\xff" * 20, 0, 1),
    "shares in the first entry": inside(b"\5\1\6k" + EMPTY_VALUE, 0, 1),
    "shares more than there is": inside(K + b"\2\1\6l" + EMPTY_VALUE, 0, 1),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_forged_table_is_refused(tmp_path: Path, name: str) -> None:
    found = TABLES[name]
    content, says = found if isinstance(found, tuple) else (found, None)
    (tmp_path / "ckpt-1.data-00000-of-00001").write_bytes(b"")
    (tmp_path / "ckpt-1.index").write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=says):
        list(read_table(content, "ckpt-1.index")) if says else Bundle.open(f"{tmp_path}/ckpt-1")


@pytest.mark.parametrize(
    "content", [SOUND, packed(), inside(K, 0, 1), blocks([b"a", b"l"], [b""], [b"k"])]
)
def test_tables_built_like_these_but_sound_are_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ckpt-1.data-00000-of-00001").write_bytes(b"")
    (tmp_path / "ckpt-1.index").write_bytes(content)
    with Bundle.open(str(tmp_path / "ckpt-1")) as bundle:
        assert bundle.entries["k"].shape == (0,)
