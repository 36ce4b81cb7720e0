"""Files that are wrong on purpose: random damage, and forgery whose checksums are valid.

TensorFlow's messages are left to its own protocol buffers; only what is around them is built here.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import google_crc32c

MAGIC = bytes.fromhex("57fb808b247547db")


def mask(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def checksum(data: bytes) -> bytes:
    return struct.pack("<I", mask(google_crc32c.value(data)))


def varint(*numbers: int) -> bytes:
    code = bytearray()
    for rest in numbers:
        left = rest
        while left > 127:
            code.append(left & 127 | 128)
            left >>= 7
        code.append(left)
    return bytes(code)


def seal(content: bytes, kind: int = 0) -> bytes:
    body = content + bytes([kind])
    return body + checksum(body)


def plain_block(items: list[tuple[bytes, bytes]]) -> bytes:
    """A block in which every key stands in full and is a restart point."""
    body, restarts = b"", []
    for key, value in items:
        restarts.append(len(body))
        body += b"\0" + varint(len(key), len(value)) + key + value
    ends = [*(restarts or [0]), max(len(restarts), 1)]
    return body + struct.pack(f"<{len(ends)}I", *ends)


def table(blocks: list[bytes], bounds: list[bytes], handles: list[bytes] | None = None) -> bytes:
    """A table of these blocks; ``handles`` in the place of those that lead to them."""
    data, places = b"", []
    for block in blocks:
        places.append(varint(len(data), len(block)))
        data += seal(block)
    meta = plain_block([])
    tail = varint(len(data), len(meta))
    data += seal(meta)
    index = plain_block(list(zip(bounds, handles or places, strict=True)))
    tail += varint(len(data), len(index))
    return data + seal(index) + tail.ljust(40, b"\0") + MAGIC


def items_of(path: Path, message: Any) -> dict[bytes, Any]:
    """What is in a table: key → a message of the kind that ``message(key)`` is."""
    from tfckpt.stored.bundles.table import read_table

    return {k: message(k).FromString(v) for k, v in read_table(path.read_bytes(), str(path))}


def table_of(items: dict[bytes, Any]) -> bytes:
    """A table in one block of messages, or bytes."""
    pairs = sorted(
        (key, value if isinstance(value, bytes) else value.SerializeToString())
        for key, value in items.items()
    )
    return table([plain_block(pairs)], [pairs[-1][0] if pairs else b""])


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
