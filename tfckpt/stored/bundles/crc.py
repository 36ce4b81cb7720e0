"""The checksum of two pieces, from the checksums of each.

What several threads check of one value is put together here. A CRC is the remainder of the bytes,
taken for a polynomial, by CRC-32C's; bytes that follow multiply it by x, eight times each.
"""

from __future__ import annotations

from functools import lru_cache

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, the lowest power in the highest bit, as in all numbers here
_ONE = 1 << 31
_X = 1 << 30


def combine(first: int, second: int, length: int) -> int:
    """The CRC-32C of some bytes and ``length`` more, from that of each.

    >>> import google_crc32c
    >>> whole, end = google_crc32c.value(b"checkpoint"), google_crc32c.value(b"point")
    >>> combine(google_crc32c.value(b"check"), end, len(b"point")) == whole
    True
    """
    return _product(first, _shift(length)) ^ second


@lru_cache(64)
def _shift(length: int) -> int:
    """The power of x that so many bytes multiply by."""
    result, power, bits = _ONE, 0, 8 * length
    while bits:
        if bits & 1:
            result = _product(result, _square(power))
        power += 1
        bits >>= 1
    return result


@lru_cache(None)
def _square(times: int) -> int:
    """x, squared so many times."""
    return _product(root := _square(times - 1), root) if times else _X


def _product(one: int, other: int) -> int:
    result = 0
    while one:
        if one & _ONE:
            result ^= other
        one = (one << 1) & 0xFFFFFFFF
        other = (other >> 1) ^ (_POLYNOMIAL if other & 1 else 0)
    return result
