"""Altered data: refused with the one error, which names the value."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from attacks.forging import checksum

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.tools.verification import verify_one


def test_a_flipped_bit_of_the_data_is_found_and_named(forge: Any) -> None:
    sound = forge.data.read_bytes()
    stored = {
        key: (entry.offset, entry.offset + entry.size)
        for key, entry in forge.items().items()
        if key and entry.size
    }
    for position in range(len(sound)):
        flipped = bytes([sound[position] ^ 0x10])
        forge.data.write_bytes(sound[:position] + flipped + sound[position + 1 :])
        key = next(key for key, (start, end) in stored.items() if start <= position < end)
        name = "p/part" if key[:1] == b"\0" else key.decode()
        with Bundle.open(forge.prefix) as bundle:
            with pytest.raises(DamagedCheckpointError) as verified:
                bundle.verify(bundle.entries)
            with pytest.raises(DamagedCheckpointError) as read:
                bundle.read(name)
            assert verified.value.name == read.value.name == name
            for other in forge.values.keys() - {name}:
                assert np.array_equal(bundle.read(other), forge.values[other])
        found = {(fault.file, fault.name) for fault in verify_one(forge.prefix).faults}
        assert found == {(str(forge.data), f"model/{name}")}
    forge.data.write_bytes(sound)
    assert verify_one(forge.prefix).faults == ()


def test_shards_cut_at_every_length_are_refused(forge: Any) -> None:
    sound = forge.data.read_bytes()
    for length in range(len(sound)):
        forge.data.write_bytes(sound[:length])
        with pytest.raises(DamagedCheckpointError, match="truncated") as caught:
            Bundle.open(forge.prefix)
        assert caught.value.path == str(forge.data)
        assert {fault.file for fault in verify_one(forge.prefix).faults} == {str(forge.data)}


WRONG = "invalid string length|the string lengths"
LENGTHS = {  # of the three strings; whether their own checksum is forged, too
    "a length too long": (b"\x7f\x00\x05", True),
    "lengths that do not add up": (b"\x02\x00\x05", True),
    "a length of 64 bits": (b"\xff\xff\xff", True),
    "lengths that add up but are not those written": (b"\x04\x00\x04", False),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_string_whose_lengths_are_forged_is_refused(forge: Any, name: str) -> None:
    lengths, resealed = LENGTHS[name]
    offset = forge.items()[b"d/text"].offset
    data = bytearray(forge.data.read_bytes())
    assert data[offset : offset + 3] == b"\x03\x00\x05"
    data[offset : offset + 3] = lengths
    if resealed:
        packed = b"".join(struct.pack("<I", length) for length in lengths)
        data[offset + 3 : offset + 7] = checksum(packed)
    forge.data.write_bytes(data)
    with Bundle.open(forge.prefix) as bundle:
        for use in (bundle.read, lambda key: bundle.verify([key])):
            with pytest.raises(DamagedCheckpointError, match=WRONG) as caught:
                use("d/text")
            assert caught.value.name == "d/text"


def test_floats_declared_as_strings_are_not_read(forge: Any) -> None:
    items = forge.items()
    items[b"a/kernel"].dtype = 7
    forge.write_items(items)
    with Bundle.open(forge.prefix) as bundle, pytest.raises(DamagedCheckpointError, match=WRONG):
        bundle.read("a/kernel")
