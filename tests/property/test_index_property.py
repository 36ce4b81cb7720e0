"""An index says nearly the same of most values: what is read by what was met before is the same."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles import index
from tfckpt.stored.bundles.encoding.index_proto import BundleEntry
from tfckpt.stored.bundles.encoding.table_builder import build_table
from tfckpt.stored.bundles.index_encoder import encode_entry, encode_header

entries = st.builds(
    lambda kind, shard, offset, crc: BundleEntry(
        kind[0], kind[1], shard, offset, kind[2], crc or 1 << 24
    ),
    st.sampled_from(
        (("float32", (2, 3), 24), ("float32", (6,), 24), ("int8", (0, 4), 0), ("string", (), 9))
    ),
    st.integers(0, 3),
    st.sampled_from((0, 24, 127, 128, 1 << 20, 1 << 40, (1 << 63) - 24)) | st.integers(0, 1 << 35),
    st.integers(0, 2**32 - 1),
)
# A number as it is written, or as it should not be.
numbers = st.binary(max_size=4) | st.sampled_from(
    (
        *(b"\x00", b"\x02", b"\x04", b"\x7f", b"\x80\x00", b"\x80\x02"),
        *(b"\xff" * 9 + b"\x01", b"\xff" * 8 + b"\x7f", b"\xff" * 8 + b"\x01"),
        *(b"\x80" * 9 + b"\x00", b"\x80" * 10 + b"\x00"),
    )
)
HEAD, SIZE = b"\x08\x01\x12\x04\x12\x02\x08\x06", b"\x28\x18"  # float32 (6,), 24 bytes
values = st.builds(
    lambda shard, place, size, crc: HEAD + shard + place + size + crc,
    st.just(b"") | numbers.map(lambda number: b"\x18" + number),
    st.just(b"") | numbers.map(lambda number: b"\x20" + number),
    st.sampled_from((SIZE, SIZE, SIZE, b"\x28\x98\0", b"\x28\x19", b"")),
    st.sampled_from((b"\x35abcd", b"\x35abcd", b"\x35abc", b"")),
) | st.builds(
    lambda entry, start, length, other: (
        encode_entry(entry)[:start] + other + encode_entry(entry)[start + length :]
    ),
    entries,
    st.integers(0, 30),
    st.integers(0, 3),
    numbers,
)
FIRST = (
    BundleEntry("float32", (6,), 4, 0, 24, 1),
    BundleEntry("float32", (2, 3), 4, 24, 24, 1),
    BundleEntry("int8", (0, 4), 4, 0, 0, 1),
    BundleEntry("string", (), 4, 48, 9, 1),
)


def outcome(data: bytes) -> Any:
    try:
        found = index.read_index(data, "ckpt-1.index")
    except DamagedCheckpointError as error:
        return str(error)
    return found.entries, found.pieces, found.ends


@settings(max_examples=1000)
@given(values)
def test_an_entry_is_read_the_same_whatever_was_met_before(value: bytes) -> None:
    table = [(bytes((number,)), encode_entry(one)) for number, one in enumerate(FIRST, 1)]
    data = build_table([(b"", encode_header(5)), *table, (b"v", value)])
    read = outcome(data)
    with mock.patch.object(index, "_learn"):
        assert read == outcome(data)
