"""How far apart two values are, computed in parts of about a megabyte, exactly for integers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

_PART = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Distance:
    """The difference of two values of one shape.

    Attributes:
        count: number of elements that differ.
        largest: greatest absolute difference; infinite where only one side is finite.
        relative: ``largest`` over the greatest magnitude of both values; None where undefined.
    """

    count: int
    largest: float | None
    relative: float | None


def difference(a: np.ndarray, b: np.ndarray) -> Distance | None:
    """The difference of two values; None where shapes differ or they are not numbers.

    NaN counts as equal to NaN.

    >>> import numpy as np
    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    Distance(count=1, largest=2.0, relative=0.5)
    """
    import numpy as np

    if a.shape != b.shape:
        return None
    if a.dtype.hasobject or b.dtype.hasobject:
        both = a.dtype.hasobject and b.dtype.hasobject
        return Distance(int(np.count_nonzero(a != b)), None, None) if both else None
    if a.dtype.fields or b.dtype.fields:
        return None
    count, largest, scale = 0, 0.0, 0.0
    with np.errstate(all="ignore"):
        for (one, left), (other, right) in zip(_wide(a), _wide(b), strict=True):
            # Large integers that differ may be equal as float64.
            apart = (one != other) if one.dtype == other.dtype else (left != right)
            apart = apart & ~(np.isnan(left) & np.isnan(right))
            if not apart.any():
                scale = max(scale, _magnitude(left))
                continue
            count += int(np.count_nonzero(apart))
            if one.dtype == other.dtype and one.dtype.kind in "iu":
                above, below = np.maximum(one, other)[apart], np.minimum(one, other)[apart]
                gaps = (above.astype(np.uint64) - below.astype(np.uint64)).astype(np.float64)
            else:
                gaps = np.abs(left[apart] - right[apart])
            largest = max(largest, float(np.nan_to_num(gaps, nan=np.inf, posinf=np.inf).max()))
            scale = max(scale, _magnitude(left), _magnitude(right))
    relative = largest / scale if scale and np.isfinite(largest) else None
    return Distance(count, largest, 0.0 if not count else relative)


def _wide(array: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The elements in parts, as stored and in double precision."""
    import numpy as np

    flat = array.reshape(-1)
    kind = np.complex128 if array.dtype.kind == "c" else np.float64
    for start in range(0, flat.size, _PART):
        part = flat[start : start + _PART]
        yield part, part.astype(kind)


def _magnitude(part: np.ndarray) -> float:
    import numpy as np

    sizes = np.abs(part)
    finite = sizes[np.isfinite(sizes)]
    return float(finite.max()) if finite.size else 0.0
