"""A fused attention written by hand and Keras's own give the same answers, restored by policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, HEADS, SIZE = 8, 2, 4
PARTS = [f"model/attention/{name}_dense" for name in ("query", "key", "value")]


def fused(keras: Any, positions: int) -> Any:
    """One dense layer makes queries, keys and values."""

    class Fused(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            self.qkv = keras.layers.Dense(3 * WIDTH)
            self.out = keras.layers.Dense(WIDTH)

        def call(self, x: Any) -> Any:
            parts = tf.reshape(self.qkv(x), (-1, positions, 3, HEADS, SIZE))
            query, key, value = tf.unstack(parts, axis=2)
            scores = tf.einsum("bqhs,bkhs->bhqk", query, key) / np.sqrt(SIZE)
            answer = tf.einsum("bhqk,bkhs->bqhs", tf.nn.softmax(scores), value)
            return self.out(tf.reshape(answer, (-1, positions, WIDTH)))

    return _model(keras, positions, Fused(name="attention"))


def separate(keras: Any, positions: int) -> Any:
    layer = keras.layers.MultiHeadAttention(HEADS, SIZE, name="attention")
    return _model(keras, positions, lambda x: layer(x, x))


def _model(keras: Any, positions: int, attention: Any) -> Any:
    class Positions(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(name="table", shape=(1, positions, WIDTH))

        def call(self, x: Any) -> Any:
            return x + self.table

    x = keras.Input((positions, WIDTH))
    return keras.Model(x, attention(Positions(name="positions")(x)))


def trained(model: Any) -> Any:
    random = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign(random.normal(size=variable.shape))
    return model


APART = [
    {
        "how": "split",
        "checkpoint": "model/attention/qkv/*",
        "model": [f"{part}/*" for part in PARTS],
        "axis": -1,
    },
    {"how": "reshape", "model": "model/attention/*/*"},
]
APART_RENAME = {"checkpoint": "model/attention/out/*", "model": "model/attention/output_dense/*"}
TOGETHER = [
    {"how": "reshape", "model": "model/attention/qkv/kernel", "shape": [WIDTH, -1]},
    {"how": "reshape", "model": "model/attention/qkv/bias", "shape": [-1]},
    {
        "how": "concat",
        "checkpoint": [f"{part}/*" for part in PARTS],
        "model": "model/attention/qkv/*",
        "axis": -1,
    },
    {"how": "reshape", "model": "model/attention/out/*"},
]
TOGETHER_RENAME = {
    "checkpoint": "model/attention/output_dense/*",
    "model": "model/attention/out/*",
}


@pytest.mark.parametrize(
    ("old", "new", "rules", "rename"),
    [
        (fused, separate, APART, APART_RENAME),
        (separate, fused, TOGETHER, TOGETHER_RENAME),
    ],
    ids=["apart", "together"],
)
def test_the_answers_are_the_same(
    old: Any, new: Any, rules: Any, rename: Any, flavour: Any, tmp_path: Path
) -> None:
    source, target = trained(old(flavour, 5)), new(flavour, 5)
    path = tfckpt.Checkpoint(model=source).write(tmp_path / "ckpt")
    policy = {"api": "read", "adapt": rules, "rename": [rename]}
    tfckpt.restore({"version": 1, "restore": {"path": path, "policy": policy}}, model=target)
    x = np.random.default_rng(1).normal(size=(2, 5, WIDTH)).astype("float32")
    np.testing.assert_allclose(target(x), source(x), rtol=1e-5, atol=1e-5)


def test_larger_images_have_more_positions(flavour: Any, tmp_path: Path) -> None:
    source, target = trained(separate(flavour, 10)), separate(flavour, 17)
    path = tfckpt.Checkpoint(model=source).write(tmp_path / "ckpt")
    rule = {"how": "resize", "model": "model/positions/table", "method": "bicubic"}
    policy = {"api": "read", "adapt": [{**rule, "grid": [3, 3], "prefix": 1}]}
    tfckpt.restore({"version": 1, "restore": {"path": path, "policy": policy}}, model=target)
    old, new = (model.get_layer("positions").table.numpy() for model in (source, target))
    grid = tf.image.resize(old[:, 1:].reshape(1, 3, 3, WIDTH), (4, 4), "bicubic").numpy()
    np.testing.assert_allclose(new, np.concatenate([old[:, :1], grid.reshape(1, 16, -1)], axis=1))
