"""Computes CRC-32C checksums without the interpreter's lock."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import google_crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

_SHORT = 1 << 14


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
    function = _in_c() if content.nbytes >= _SHORT else None
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
