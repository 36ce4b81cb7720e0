"""Data files altered under valid checksums, and one of a big-endian machine.

Nobody can be asked for the latter any more: it is forged from one of here, and TensorFlow reads it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tfckpt.errors import DamagedCheckpointError
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


def test_a_big_endian_checkpoint_reads_as_tensorflow_reads_it(forge: Any, tables: Any) -> None:
    import tensorflow as tf
    from google_crc32c import extend, value

    shard = Path(f"{forge.prefix}.data-00000-of-00001")
    data = bytearray(shard.read_bytes())
    items = forge.items()
    items[b""].endianness = 1
    for key, entry in items.items():
        start, end = (0, 0) if not key else (entry.offset, entry.offset + entry.size)
        if key == b"d/text":
            crc = value(struct.pack(">3I", 3, 0, 5))
            stored = struct.pack(">I", tables.mask(crc))
            data[start + 3 : start + 7] = stored
            entry.crc32c = tables.mask(extend(extend(crc, stored), bytes(data[start + 7 : end])))
        elif start < end:
            size = tf.dtypes.as_dtype(entry.dtype).size
            swapped = b"".join(bytes(data[at : at + size][::-1]) for at in range(start, end, size))
            data[start:end] = swapped
            entry.crc32c = tables.mask(value(swapped))
    shard.write_bytes(data)
    forge.write_items(items)
    reader = tf.train.load_checkpoint(forge.prefix)
    with Bundle.open(forge.prefix) as bundle:
        bundle.verify()
        forge.assert_original(bundle)
        for name in forge.values:
            assert bundle.read(name).tolist() == reader.get_tensor(name).tolist()
