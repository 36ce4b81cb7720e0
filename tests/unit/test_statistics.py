"""Statistics of any numbers that a checkpoint may hold, the largest and the smallest included."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tfckpt.tools.statistics import BINS, Distance, difference, statistics

MOST = np.finfo(np.float64).max
ODD = {
    "beyond the integers of a float64": np.array([1e16, 1e16 + 2, 1e16 + 4]),
    "all equal, and as large": np.full(5, 1e16),
    "as far apart as can be": np.array([MOST, -MOST, 0.0]),
    "all the largest": np.full(9, MOST),
    "denormal": np.array([5e-324, 1e-323, 0.0]),
    "one denormal": np.full(3, 5e-324),
    "denormal float32": np.array([1e-45, 3e-45], np.float32),
    "int64 near 2^60": np.array([2**60, 2**60 + 1, 2**60 + 2]),
    "all int64": np.array([-(2**63), 2**63 - 1, 0]),
    "the largest uint64": np.array([2**64 - 1, 2**64 - 2], np.uint64),
    "all uint64": np.array([0, 2**64 - 1], np.uint64),
    "all int8": np.array([-128, 127], np.int8),
    "bool": np.array([True, False, True]),
    "scalar": np.array(3.0),
    "the largest float16": np.array([65504, -65504], np.float16),
    **{
        f"{np.dtype(kind)}": np.array([0, 1, 2, 3]).astype(kind)
        for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    },
}


def exact(array):
    """Mean and variance, in fractions."""
    numbers = [Fraction(one) for one in array.astype(object).reshape(-1).tolist()]
    mean = sum(numbers) / len(numbers)
    return mean, sum((one - mean) ** 2 for one in numbers) / len(numbers)


def check(array):
    found = statistics(array)
    plain = array.astype(np.float64) if array.dtype.kind == "V" else array
    plain = plain.astype(np.int64) if plain.dtype.kind == "b" else plain
    assert (found.least, found.greatest) == (plain.min(), plain.max())
    mean, variance = exact(plain)
    span = Fraction(found.greatest) - Fraction(found.least)
    least = Fraction(5e-324)
    assert abs(Fraction(found.mean) - mean) <= (span + abs(mean)) * Fraction(1e-12) + least
    near = span**2 * Fraction(1e-9) + 2 * span * least
    assert abs(Fraction(found.std) ** 2 - variance) <= near
    assert sum(found.histogram) == array.size
    assert len(found.histogram) == BINS


@pytest.mark.parametrize("array", ODD.values(), ids=ODD)
def test_any_numbers_have_statistics(array):
    check(array)


@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.uint64, np.int8]),
        hnp.array_shapes(max_dims=2, max_side=9),
        elements={"allow_nan": False, "allow_infinity": False},
    )
)
def test_of_whatever_numbers(array):
    check(array)


def test_a_histogram_is_numpys():
    numbers = np.random.default_rng(7).normal(size=2_500_000).astype(np.float32)
    expected, _ = np.histogram(numbers.astype(np.float64), BINS)
    assert statistics(numbers).histogram == tuple(expected)
    ramp = np.arange(256, dtype=np.uint8)
    assert statistics(ramp).histogram == tuple(np.histogram(ramp.astype(float), BINS)[0])


def test_what_is_no_number_is_counted_apart():
    found = statistics(np.array([np.nan, np.inf, -np.inf, 1.0]))
    assert (found.nonfinite, found.least, found.greatest, found.std) == (3, 1.0, 1.0, 0.0)
    for array in (np.full(3, np.nan), np.zeros((0, 3))):
        found = statistics(array)
        assert (found.least, found.mean, found.std, found.histogram) == (None, None, None, ())
    assert statistics(np.array([b"a"], object)) is None


def test_complex_numbers_are_told_by_their_magnitudes():
    found = statistics(np.array([3 + 4j, 0, complex(np.inf, 0)]))
    assert (found.least, found.greatest, found.nonfinite) == (0.0, 5.0, 1)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([2**60], [2**60 + 1], 1.0),
        ([-(2**63)], [2**63 - 1], float(2**64)),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64), 1.0),
        (np.array([127], np.int8), np.array([-128], np.int8), 255.0),
        ([True], [False], 1.0),
        ([5e-324], [1e-323], 5e-324),
    ],
)
def test_how_far_apart_integers_are_is_exact(a, b, expected):
    found = difference(np.array(a), np.array(b))
    assert (found.count, found.largest) == (1, expected)


def test_nan_is_equal_to_nan():
    assert difference(np.array([np.nan]), np.array([np.nan])) == Distance(0, 0.0, 0.0)
