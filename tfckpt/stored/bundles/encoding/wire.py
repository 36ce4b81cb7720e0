"""The protobuf wire format: varints, lengths, fields.

LevelDB tables use the same varints. Every read is checked against the end of the message; groups,
which none of these messages has, are refused. :class:`WireError` stays inside of `stored`: callers
add the file and the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
