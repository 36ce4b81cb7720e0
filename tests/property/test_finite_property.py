"""Whether numbers are finite is told from their bits as NumPy tells it from their values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfckpt.stored.bundles.write import all_finite

KINDS = {
    **{name: np.dtype(name) for name in ("float16", "float32", "float64", "complex64")},
    "complex128": np.dtype("complex128"),
    **{
        name: np.dtype(getattr(ml_dtypes, name))
        for name in (
            "bfloat16",
            "float8_e5m2",
            "float8_e4m3fn",
            "float8_e5m2fnuz",
            "float8_e4m3fnuz",
            "float8_e4m3b11fnuz",
        )
    },
}


def expected(values: np.ndarray) -> bool:
    wide = values if values.dtype.kind in "fc" else values.astype(np.float64)
    return bool(np.isfinite(wide).all())


@settings(max_examples=300)
@given(dtype=st.sampled_from(sorted(KINDS)), data=st.binary(max_size=64))
def test_any_bits_at_all(dtype: str, data: bytes) -> None:
    kind = KINDS[dtype]
    raw = np.frombuffer(data[: len(data) // kind.itemsize * kind.itemsize], np.uint8)
    assert all_finite(raw, dtype) == expected(raw.view(kind))


@pytest.mark.parametrize("dtype", [name for name, kind in KINDS.items() if kind.itemsize <= 2])
def test_every_number_of_a_small_type(dtype: str) -> None:
    kind = KINDS[dtype]
    raw = np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}")
    told = [all_finite(raw[at : at + 1].view(np.uint8), dtype) for at in range(len(raw))]
    with np.errstate(all="ignore"):
        wide = raw.view(kind).astype(np.float64)
    assert told == np.isfinite(wide).tolist()


def test_other_types_are_always_finite() -> None:
    assert all_finite(np.full(8, 255, np.uint8), "int32")


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@given(
    count=st.integers(1, 3000),
    scale=st.sampled_from([1e-40, 1.0, 3e38]),
    odd=st.lists(st.tuples(st.integers(0, 2999), st.sampled_from([np.inf, -np.inf, np.nan]))),
)
def test_one_in_a_thousand_and_numbers_whose_sum_is_too_large(
    dtype: str, count: int, scale: float, odd: list[tuple[int, float]]
) -> None:
    values = np.full(count, scale, dtype)
    for at, value in odd:
        values[at % count] = value
    assert all_finite(values.view(np.uint8), dtype) == (not odd)
