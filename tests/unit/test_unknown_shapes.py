"""Variables that were made with an unknown shape, as ``tf.Variable(…, shape=[None])``."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import tfckpt


@pytest.mark.parametrize("length", [0, 3, 5])
def test_a_variable_of_unknown_length_takes_any(length, tmp_path) -> None:
    """As in TensorFlow."""

    def variable(values: list[float]) -> Any:
        return tf.Variable(values, shape=[None], dtype="float32")

    path = tfckpt.Checkpoint(v=variable([1.0] * length)).save(tmp_path / "ckpt")
    plain = variable([7.0, 8.0, 9.0])
    tf.train.Checkpoint(v=plain).read(path).assert_existing_objects_matched()
    for policy in ({}, {"verify": "values"}):
        v = variable([7.0, 8.0, 9.0])
        config = {
            "version": 1,
            "restore": {
                "path": path,
                "policy": {**policy, "api": "read", "on_unexpected": "ignore"},
            },
        }
        tfckpt.restore(config, v=v)
        assert v.numpy().tolist() == plain.numpy().tolist() == [1.0] * length
    fixed = tf.Variable([7.0, 8.0, 9.0, 10.0])
    with pytest.raises(tfckpt.RefusedError, match="incompatible tensor with shape"):
        tfckpt.Checkpoint(v=fixed).restore(path)
    square = tf.Variable([[1.0]], shape=[None, None])
    with pytest.raises(tfckpt.RefusedError, match="incompatible tensor with shape"):
        tfckpt.Checkpoint(v=square).restore(path)
