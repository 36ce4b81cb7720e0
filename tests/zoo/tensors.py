"""Values of every dtype that a checkpoint holds, any bits at all, and how TensorFlow saves them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

DTYPES = [
    *("float16", "float32", "float64", "bfloat16", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e5m2", "float8_e4m3fn", "int4", "uint4"),
]
SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
KEYS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
)


def random_array(seed: int, dtype: str, shape: tuple[int, ...]) -> Any:
    """Any bits at all, NaNs and denormals too."""
    import ml_dtypes

    rng = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in ("int4", "uint4"):
        return rng.integers(0, 8, shape).astype(kind)
    raw = rng.integers(0, 256, int(np.prod(shape)) * kind.itemsize, np.uint8)
    return raw.view(kind).reshape(shape)


@st.composite
def values(draw: Any) -> Any:
    shape = draw(SHAPES)
    if draw(st.integers(0, 5)) == 0:
        count = int(np.prod(shape))
        texts = draw(st.lists(st.binary(max_size=200), min_size=count, max_size=count))
        array = np.empty(count, object)
        array[:] = texts
        return array.reshape(shape)
    return random_array(draw(st.integers(0, 2**32)), draw(st.sampled_from(DTYPES)), shape)


def assert_same(tf: Any, read: Any, written: Any) -> None:
    assert read.shape == written.shape
    if written.dtype == object:
        assert read.ravel().tolist() == written.ravel().tolist()
    else:
        assert tf.dtypes.as_dtype(read.dtype) == tf.dtypes.as_dtype(written.dtype)
        assert read.tobytes() == written.tobytes()


def save(tf: Any, prefix: str, content: dict[str, Any]) -> None:
    tensors = [
        tf.constant(value, tf.string if value.dtype == object else None, value.shape)
        for value in content.values()
    ]
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(content),
        shape_and_slices=[""] * len(tensors),
        tensors=tensors,
    )
