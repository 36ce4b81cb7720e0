"""The protobuf messages of an index, and the wire format: varints, lengths, fields.

TensorFlow's own message classes need TensorFlow, seconds of import; these messages are small and
frozen (tensor_bundle.proto). The object graph, which few callers need, is decoded in
:mod:`tfckpt.stored.bundles.encoding.graph_proto`.

Index entries are parsed more strictly than protobuf does: duplicate fields, which protobuf would
merge, out-of-order and unknown fields are refused. No writer produces them.

LevelDB tables use the same varints. Every read is checked against the end of the message; groups,
which none of these messages has, are refused. :class:`WireError` stays inside of `stored`: callers
add the file and the value.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.core.inventory import Shape

MAX_RANK = 254
_SLICES = 7


class Extent(NamedTuple):
    """A range of one axis; ``length`` -1 means the whole axis."""

    start: int
    length: int


class BundleEntry(NamedTuple):
    """One value as the index describes it (BundleEntryProto).

    A tuple and not a dataclass: an index has tens of thousands, and creating a frozen dataclass
    takes longer than decoding one.

    Attributes:
        dtype: TensorFlow's name of the dtype.
        shape: of the whole value, also where it is stored in slices.
        shard: number of the data file.
        offset: in the data file.
        nbytes: stored size; for a sliced value the sum over its slices.
        crc32c: masked, as stored; 0 for a sliced value, whose slices have their own.
        slices: of a value stored in slices; otherwise ().
    """

    dtype: str
    shape: Shape
    shard: int
    offset: int
    nbytes: int
    crc32c: int
    slices: tuple[tuple[Extent, ...], ...] = ()

    @property
    def sliced(self) -> bool:
        return bool(self.slices)


@dataclasses.dataclass(frozen=True, slots=True)
class Versions:
    """Version of the format, and the readers that it allows (VersionDef)."""

    producer: int = 0
    min_consumer: int = 0
    bad_consumers: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class BundleHeader:
    """The first entry of an index (BundleHeaderProto)."""

    num_shards: int = 0
    big_endian: bool = False
    versions: Versions = Versions()


def parse_header(data: bytes) -> BundleHeader:
    numbers: dict[str, int] = {}
    versions = Versions()
    for number, value in fields(data):
        if number == 1:
            numbers["num_shards"] = as_number(value, INT32)
        elif number == 2:
            numbers["big_endian"] = as_number(value, 2)
        elif number == 3:
            versions = parse_versions(as_message(value))
    return BundleHeader(
        num_shards=numbers.get("num_shards", 0),
        big_endian=bool(numbers.get("big_endian")),
        versions=versions,
    )


def parse_versions(data: bytes) -> Versions:
    producer = min_consumer = 0
    bad: list[int] = []
    for number, content in fields(data):
        if number == 1:
            producer = as_number(content, INT32)
        elif number == 2:
            min_consumer = as_number(content, INT32)
        elif number == 3 and isinstance(content, bytes):
            bad.extend(packed(content))
        elif number == 3:
            bad.append(as_number(content, INT32))
    return Versions(producer, min_consumer, tuple(bad))


def parse_entry(  # noqa: C901, PLR0912  one loop: calls would double the time of an index
    data: bytes, shapes: dict[bytes, Shape]
) -> BundleEntry:
    """An entry of the index; ``shapes`` caches shapes by their bytes, as most values repeat one."""
    dtype = shard = offset = size = crc = 0
    shape: Shape = ()
    slices: list[tuple[Extent, ...]] = []
    position, end, last = 0, len(data), 0
    try:
        while position < end:
            tag = data[position]
            value = data[position + 1]
            position += 2
            number = tag >> 3
            if number <= last and number != _SLICES:
                raise WireError("duplicate or out-of-order field")
            last = number
            if tag == 0x35:
                position += 3
                crc = int.from_bytes(data[position - 4 : position], "little")
            else:
                if value > 127:
                    value, position = varint(data, position - 1)
                if tag == 0x20:
                    offset = value
                elif tag == 0x28:
                    size = value
                elif tag in (0x12, 0x3A):
                    content = data[position : position + value]
                    position += value
                    if tag == 0x3A:
                        slices.append(parse_slice(content))
                    elif (known := shapes.get(content)) is not None:
                        shape = known
                    else:
                        shape = shapes[content] = parse_shape(content)
                elif tag == 0x08:
                    dtype = value
                elif tag == 0x18:
                    shard = value
                else:
                    raise WireError(f"unknown field {number} in an entry")
    except IndexError:
        raise WireError("the entry ends in the middle of a field") from None
    if position > end:
        raise WireError("the entry ends in the middle of a field")
    if shard >= INT32 or offset >= INT64 or size >= INT64:
        raise WireError("shard, offset or size is negative")
    if dtype not in DTYPES:
        raise WireError(f"unknown dtype number {dtype}")
    return BundleEntry(DTYPES[dtype], shape, shard, offset, size, crc, tuple(slices))


def parse_shape(data: bytes) -> Shape:
    shape = []
    for number, value in fields(data):
        if number == 2:
            size = 0
            for inner, content in fields(as_message(value)):
                if inner == 1:
                    size = as_number(content, 1 << 64)
            if size >= INT64:
                raise WireError(f"the shape has a negative size, {size - (1 << 64)}")
            shape.append(size)
        elif number == 3 and value:
            raise WireError("the shape has an unknown rank")
    if len(shape) > MAX_RANK:
        raise WireError(f"the shape has {len(shape)} axes, more than TensorFlow allows")
    return tuple(shape)


def parse_slice(data: bytes) -> tuple[Extent, ...]:
    extents = []
    for number, value in fields(data):
        if number == 1:
            start, length = 0, -1
            for inner, content in fields(as_message(value)):
                if inner == 1:
                    start = as_number(content, INT64)
                elif inner == 2:
                    length = as_number(content, INT64)
            extents.append(Extent(start, length))
    return tuple(extents)


INT32, INT64 = 1 << 31, 1 << 63


class WireError(ValueError):
    """Invalid bytes in a message or table."""


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The varint at ``position``, and the position after it.

    >>> varint(bytes([0xAC, 0x02]), 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        try:
            byte = data[position]
        except IndexError:
            raise WireError("truncated varint") from None
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                raise WireError("a varint has more than 64 bits")
            return value, position
        shift += 7
        if shift > 63:
            raise WireError("a varint has more than 64 bits")


_SHORT = tuple(bytes((value,)) for value in range(128))


def put_varint(value: int) -> bytes:
    """A number encoded as a varint.

    >>> put_varint(300).hex()
    'ac02'
    """
    if value < 128:
        return _SHORT[value]
    coded = bytearray()
    while value > 127:
        coded.append(value & 127 | 128)
        value >>= 7
    coded.append(value)
    return bytes(coded)


def put_number(field: int, value: int) -> bytes:
    """A field with a number; zero is omitted, as in proto3."""
    return put_varint(field << 3) + put_varint(value) if value else b""


def put_message(field: int, content: bytes) -> bytes:
    """A field with a message, a string or bytes, written even if empty."""
    return put_varint(field << 3 | 2) + put_varint(len(content)) + content


def put_text(field: int, text: str) -> bytes:
    """A field with a string; the empty one is omitted, as in proto3."""
    return put_message(field, text.encode()) if text else b""


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and content of each field: an int, or bytes where it has a length."""
    position, end = 0, len(data)
    while position < end:
        # a shortcut: most varints have one byte, and a graph has tens of thousands
        if (tag := data[position]) < 128:
            position += 1
        else:
            tag, position = varint(data, position)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise WireError(f"invalid protobuf field number {number}")
        if wire in (0, 2):
            if position < end and (value := data[position]) < 128:
                position += 1
            else:
                value, position = varint(data, position)
            if wire == 0:
                yield number, value
                continue
            length = value
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise WireError(f"invalid protobuf wire type {wire}")
        start, position = position, position + length
        if position > end:
            raise WireError("truncated protobuf field")
        content = data[start:position]
        yield number, content if wire == 2 else int.from_bytes(content, "little")


def as_number(value: int | bytes, bound: int) -> int:
    if not isinstance(value, int) or value >= bound:
        raise WireError(f"expected a number below {bound} in a protobuf field")
    return value


def as_message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise WireError("expected a message or string in a protobuf field, got a number")
    return value


def as_text(value: int | bytes) -> str:
    try:
        return as_message(value).decode()
    except UnicodeDecodeError:
        raise WireError("a string is not valid UTF-8") from None


def packed(content: bytes) -> Iterator[int]:
    position = 0
    while position < len(content):
        value, position = varint(content, position)
        yield value
