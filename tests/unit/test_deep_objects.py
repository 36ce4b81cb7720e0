"""Objects nested as deeply as TensorFlow takes them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path

DEPTH = 900  # from about 1,000 on TensorFlow's own save ends in a RecursionError


def chain(value: float) -> tuple[Any, tf.Variable]:
    variable = tf.Variable(value)
    top = tf.train.Checkpoint(value=variable)
    for _ in range(DEPTH):
        top = tf.train.Checkpoint(inner=top)
    return top, variable


def test_a_chain_that_tensorflow_saved_is_read(tmp_path: Path) -> None:
    prefix = chain(3.0)[0].save(str(tmp_path / "ckpt"))
    name = f"{'inner/' * DEPTH}value"
    assert name in tfckpt.inspect(prefix).inventory.entries


def test_objects_nested_too_deeply_for_python_are_refused_with_what_helps(tmp_path: Path) -> None:
    top, _ = chain(3.0)
    with pytest.raises(tfckpt.UntrackedError, match="nested too deeply") as raised:
        tfckpt.Checkpoint(model=top).write(tmp_path / "ckpt")
    assert "sys.setrecursionlimit" in str(raised.value)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        path = tfckpt.Checkpoint(model=top).write(tmp_path / "ckpt")
        other, variable = chain(0.0)
        tfckpt.restore(path, model=other)
    finally:
        sys.setrecursionlimit(limit)
    assert float(variable) == 3.0
