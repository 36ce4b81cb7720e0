"""Values that are read into what becomes a variable's memory: any dtype, nobody else's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.live import apply
from tfckpt.stored.bundles.index import BundleEntry
from tfckpt.stored.io.files import LocalHandle

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e5m2", "float8_e4m3fn"),
]


@pytest.fixture(params=["tensor", "array"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small values go through an array, and most tests have only such."""
    if request.param != "array":
        monkeypatch.setattr(apply, "COPIED", 0)
    return str(request.param)


def values(seed: int) -> dict[str, tf.Variable]:
    random = np.random.default_rng(seed)
    shapes = [(3, 5), (), (0, 2), (70, 30)]
    return {
        f"{dtype}_{n}": tf.Variable(_cast(random.uniform(-9, 9, shape), dtype))
        for dtype in DTYPES
        for n, shape in enumerate(shapes)
    }


def _cast(value: np.ndarray, dtype: str) -> Any:
    if dtype.startswith("u"):
        value = abs(value)
    return np.asarray(value).astype(tf.as_dtype(dtype).as_numpy_dtype)


def content(variables: dict[str, tf.Variable]) -> dict[str, bytes]:
    return {name: variable.numpy().tobytes() for name, variable in variables.items()}


@pytest.mark.usefixtures("way")
def test_every_dtype_is_restored_bit_by_bit(tmp_path) -> None:
    saved, restored = values(1), values(2)
    path = tf.train.Checkpoint(**saved).write(str(tmp_path / "ckpt"))
    assert content(restored) != content(saved)
    tfckpt.Checkpoint(**restored).read(path).assert_consumed()
    assert content(restored) == content(saved)
    for name, variable in restored.items():
        assert (variable.shape, variable.dtype) == (saved[name].shape, saved[name].dtype)


@pytest.mark.usefixtures("way")
def test_what_is_updated_in_place_is_seen_through_nothing_else(tmp_path) -> None:
    saved = {"a": tf.Variable(tf.ones((300, 300))), "b": tf.Variable(tf.ones(5))}
    path = tf.train.Checkpoint(**saved).write(str(tmp_path / "ckpt"))
    restored = {name: tf.Variable(tf.zeros_like(variable)) for name, variable in saved.items()}
    other = {name: tf.Variable(tf.zeros_like(variable)) for name, variable in saved.items()}
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


@pytest.mark.usefixtures("way")
def test_a_restored_variable_is_not_copied_whenever_it_is_read(tmp_path) -> None:
    saved = {f"v{n}": tf.Variable(tf.ones((30, 40))) for n in range(9)}
    path = tf.train.Checkpoint(**saved).write(str(tmp_path / "ckpt"))
    restored = {name: tf.Variable(tf.zeros_like(variable)) for name, variable in saved.items()}
    tfckpt.Checkpoint(**restored).read(path)
    for variable in restored.values():
        held = [variable.read_value() for _ in range(3)]
        assert len({np.asarray(value).ctypes.data for value in held}) == 1


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("at_a_time", [0, 100])
def test_every_dtype_is_restored_a_few_at_a_time(tmp_path, monkeypatch, at_a_time) -> None:
    monkeypatch.setattr(apply, "AT_A_TIME", at_a_time)
    saved, restored = values(1), values(2)
    path = tf.train.Checkpoint(**saved).write(str(tmp_path / "ckpt"))
    tfckpt.restore(path, **restored, verify="none")
    assert content(restored) == content(saved)


@pytest.mark.usefixtures("way")
def test_old_values_are_put_back(tmp_path) -> None:
    saved, restored = values(1), values(2)
    path = tf.train.Checkpoint(**saved).write(str(tmp_path / "ckpt"))
    before = content(restored)
    status = tfckpt.Checkpoint(**restored, more=tf.Variable(1.0)).read(path)
    assert content(restored) == content(saved)
    with pytest.raises(AssertionError, match="every variable has its old value again"):
        status.assert_existing_objects_matched()
    assert content(restored) == before


@pytest.mark.parametrize("shape", [(0, 2**31), (2**33, 0), (0, 2**31 - 1)])
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.usefixtures("way")
def test_a_side_may_be_longer_than_int32_counts(shape, unknown, tmp_path) -> None:
    def empty() -> Any:
        zeros = tf.zeros(tf.constant(shape, tf.int64), tf.int8)
        return tf.Variable(zeros, shape=[None, None] if unknown else None)

    path = tfckpt.Checkpoint(v=empty(), w=tf.Variable([1.0])).save(str(tmp_path / "ckpt"))
    v, w = empty(), tf.Variable([0.0])
    if unknown:
        v.assign(tf.ones([2, 3], tf.int8))
    tfckpt.Checkpoint(v=v, w=w).restore(path).assert_consumed()
    assert tuple(v.value().shape) == shape
    assert w.numpy() == 1.0


def test_there_is_memory_for_a_side_longer_than_int32_counts() -> None:
    """Nothing is written to it: memory that is only asked for costs nothing."""
    entry = BundleEntry("int8", (2**31,), shard=0, offset=0, nbytes=2**31, crc32c=0)
    value, _ = apply.memory(entry, plain=True)
    assert value.shape == (2**31,)


def test_a_part_is_restored_by_reading_that_part(tmp_path, monkeypatch) -> None:
    layers = {f"layer_{n:03d}": tf.Variable(tf.fill((n % 7 * 40 + 1, 16), 1.0)) for n in range(200)}
    path = tf.train.Checkpoint(**layers).write(str(tmp_path / "ckpt"))
    wanted = {name: tf.Variable(tf.zeros_like(layers[name])) for name in list(layers)[::10]}
    read, real = [], LocalHandle.readinto

    def readinto(handle: LocalHandle, offset: int, buffer: memoryview) -> int:
        read.append(len(buffer) if ".data-" in str(handle._file.name) else 0)
        return real(handle, offset, buffer)

    monkeypatch.setattr(LocalHandle, "readinto", readinto)
    policy = {"on_unexpected": "ignore", "on_missing": "ignore"}
    config = {"version": 1, "restore": {"path": path, "policy": policy}}
    tfckpt.plan(config, **wanted)
    planned = sum(read)  # the object graph
    tfckpt.restore(config, **wanted)
    assert all((variable.numpy() == 1).all() for variable in wanted.values())
    needed = sum(variable.numpy().nbytes for variable in wanted.values())
    assert sum(read) - 2 * planned <= 1.02 * needed
