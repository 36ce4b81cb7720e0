"""Computes CRC-32C checksums in parallel and combines them.

A CRC is the remainder of the bytes, as a polynomial, modulo that of CRC-32C; each following byte
multiplies it by x^8.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import google_crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

_POLYNOMIAL = 0x82F63B78  # of CRC-32C; as always here, the highest bit is the lowest power
_ONE = 1 << 31
_X = 1 << 30


def extend(crc: int, content: np.ndarray) -> int:
    """The CRC-32C of some bytes with checksum ``crc``, followed by ``content``, a flat byte array.

    google_crc32c's Python function holds the interpreter's lock; the C function that it calls does
    not need it, so this one lets other threads run where it is available. Below some ten thousand
    bytes google_crc32c is faster.

    >>> import numpy as np
    >>> extend(google_crc32c.value(b"check"), np.frombuffer(b"point", np.uint8))
    219101909
    >>> google_crc32c.value(b"checkpoint")
    219101909
    """
    function = _in_c()
    if function is None:
        return int(google_crc32c.extend(crc, content))
    return function(crc, content.ctypes.data, content.nbytes)


@lru_cache(1)
def _in_c() -> Callable[[int, int, int], int] | None:
    """``crc32c_extend`` of the library bundled with google_crc32c; None where it is not found."""
    import ctypes

    try:
        from google_crc32c import _crc32c

        function = ctypes.CDLL(
            _crc32c.__file__
        ).crc32c_extend  # found in a library that it is linked to
    except (ImportError, OSError, AttributeError):  # pure Python, Windows or another build
        return None
    function.argtypes = [ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t]
    function.restype = ctypes.c_uint32
    return function


def combine(first: int, second: int, length: int) -> int:
    """The CRC-32C of two concatenated byte strings, from both checksums; ``length`` is the
    second's.

    >>> import google_crc32c
    >>> whole, end = google_crc32c.value(b"checkpoint"), google_crc32c.value(b"point")
    >>> combine(google_crc32c.value(b"check"), end, len(b"point")) == whole
    True
    """
    return _product(first, _shift(length)) ^ second


@lru_cache(64)
def _shift(length: int) -> int:
    """The power of x by which ``length`` bytes multiply."""
    result, power, bits = _ONE, 0, 8 * length
    while bits:
        if bits & 1:
            result = _product(result, _square(power))
        power += 1
        bits >>= 1
    return result


@lru_cache(None)
def _square(times: int) -> int:
    """x, squared ``times`` times."""
    return _product(root := _square(times - 1), root) if times else _X


def _product(one: int, other: int) -> int:
    result = 0
    while one:
        if one & _ONE:
            result ^= other
        one = (one << 1) & 0xFFFFFFFF
        other = (other >> 1) ^ (_POLYNOMIAL if other & 1 else 0)
    return result
