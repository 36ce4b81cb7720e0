"""Checks exactly, and at memory speed, whether all numbers in a block of bytes are finite.

A finite sum proves it in one pass, since an infinity or NaN makes every sum non-finite. A sum that
is not finite may have overflowed, and sums of dtypes without hardware addition are slow; then the
bits decide.

Read as integers, the bits of infinities and NaNs are above those of all finite numbers of the same
sign: as signed integers for positive, as unsigned for negative numbers. So the two maxima of a
block decide, without converting or copying it. Dtypes with a single NaN and no infinity have the
NaN at minus zero.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# dtype → dtype to sum, where the hardware adds it.
_ADDED = {"float32": "<f4", "complex64": "<f4", "float64": "<f8", "complex128": "<f8"}

# dtype → bytes of a float, and the lowest non-finite bit pattern: infinity, or a NaN.
_LEAST = {
    "float16": (2, 0x7C00),
    "bfloat16": (2, 0x7F80),
    "float32": (4, 0x7F80_0000),
    "complex64": (4, 0x7F80_0000),
    "float64": (8, 0x7FF0_0000_0000_0000),
    "complex128": (8, 0x7FF0_0000_0000_0000),
    "float8_e5m2": (1, 0x7C),
    "float8_e4m3fn": (1, 0x7F),
}
_MINUS_ZERO = ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz")


def all_finite(block: np.ndarray, dtype: str) -> bool:
    """Whether values of a dtype, as little-endian bytes, contain no infinity and no NaN.

    >>> import numpy as np
    >>> values = np.array([-1.5, 3e38, -0.0], np.float32)
    >>> all_finite(values.view("u1"), "float32")
    True
    >>> all_finite(np.append(values, -np.inf).astype(np.float32).view("u1"), "float32")
    False
    """
    if not block.size:
        return True
    if dtype in _MINUS_ZERO:
        return not bool((block == 0x80).any())
    if dtype not in _LEAST:
        return True
    if dtype in _ADDED and math.isfinite(_sum(block.view(_ADDED[dtype]))):
        return True
    size, least = _LEAST[dtype]
    negative = least | 1 << 8 * size - 1
    return bool(block.view(f"<i{size}").max() < least and block.view(f"<u{size}").max() < negative)


def _sum(numbers: np.ndarray) -> float:
    """A vectorized sum without overflow warnings, unlike `ndarray.sum`."""
    import numpy as np

    return float(np.einsum("i->", numbers))
