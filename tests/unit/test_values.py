"""Casts, dtypes, buffers, unknown shapes, deep objects: which values are restored, bit by bit."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.restores import config

import tfckpt
from tfckpt.core.dtypes import LostNumberError, can_cast, cast, numpy_dtype
from tfckpt.live import apply

LOST = [
    (1e6, "float16"), (float(2**40), "int32"), (float("nan"), "int32"), (-1.0, "uint8"),
    (0.5, "int8"),
]  # fmt: skip


def test_a_cast_that_rounds_is_a_cast_and_one_that_would_lose_a_value_is_refused(tmp_path) -> None:
    for stored, dtype in LOST:
        saved = tfckpt.Checkpoint(a=tf.Variable(1.0), b=tf.Variable(stored))
        path = saved.save(tmp_path / "ckpt")
        a, b = tf.Variable(0.0), tf.Variable(tf.cast(3, dtype))
        with pytest.raises(tfckpt.RestoreError, match=f"b: {dtype} cannot hold"):
            tfckpt.restore(config(path, on_dtype_mismatch="cast"), a=a, b=b)
        assert (float(a), int(b)) == (0.0, 3)
    saved = tfckpt.Checkpoint(a=tf.Variable(1.1), b=tf.Variable(float("inf")))
    a, b = tf.Variable(tf.cast(0, "bfloat16")), tf.Variable(tf.cast(0, "float16"))
    path = saved.save(tmp_path / "ckpt")
    tfckpt.restore(config(path, on_dtype_mismatch="cast"), a=a, b=b)
    assert float(a) == float(tf.cast(1.1, "bfloat16"))
    assert float(b) == float("inf")


@pytest.mark.parametrize("small", ["float8_e5m2", "float8_e4m3fn", "int4"])
def test_small_dtypes_widen_safely_and_nothing_narrows_to_them(small) -> None:
    wide, kind = numpy_dtype("float32"), numpy_dtype(small)
    every = np.arange(256, dtype=np.uint8).view(kind) if kind.name != "int4" else np.arange(-8, 8)
    every = every.astype(kind)[np.isfinite(every.astype(np.float64))]
    assert can_cast(small, "float32", "safe")
    assert can_cast("uint8", "bfloat16", "safe")
    np.testing.assert_array_equal(cast(every, wide).astype(kind), every)
    assert not can_cast("float32", small, "safe")
    assert not can_cast("int8", small, "safe")
    with pytest.raises(LostNumberError, match=f"{small} cannot hold 1000000.0, which is float32"):
        cast(np.array([1e6], np.float32), kind)


def test_a_seed_of_an_older_keras_is_taken_as_it_is(monkeypatch, tmp_path) -> None:
    """Seeds were uint32 in Keras 3.1 and int64 later."""

    def dropout(dtype: str, seed: int) -> Any:
        monkeypatch.setattr(keras.src.backend, "random_seed_dtype", lambda: dtype)
        layer = keras.layers.Dropout(0.5, seed=seed, name="drop")
        return keras.Sequential([keras.Input((2,)), layer])

    old, new = dropout("uint32", 7), dropout("int64", 8)
    old(np.ones((1, 2)), training=True)
    path = tfckpt.Checkpoint(model=old).save(tmp_path / "ckpt")
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    states = [model.layers[0].seed_generator.state.numpy() for model in (old, new)]
    assert (states[0].dtype, states[1].dtype) == (np.uint32, np.int64)
    np.testing.assert_array_equal(*states)


DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e5m2", "float8_e4m3fn"),
]


@pytest.fixture(params=["tensor", "array"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small values go through an array, and most tests have only such."""
    if request.param != "array":
        monkeypatch.setattr(apply, "COPIED", 0)


def values(seed: int) -> dict[str, tf.Variable]:
    random = np.random.default_rng(seed)
    return {
        f"{dtype}_{n}": tf.Variable(
            np.asarray(random.uniform(0 if dtype[0] == "u" else -9, 9, shape)).astype(
                tf.as_dtype(dtype).as_numpy_dtype
            )
        )
        for dtype in DTYPES
        for n, shape in enumerate([(), (0, 2), (70, 30)])
    }


def content(variables: dict[str, tf.Variable]) -> dict[str, bytes]:
    return {name: variable.numpy().tobytes() for name, variable in variables.items()}


@pytest.mark.usefixtures("way")
def test_every_dtype_is_restored_bit_by_bit_or_put_back(tmp_path) -> None:
    saved, restored = values(1), values(2)
    path = tf.train.Checkpoint(**saved).write(str(tmp_path / "ckpt"))
    before = content(restored)
    assert before != content(saved)
    status = tfckpt.Checkpoint(**restored, more=tf.Variable(1.0)).read(path)
    assert content(restored) == content(saved)
    for name, variable in restored.items():
        assert (variable.shape, variable.dtype) == (saved[name].shape, saved[name].dtype)
    with pytest.raises(AssertionError, match="every variable has its old value again"):
        status.assert_existing_objects_matched()
    assert content(restored) == before
    tfckpt.Checkpoint(**restored).read(path).assert_consumed()
    assert content(restored) == content(saved)


@pytest.mark.usefixtures("way")
def test_what_is_updated_in_place_is_seen_through_nothing_else(tmp_path) -> None:
    saved = {"a": tf.Variable(tf.ones((300, 300))), "b": tf.Variable(tf.ones(5))}
    path = tf.train.Checkpoint(**saved).write(str(tmp_path / "ckpt"))
    restored, other = (
        {name: tf.Variable(tf.zeros_like(variable)) for name, variable in saved.items()}
        for _ in range(2)
    )
    before = {name: variable.read_value() for name, variable in restored.items()}
    status = tfckpt.Checkpoint(**restored).read(path)
    tfckpt.Checkpoint(**other).read(path)
    after = {name: variable.read_value() for name, variable in restored.items()}
    for variable in restored.values():
        variable.assign_add(tf.ones_like(variable))
        variable.scatter_nd_update([[0]], [tf.fill(variable.shape[1:], 7.0)])
    for name, variable in restored.items():
        assert not before[name].numpy().any()
        assert (after[name].numpy() == 1).all()
        assert (other[name].numpy() == 1).all()
        assert (variable.numpy()[1:] == 2).all()
        assert (variable.numpy()[0] == 7).all()
    del status


@pytest.mark.parametrize("shape", [(0, 2**31), (2**33, 0)])
@pytest.mark.usefixtures("way")
def test_a_side_may_be_longer_than_int32_counts(shape, tmp_path) -> None:
    for unknown in (False, True):

        def empty(unknown: bool = unknown) -> Any:
            zeros = tf.zeros(tf.constant(shape, tf.int64), tf.int8)
            return tf.Variable(zeros, shape=[None, None] if unknown else None)

        path = tfckpt.Checkpoint(v=empty(), w=tf.Variable([1.0])).save(str(tmp_path / "ckpt"))
        v, w = empty(), tf.Variable([0.0])
        if unknown:
            v.assign(tf.ones([2, 3], tf.int8))
        tfckpt.Checkpoint(v=v, w=w).restore(path).assert_consumed()
        assert tuple(v.value().shape) == shape
        assert w.numpy() == 1.0


@pytest.mark.parametrize("length", [0, 3, 5])
def test_a_variable_of_unknown_length_takes_any(length, tmp_path) -> None:
    """As in TensorFlow."""

    def variable(values: Any, *shape: int | None) -> Any:
        return tf.Variable(values, shape=shape or [None], dtype="float32")

    path = tfckpt.Checkpoint(v=variable([1.0] * length)).save(tmp_path / "ckpt")
    plain = variable([7.0, 8.0, 9.0])
    tf.train.Checkpoint(v=plain).read(path).assert_existing_objects_matched()
    for verify in ("checksums", "values"):
        v = variable([7.0, 8.0, 9.0])
        tfckpt.restore(config(path, verify=verify, api="read", on_unexpected="ignore"), v=v)
        assert v.numpy().tolist() == plain.numpy().tolist() == [1.0] * length
    for other in (variable([7.0, 8.0, 9.0, 10.0], 4), variable([[1.0]], None, None)):
        with pytest.raises(tfckpt.RefusedError, match="incompatible tensor with shape"):
            tfckpt.Checkpoint(v=other).restore(path)


DEPTH = 900  # from about 1,000 on TensorFlow's own save ends in a RecursionError


def chain(value: float) -> tuple[Any, tf.Variable]:
    variable = tf.Variable(value)
    top = tf.train.Checkpoint(value=variable)
    for _ in range(DEPTH):
        top = tf.train.Checkpoint(inner=top)
    return top, variable


def test_objects_may_be_nested_as_deeply_as_tensorflow_writes_them(tmp_path) -> None:
    plain = chain(3.0)[0].save(str(tmp_path / "plain"))
    assert f"{'inner/' * DEPTH}value" in tfckpt.inspect(plain).inventory.entries
    path = tfckpt.Checkpoint(model=chain(3.0)[0]).write(tmp_path / "ckpt")
    other, variable = chain(0.0)
    tfckpt.restore(path, model=other)
    assert float(variable) == 3.0
    tf.train.Checkpoint(model=chain(0.0)[0]).read(path).assert_consumed()


def test_layers_nested_too_deeply_for_python_are_refused_with_what_helps(tmp_path) -> None:
    top = keras.layers.Dense(1)
    for _ in range(300):
        outer = keras.layers.Layer()
        outer.inner, top = top, outer
    with pytest.raises(tfckpt.UntrackedError, match=r"(?s)nested too deeply.*setrecursionlimit"):
        tfckpt.Checkpoint(layer=top).write(tmp_path / "ckpt")
