"""Data files altered under valid checksums, and one that TensorFlow reads and tfckpt refuses."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle

WRONG = "invalid string length|the string lengths"


def test_floats_declared_as_strings_are_not_read(forge: Any) -> None:
    items = forge.items()
    items[b"a/kernel"].dtype = 7
    forge.write_items(items)
    with Bundle.open(forge.prefix) as bundle, pytest.raises(DamagedCheckpointError, match=WRONG):
        bundle.read("a/kernel")


STRINGS = {
    "a length too long": b"\x7f\x00\x05",
    "lengths that do not add up": b"\x02\x00\x05",
    "a length of 64 bits": b"\xff\xff\xff",
}


@pytest.mark.parametrize("lengths", STRINGS.values(), ids=STRINGS.keys())
def test_a_string_whose_lengths_are_forged_is_refused(
    forge: Any, tables: Any, lengths: bytes
) -> None:
    import google_crc32c

    entry = forge.items()[b"d/text"]
    shard = Path(f"{forge.prefix}.data-00000-of-00001")
    data = bytearray(shard.read_bytes())
    packed = b"".join(struct.pack("<I", length) for length in lengths)
    checksum = struct.pack("<I", tables.mask(google_crc32c.value(packed)))
    data[entry.offset : entry.offset + 7] = lengths + checksum
    shard.write_bytes(data)
    with Bundle.open(forge.prefix) as bundle:
        for use in (bundle.read, lambda key: bundle.verify([key])):
            with pytest.raises(DamagedCheckpointError, match=WRONG) as caught:
                use("d/text")
            assert caught.value.name == "d/text"


def test_lengths_that_add_up_but_are_not_those_written_are_refused(forge: Any) -> None:
    offset = forge.items()[b"d/text"].offset
    shard = Path(f"{forge.prefix}.data-00000-of-00001")
    data = bytearray(shard.read_bytes())
    assert data[offset : offset + 3] == b"\x03\x00\x05"
    data[offset : offset + 3] = b"\x04\x00\x04"
    shard.write_bytes(data)
    with Bundle.open(forge.prefix) as bundle:
        for use in (bundle.read, lambda key: bundle.verify([key])):
            with pytest.raises(DamagedCheckpointError, match=WRONG):
                use("d/text")


def test_a_big_endian_checkpoint_is_refused_with_its_file(forge: Any) -> None:
    items = forge.items()
    items[b""].endianness = 1
    forge.write_items(items)
    with pytest.raises(UnsupportedCheckpointError, match="the highest byte") as caught:
        Bundle.open(forge.prefix)
    assert caught.value.path == f"{forge.prefix}.index"
    assert "save it again on a little-endian machine" in str(caught.value)
