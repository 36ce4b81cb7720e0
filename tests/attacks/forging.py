"""Files that are wrong on purpose: random damage, and forgery whose checksums are valid.

TensorFlow's messages are left to its own protocol buffers; only what is around them is built here.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import TYPE_CHECKING, Any

import google_crc32c

if TYPE_CHECKING:
    import random

MAGIC = bytes.fromhex("57fb808b247547db")


def mask(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    code = bytearray()
    while number > 127:
        code.append(number & 127 | 128)
        number >>= 7
    return bytes([*code, number])


def seal(content: bytes, kind: int = 0) -> bytes:
    body = content + bytes([kind])
    return body + struct.pack("<I", mask(google_crc32c.value(body)))


def plain_block(items: list[tuple[bytes, bytes]]) -> bytes:
    """A block in which every key stands in full and is a restart point."""
    body, restarts = b"", []
    for key, value in items:
        restarts.append(len(body))
        body += b"\0" + varint(len(key)) + varint(len(value)) + key + value
    return body + struct.pack(
        f"<{len(restarts) + 2 - bool(restarts)}I", *(restarts or [0]), max(len(restarts), 1)
    )


def table(blocks: list[bytes], bounds: list[bytes], **changes: Any) -> bytes:
    """A table of these blocks; ``changes``: handles, metaindex, magic."""
    data, handles = b"", []
    for block in blocks:
        handles.append(varint(len(data)) + varint(len(block)))
        data += seal(block)
    handles = changes.get("handles", handles)
    meta = changes.get("metaindex", plain_block([]))
    tail = varint(len(data)) + varint(len(meta))
    data += seal(meta)
    index = plain_block(list(zip(bounds, handles, strict=True)))
    tail += varint(len(data)) + varint(len(index))
    data += seal(index)
    return data + tail.ljust(40, b"\0") + changes.get("magic", MAGIC)


def sealed_record(tree: dict[str, Any]) -> bytes:
    """A commit record that says this, its checksum valid."""
    tree.pop("sha256", None)
    body = json.dumps(tree)[:-1].encode()
    return body + b',\n"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def mutate(rng: random.Random, data: bytes) -> bytes:
    """A bit, some bytes, the end, a piece more, a piece less, or a stretch of one byte."""
    changed = bytearray(data)
    how = rng.randrange(6)
    place = rng.randrange(len(changed))
    if how == 0:
        changed[place] ^= 1 << rng.randrange(8)
    elif how == 1:
        for _ in range(rng.randrange(1, 9)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    elif how == 2:
        del changed[place:]
    elif how == 3:
        changed[place:place] = rng.randbytes(rng.randrange(1, 20))
    elif how == 4:
        del changed[place : place + rng.randrange(1, 20)]
    else:
        end = min(len(changed), place + rng.randrange(1, 40))
        changed[place:end] = bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) * (end - place)
    return bytes(changed)
