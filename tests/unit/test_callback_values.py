"""Values as JSON and back: equal, of the same type, in the same order."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from zoo.fits import through_json

from tfckpt.training.json_values import MAX_BITS, NoJSONError, decode, encode

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


@given(st.sampled_from([1, -1]), st.integers(1, 64))
def test_a_number_is_as_long_as_a_person_would_have_it(sign: int, over: int) -> None:
    longest = sign * ((1 << MAX_BITS) - 1)
    assert decode(through_json(encode(longest))) == longest
    with pytest.raises(NoJSONError, match="bits"):
        encode(longest * (1 << over))


def test_what_is_encoded_as_deep_as_may_be_is_decoded() -> None:
    deepest: Any = 1
    for kind in (list, tuple, dict) * 5 + (list,):
        deepest = {1: deepest} if kind is dict else kind([deepest])
    assert decode(through_json(encode(deepest))) == deepest
    with pytest.raises(NoJSONError, match="levels"):
        encode([deepest])


ML_DTYPES = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"]


@pytest.mark.parametrize("name", ML_DTYPES)
def test_small_types_come_back(name: str) -> None:
    import ml_dtypes

    array = np.array([0, 1, 2], getattr(ml_dtypes, name))
    back = decode(through_json(encode(array)))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back.astype(float), [0, 1, 2])


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


# What a record may say that nobody has encoded, and what it would come to.
FORGED = {
    "text of 900 MB": {"$array": ["S900000000", [2], [1, 2]]},
    "Unicode of 3.6 GB": {"$array": ["U900000000", [2], [1, 2]]},
    "bytes of 900 MB": {"$array": ["V900000000", [1], [1]]},
    "a scalar of 900 MB": {"$V8": 900_000_000},
    "a scalar of text": {"$S9": 1},
    "a field list": {"$array": ["f8,(100000000,)f8", [1], [0]]},
    "a list of fields": {"$array": [[["a", "f8"]], [1], [0]]},
    "a repeated type": {"$array": ["(100000000,)f8", [1], [0]]},
    "objects": {"$array": ["O", [1], [0]]},
    "dates": {"$array": ["datetime64[s]", [1], [0]]},
    "sixteen bytes": {"$array": ["complex128", [1], [0]]},
    "long double": {"$longdouble": 1},
    "a shape that is not that of the elements": {"$array": ["int8", [900_000_000], [0]]},
    "a shape that is guessed": {"$array": ["int8", [-1], [0, 1]]},
    "a side that no array has": {"$array": ["int8", [0, 1 << 60], []]},
    "many dimensions": {"$array": ["int8", [1] * 40, [0]]},
    "many elements": {"$array": ["int8", [10_001], [0] * 10_001]},
    "lists for elements": {"$array": ["int8", [1], [[0] * 100]]},
    "a list for a scalar": {"$int8": [0] * 100},
    "a long number": {"$int": "f" * 1_000_000},
    "no number": {"$int": 5},
    "text for infinity": {"$float": "1" * 400},
    "a deep list": nested(900),
    "deep tuples": {"$tuple": [{"$tuple": [nested(20)]}]},
    "deep mappings": {"$dict": [[1, {"$dict": [[1, nested(20)]]}]]},
}


@pytest.mark.parametrize("value", FORGED.values(), ids=FORGED)
def test_what_nobody_encoded_is_refused_before_memory_is_taken(value: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((OverflowError, TypeError, ValueError)):
            decode(value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
