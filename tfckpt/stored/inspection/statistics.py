"""Computes statistics of a value: range, mean, zeros, non-finite numbers.

Values are processed in parts of about a megabyte, in float64, with little extra memory. Minimum and
maximum of integers, and differences between integers, are exact.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

BINS = 12
_BINS_OF_TWO = 24  # where two histograms are drawn over each other
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


@dataclasses.dataclass(frozen=True, slots=True)
class ValueChange:
    """How far a value has moved as a whole, from a to b.

    Attributes:
        moved: Euclidean norm of ``b - a``; None where an element is not finite.
        norm: Euclidean norm of ``a``; None likewise.
        least: lower end of both histograms; None without finite numbers.
        greatest: upper end of both.
        a: counts in equal bins from least to greatest; () without finite numbers.
        b: the same of the other value.
    """

    moved: float | None
    norm: float | None
    least: float | None = None
    greatest: float | None = None
    a: tuple[int, ...] = ()
    b: tuple[int, ...] = ()


def change(a: np.ndarray, b: np.ndarray) -> ValueChange | None:
    """How far a value has moved; None where shapes differ or they are not numbers.

    >>> import numpy as np
    >>> found = change(np.array([3.0, 4.0]), np.array([3.0, 5.0]))
    >>> found.moved, found.norm, found.least, found.greatest, sum(found.b)
    (1.0, 5.0, 3.0, 5.0, 2)
    """
    import numpy as np

    if a.shape != b.shape or not (_is_numeric(a) and _is_numeric(b)):
        return None
    result = ValueChange(moved(a, b), norm(a))
    bounds: list[float] = []
    with np.errstate(all="ignore"):
        for side in (a, b):
            for _, wide in _wide(side):
                finite = wide.real[np.isfinite(wide.real)]
                bounds += [float(finite.min()), float(finite.max())] if finite.size else []
        if not bounds or not math.isfinite(max(bounds) - min(bounds)):
            return result
        ends = min(bounds), max(bounds)
        counts = (_counts(side, *ends) for side in (a, b))
        return ValueChange(result.moved, result.norm, *ends, *counts)


def norm(array: np.ndarray) -> float | None:
    """The Euclidean norm of a value; None if it holds no numbers, or not only finite ones."""
    return _length(wide for _, wide in _wide(array)) if _is_numeric(array) else None


def moved(a: np.ndarray, b: np.ndarray) -> float | None:
    """The Euclidean norm of the difference; None where shapes differ or one is not finite."""
    if a.shape != b.shape or not (_is_numeric(a) and _is_numeric(b)):
        return None
    return _length(right - left for (_, left), (_, right) in zip(_wide(a), _wide(b), strict=True))


def _length(parts: Iterable[np.ndarray]) -> float | None:
    """The Euclidean norm of a vector that comes in parts; None if it is not finite."""
    import numpy as np

    with np.errstate(all="ignore"):
        squares = sum(float(np.square(np.abs(part)).sum()) for part in parts)
    return math.sqrt(squares) if math.isfinite(squares) else None


def _is_numeric(array: np.ndarray) -> bool:
    return not array.dtype.hasobject and not array.dtype.fields and array.dtype.kind not in "SU"


def _counts(array: np.ndarray, least: float, greatest: float) -> tuple[int, ...]:
    import numpy as np

    counts = np.zeros(_BINS_OF_TWO, np.int64)
    scale = _BINS_OF_TWO / (greatest - least) if greatest > least else 0.0
    for _, wide in _wide(array):
        finite = wide.real[np.isfinite(wide.real)]
        bins = np.minimum(((finite - least) * scale).astype(np.int64), _BINS_OF_TWO - 1)
        counts += np.bincount(bins, minlength=_BINS_OF_TWO)
    return tuple(map(int, counts))


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
