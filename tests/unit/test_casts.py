"""``on_dtype_mismatch: cast``: what rounds is a cast, what would be lost is refused."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.core.dtypes import LostNumberError, can_cast, cast, numpy_dtype

_WHOLE = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize(
    ("stored", "dtype"),
    [
        (1e6, "float16"),
        (float(2**40), "int32"),
        (float("nan"), "int32"),
        (-1.0, "uint8"),
        (0.5, "int8"),
    ],
)
def test_a_cast_that_would_lose_a_value_is_refused(stored, dtype, tmp_path) -> None:
    path = tfckpt.Checkpoint(a=tf.Variable(1.0), b=tf.Variable(stored)).save(tmp_path / "ckpt")
    a, b = tf.Variable(0.0), tf.Variable(tf.cast(3, dtype))
    policy = {"on_dtype_mismatch": "cast"}
    with pytest.raises(tfckpt.RestoreError, match=f"b: {dtype} cannot hold"):
        tfckpt.restore({"version": 1, "restore": {"path": path, "policy": policy}}, a=a, b=b)
    assert (float(a), int(b)) == (0.0, 3)


def test_a_cast_that_rounds_is_a_cast(tmp_path) -> None:
    path = tfckpt.Checkpoint(a=tf.Variable(1.1), b=tf.Variable(float("inf"))).save(tmp_path / "c")
    a, b = tf.Variable(tf.cast(0, "bfloat16")), tf.Variable(tf.cast(0, "float16"))
    policy = {"on_dtype_mismatch": "cast"}
    tfckpt.restore({"version": 1, "restore": {"path": path, "policy": policy}}, a=a, b=b)
    assert float(a) == float(tf.cast(1.1, "bfloat16"))
    assert float(b) == float("inf")


@pytest.mark.parametrize(
    ("number", "stored", "live"),
    [
        (200, "uint8", "int8"),
        (2**31, "uint32", "int32"),
        (2**63, "uint64", "int64"),
        (-3, "int8", "uint8"),
    ],
)
def test_whole_numbers_do_not_wrap(number, stored, live, tmp_path) -> None:
    path = tfckpt.Checkpoint(v=tf.Variable(tf.constant([1, number], stored))).write(tmp_path / "c")
    v = tf.Variable(tf.constant([5, 5], live))
    policies = [{"on_dtype_mismatch": "cast"}]
    if (
        number > 0
    ):  # from int to uint is another kind to NumPy, and refused before any value is read
        policies.append({"adapt": [{"model": "v", "how": "cast"}]})
    for policy in policies:
        config = {"version": 1, "restore": {"path": path, "policy": {"api": "read", **policy}}}
        with pytest.raises(tfckpt.RestoreError, match=f"v: {live} cannot hold {number}"):
            tfckpt.restore(config, v=v)
    assert v.numpy().tolist() == [5, 5]


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(_WHOLE, 2)))
def test_what_an_integer_type_holds_is_what_numpy_says(old, new) -> None:
    edges = {
        int(e) + d
        for t in (old, new)
        for e in (np.iinfo(t).min, 0, np.iinfo(t).max)
        for d in (-1, 0, 1)
    }
    numbers = sorted(n for n in edges if np.iinfo(old).min <= n <= np.iinfo(old).max)
    expected = [np.iinfo(new).min <= n <= np.iinfo(new).max for n in numbers]
    assert [_holds(new, np.array([number], old)) for number in numbers] == expected


def _holds(dtype: str, values: np.ndarray) -> bool:
    try:
        assert (cast(values, np.dtype(dtype)) == values).all()
    except LostNumberError:
        return False
    return True


@pytest.mark.parametrize("new", _WHOLE)
@pytest.mark.parametrize("old", ["float16", "bfloat16", "float32", "float64"])
def test_an_integer_type_holds_the_whole_numbers_in_its_range(old, new) -> None:
    limits, kind = np.iinfo(new), numpy_dtype(old)
    edges = [float(e) * s + d for e in (limits.min, limits.max) for s in (1, 2) for d in (-1, 0, 1)]
    numbers = [*edges, 0.5, -0.5, -0.0, np.inf, -np.inf, np.nan]
    with np.errstate(over="ignore"):
        stored = np.array(numbers).astype(kind)
    for number in stored:
        exact = float(number)
        expected = exact.is_integer() and limits.min <= int(exact) <= limits.max
        assert _holds(new, np.array([number], kind)) == expected, number


@pytest.mark.parametrize("small", ["float8_e5m2", "float8_e4m3fn", "int4"])
def test_small_dtypes_widen_safely_and_nothing_narrows_to_them(small) -> None:
    wide, kind = numpy_dtype("float32"), numpy_dtype(small)
    every = np.arange(256, dtype=np.uint8).view(kind) if kind.name != "int4" else np.arange(-8, 8)
    every = every.astype(kind)[np.isfinite(every.astype(np.float64))]
    assert can_cast(small, "float32", "safe")
    np.testing.assert_array_equal(cast(every, wide).astype(kind), every)
    assert not can_cast("float32", small, "safe")
    assert not can_cast("int8", small, "safe")
    with pytest.raises(LostNumberError, match=f"{small} cannot hold 1000000.0, which is float32"):
        cast(np.array([1e6], np.float32), kind)


def _dropout(monkeypatch, dtype: str, seed: int) -> keras.Model:
    """Seeds were uint32 in Keras 3.1 and int64 later."""
    monkeypatch.setattr(keras.src.backend, "random_seed_dtype", lambda: dtype)
    return keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.5, seed=seed, name="drop")])


def test_a_seed_of_an_older_keras_is_taken_as_it_is(monkeypatch, tmp_path) -> None:
    old, new = _dropout(monkeypatch, "uint32", 7), _dropout(monkeypatch, "int64", 8)
    old(np.ones((1, 2)), training=True)
    path = tfckpt.Checkpoint(model=old).save(tmp_path / "ckpt")
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    states = [model.layers[0].seed_generator.state.numpy() for model in (old, new)]
    assert (states[0].dtype, states[1].dtype) == (np.uint32, np.int64)
    np.testing.assert_array_equal(*states)


def test_a_seed_of_a_newer_keras_is_refused_where_it_might_not_fit(monkeypatch, tmp_path) -> None:
    new, old = _dropout(monkeypatch, "int64", 8), _dropout(monkeypatch, "uint32", 7)
    path = tfckpt.Checkpoint(model=new).save(tmp_path / "ckpt")
    with pytest.raises(tfckpt.RefusedError, match="int64 in the checkpoint, uint32 in the model"):
        tfckpt.Checkpoint(model=old).restore(path)
    assert old.layers[0].seed_generator.state.numpy().tolist() == [7, 0]
