"""What a probe and a failing `verify: function` leave behind: nothing."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path


class Counting(keras.layers.Layer):
    """Keeps what it has seen, in containers within others."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.seen = {"all": [1, {"last": [0]}], "both": ([2], [3])}

    def call(self, inputs: Any) -> Any:
        self.seen["all"].append(4)
        self.seen["all"][1]["last"][0] += 1
        self.seen["both"][0].clear()
        return inputs


def test_what_a_call_changes_within_containers_is_put_back(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), Counting(), keras.layers.Dense(2, name="out")])
    before = copy.deepcopy(dict(model.layers[0].seen))
    tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe="auto")
    assert dict(model.layers[0].seen) == before


def test_an_iterator_is_put_back_where_the_function_differs(tmp_path: Path) -> None:
    def program(activation: str) -> tuple[Any, Any]:
        dense = keras.layers.Dense(2, activation, name="out")
        numbers = tf.data.Dataset.range(9)
        return keras.Sequential([keras.Input((4,)), dense]), iter(numbers)

    model, iterator = program("tanh")
    path = tfckpt.Checkpoint(model=model, iterator=iterator).save(tmp_path / "ckpt", probe="auto")
    model, iterator = program("relu")
    before = [value.numpy() for value in model.variables]
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(tfckpt.RestoreError, match="verify: function"):
        tfckpt.restore(path, model, iterator=iterator, verify="function")
    assert int(next(iterator)) == 3
    assert all(
        np.array_equal(old, new) for old, new in zip(before, model.get_weights(), strict=True)
    )
