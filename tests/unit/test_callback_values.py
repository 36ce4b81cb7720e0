"""Values as JSON and back: equal, of the same type, in the same order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from zoo.fits import through_json

from tfckpt.fitting.values import NoJSONError, decode, encode

DTYPES = st.sampled_from(["?", "i1", "i4", "i8", "u8", "f2", "f4", "f8"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | hnp.arrays(DTYPES, ()).map(lambda array: array[()])
)
data = st.recursive(
    scalars | hnp.arrays(DTYPES, hnp.array_shapes(min_side=0)),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.sampled_from(["$int", "$"]) | st.integers(), inner)
    ),
    max_leaves=20,
)


def alike(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, other)) and all(
            map(alike, one.values(), other.values())
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and repr(one.tolist()) == repr(other.tolist())
    return repr(one) == repr(other)  # tells -0.0 from 0.0, and NaN is NaN


@given(data)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert alike(decode(through_json(encode(value))), value)


@given(st.integers(min_value=1 << 63) | st.integers(max_value=-(1 << 63) - 1))
def test_no_number_is_too_long_for_a_record(value: int) -> None:
    assert isinstance(encode(value), dict)
    assert decode(encode(value)) == value


def test_tensors_and_small_floats_come_back_as_numpy_scalars() -> None:
    import ml_dtypes
    import tensorflow as tf

    for value in (tf.constant(0.1, tf.bfloat16), ml_dtypes.bfloat16(0.1)):
        back = decode(through_json(encode(value)))
        assert (type(back), float(back)) == (ml_dtypes.bfloat16, 0.10009765625)
    back = decode(encode(tf.Variable([1.5, math.nan])))
    np.testing.assert_array_equal(back, np.array([1.5, math.nan], np.float32))


def test_what_is_nested_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NoJSONError, match="levels"):
        encode(endless)
