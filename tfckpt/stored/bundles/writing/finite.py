"""Whether all numbers of a block of stored bytes are finite, exactly and at the speed of memory.

A sum tells it in one pass: once an infinity or a NaN is in it, it never is finite again. One that
is not finite tells nothing, as it may have become too large on its way; and the sum of a type that
the processor does not add is slow. Then the bits tell.

Read as integers, a float's bits order its infinities and NaNs above all finite numbers of their
sign: among the positive ones as signed integers, among the negative ones as unsigned ones. So the
two largest integers of a block tell, without a float being looked at, and without a copy. The types
that have a single NaN and no infinity have it where minus zero would be.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# dtype → what is added, of those that the processor adds.
_ADDED = {"float32": "<f4", "complex64": "<f4", "float64": "<f8", "complex128": "<f8"}

# dtype → bytes of a float, and the bits of the least that is not finite: infinity, or a NaN.
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
    """Whether whole values of a dtype, as their little-endian bytes, hold no infinity and no NaN.

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
    """Added many at a time and without a warning, as `ndarray.sum` would not."""
    import numpy as np

    return float(np.einsum("i->", numbers))
