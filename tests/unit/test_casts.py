"""``on_dtype_mismatch: cast``: what rounds is a cast, what would be lost is refused."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tfckpt


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
