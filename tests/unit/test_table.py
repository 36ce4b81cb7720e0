from __future__ import annotations

import random
import struct
from pathlib import Path

import cramjam
import google_crc32c
import pytest

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.table import (
    FOOTER_BYTES,
    TRAILER_BYTES,
    WireError,
    read_table,
    unmask,
    varint,
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[bytes]]:
    """An index of several blocks that TensorFlow wrote, and its keys."""
    tf = pytest.importorskip("tensorflow")
    names = [f"model/layer_{number}/" + "long/" * 30 for number in range(3000)]
    prefix = str(tmp_path_factory.mktemp("table") / "ckpt")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.zeros(()) for _ in names],
    )
    return Path(f"{prefix}.index").read_bytes(), [b"", *sorted(name.encode() for name in names)]


def test_it_yields_the_keys_that_tensorflow_wrote(index: tuple[bytes, list[bytes]]) -> None:
    data, keys = index
    assert [key for key, _ in read_table(data, "ckpt.index")] == keys


def test_a_snappy_table_reads_as_the_raw_one(index: tuple[bytes, list[bytes]]) -> None:
    data, _ = index
    assert list(read_table(_snapped(data), "x")) == list(read_table(data, "x"))


def _snapped(data: bytes) -> bytes:
    """The same table with every block compressed."""
    footer = data[-FOOTER_BYTES:]
    meta_at, position = varint(footer, 0)
    _, position = varint(footer, position)
    index_at, position = varint(footer, position)
    index_size, _ = varint(footer, position)
    out = b""
    places: list[bytes] = []

    def put(block: bytes) -> None:
        nonlocal out
        small = bytes(cramjam.snappy.compress_raw(block)) + b"\1"
        crc = google_crc32c.value(small)
        masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        places.append(_number(len(out)) + _number(len(small) - 1))
        out += small + struct.pack("<I", masked)

    bounds = []
    block = data[index_at : index_at + index_size]
    # The writer puts a restart at every entry of an index block, so that keys stand in full.
    at = 0
    while at < len(block) - 4 - 4 * struct.unpack("<I", block[-4:])[0]:
        keylen, at = varint(block, at + 1)
        valuelen, at = varint(block, at)
        bounds.append(block[at : at + keylen])
        at += keylen + valuelen
        value = block[at - valuelen : at]
        start, used = varint(value, 0)
        size, _ = varint(value, used)
        put(data[start : start + size])
    assert len(bounds) > 1
    put(data[meta_at : meta_at + 8])
    body, restarts = b"", []
    for bound, place in zip(bounds, places, strict=False):
        restarts.append(len(body))
        body += b"\0" + _number(len(bound)) + _number(len(place)) + bound + place
    put(body + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts)))
    return out + b"".join(places[-2:]).ljust(40, b"\0") + footer[-8:]


def _number(value: int) -> bytes:
    code = bytearray()
    while value > 127:
        code.append(value & 127 | 128)
        value >>= 7
    return bytes([*code, value])


def test_a_flipped_byte_anywhere_but_in_the_padding_is_found(
    index: tuple[bytes, list[bytes]],
) -> None:
    data, _ = index
    content = list(read_table(data, "x"))
    rng = random.Random(7)
    for position in [
        *rng.sample(range(len(data)), 200),
        *range(len(data) - FOOTER_BYTES, len(data)),
    ]:
        damaged = bytearray(data)
        damaged[position] ^= 1 << rng.randrange(8)
        try:
            assert list(read_table(bytes(damaged), "x")) == content
        except DamagedCheckpointError:
            continue
        assert len(data) - FOOTER_BYTES <= position < len(data) - 8


@pytest.mark.parametrize("missing", [1, TRAILER_BYTES, FOOTER_BYTES, 1000])
def test_a_truncated_table_says_so_and_names_the_file(
    index: tuple[bytes, list[bytes]], missing: int
) -> None:
    data, _ = index
    with pytest.raises(DamagedCheckpointError, match="truncated") as caught:
        list(read_table(data[:-missing], "run/ckpt-1.index"))
    assert caught.value.path == "run/ckpt-1.index"


def test_unmask_is_the_inverse_of_the_published_mask() -> None:
    # https://github.com/google/leveldb/blob/main/util/crc32c.h
    for crc in (0, 1, 0xE3069283, 0xFFFFFFFF):
        masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        assert unmask(masked) == crc


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9 + b"\x02", b"\xff" * 11])
def test_a_number_that_is_cut_or_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        varint(data, 0)


def test_the_largest_number_is_read() -> None:
    assert varint(b"\xff" * 9 + b"\x01", 0) == (2**64 - 1, 10)
