"""Computes statistics of a value: range, mean, zeros, non-finite numbers.

Values are processed in parts of about a megabyte, in float64, with little extra memory. Minimum and
maximum of integers are exact.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

BINS = 12
_PART = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the numbers of a value; of their magnitudes, if complex.

    Attributes:
        count: number of elements.
        nonfinite: number of infinities and NaNs, which are excluded below.
        zeros: number of zeros.
        least: minimum; None without finite numbers.
        greatest: maximum; None without finite numbers.
        mean: None without finite numbers.
        std: standard deviation; None without finite numbers.
        histogram: counts in twelve equal bins from least to greatest; () without finite numbers.
    """

    count: int
    nonfinite: int = 0
    zeros: int = 0
    least: float | None = None
    greatest: float | None = None
    mean: float | None = None
    std: float | None = None
    histogram: tuple[int, ...] = ()


def statistics(array: np.ndarray) -> Statistics | None:
    """The statistics of a value; None where it holds no numbers.

    >>> import numpy as np
    >>> found = statistics(np.array([0.0, 1.0, 2.0, np.nan]))
    >>> found.least, found.greatest, found.mean, found.zeros, found.nonfinite
    (0.0, 2.0, 1.0, 1, 1)
    """
    import numpy as np

    if array.dtype.hasobject:
        return None
    if array.dtype.fields:  # quantized: a single integer field
        array = array[next(iter(array.dtype.fields))]
    with np.errstate(all="ignore"):
        return _numbers(array)


def _numbers(array: np.ndarray) -> Statistics:
    import numpy as np

    known = zeros = 0
    bounds: list[Any] = []
    for part in _parts(array):
        finite = part[np.isfinite(part.astype(np.float64))]
        known += finite.size
        zeros += int(np.count_nonzero(finite == 0))
        if finite.size:
            bounds += [finite.min().item(), finite.max().item()]
    if not known:
        return Statistics(array.size, array.size)
    least, greatest = min(bounds), max(bounds)
    mean, std, histogram = _spread(array, least, greatest)
    return Statistics(array.size, array.size - known, zeros, least, greatest, mean, std, histogram)


def _spread(array: np.ndarray, least: float, greatest: float) -> tuple[float, float, Any]:
    """Mean, standard deviation and histogram of the finite numbers.

    Numbers are scaled to 0..1 between minimum and maximum, so that none is too large to square or
    sum, and close ones stay distinct.
    """
    import numpy as np

    span, scale = float(greatest - least), 1.0
    if not math.isfinite(span):  # at most twice the largest float
        span, scale = greatest / 2 - least / 2, 0.5
    count, mean, squares = 0, 0.0, 0.0
    histogram = np.zeros(BINS, np.int64)
    for part in _parts(array):
        if part.dtype.kind in "iu":  # exact for any width, since unsigned integers wrap around
            finite = (part.astype(np.uint64) - np.uint64(least % (1 << 64))).astype(np.float64)
        else:
            numbers = part.astype(np.float64)
            finite = numbers[np.isfinite(numbers)] * scale - least * scale
        if not finite.size:
            continue
        positions = finite / span if span else np.full(finite.shape, 0.5)
        own = float(positions.mean())
        # Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for variances (1979)
        apart, both = own - mean, count + positions.size
        squares += (
            float(np.square(positions - own).sum()) + apart**2 * count * positions.size / both
        )
        mean += apart * positions.size / both
        count = both
        bins = np.minimum((positions * BINS).astype(np.int64), BINS - 1)
        histogram += np.bincount(bins, minlength=BINS)
    std = (squares / count) ** 0.5
    middle = (least * scale + mean * span) / scale
    return middle, std * span / scale, tuple(map(int, histogram))


def _parts(array: np.ndarray) -> Iterator[np.ndarray]:
    """The elements in parts, as dtypes that NumPy can compare."""
    import numpy as np

    flat = array.reshape(-1)
    for start in range(0, flat.size, _PART):
        part = flat[start : start + _PART]
        if part.dtype.kind == "c":
            yield np.abs(part)
        elif part.dtype.kind in "iuf":
            yield part
        elif part.dtype.kind == "b":
            yield part.astype(np.uint8)
        else:  # bfloat16 and the other small types of ml_dtypes
            yield part.astype(np.float32)
