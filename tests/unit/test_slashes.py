"""Keys with a slash: `'a/b'` and `['a']['b']` are two things, as they are to TensorFlow."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import tensorflow as tf

import tfckpt
from tfckpt.core.selectors import Selector

SIDES = [("a/b",), ("a b",), ("a/b", "a b")]
FILLS = {"a/b": 1.0, "a b": 2.0}


def holder(keys: tuple[str, ...], fill: bool = False) -> tuple[Any, dict[str, Any]]:
    found = {key: tf.Variable([FILLS[key] if fill else 0.0]) for key in keys}
    module = tf.Module()
    module.kept = {key: value for key, value in found.items() if "/" in key}
    if "a b" in found:
        module.kept["a"] = {"b": found["a b"]}
    return module, found


def values(found: dict[str, Any]) -> dict[str, float]:
    return {key: float(value[0]) for key, value in found.items()}


@pytest.mark.parametrize("writer", ["tensorflow", "tfckpt"])
@pytest.mark.parametrize(("stored", "live"), list(product(SIDES, SIDES)), ids=str)
def test_a_key_with_a_slash_is_no_path(stored, live, writer, tmp_path) -> None:
    library = tf.train if writer == "tensorflow" else tfckpt
    old = holder(stored, fill=True)[0]
    path = library.Checkpoint(held=old).write(str(tmp_path / "ckpt"))
    (theirs, expected), (dropped, got), (declared, also) = (holder(live) for _ in range(3))
    tf.train.Checkpoint(held=theirs).read(path).expect_partial()
    tfckpt.Checkpoint(held=dropped).read(path).expect_partial()
    policy = {"api": "read", "on_missing": "ignore", "on_unexpected": "ignore"}
    tfckpt.restore(path, held=declared, policy={**policy, "allow_empty": True})
    assert values(got) == values(also) == values(expected)


@pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
def test_a_keyword_with_a_slash_is_no_path(library, tmp_path) -> None:
    one, other = tf.Variable(1.0), tf.Variable(2.0)
    path = library.Checkpoint(**{"a/b": one}, a={"b": other}).write(str(tmp_path / "ckpt"))
    one.assign(0.0)
    other.assign(0.0)
    tfckpt.Checkpoint(a={"b": other}).read(path).assert_existing_objects_matched()
    tfckpt.Checkpoint(**{"a/b": one}).read(path).assert_existing_objects_matched()
    assert (float(one), float(other)) == (1.0, 2.0)


def test_layers_in_a_dict(flavour, tmp_path) -> None:
    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            dense = flavour.layers.Dense
            self.blocks = {"a/b": dense(2), "a": {"b": dense(2)}}

        def call(self, x: Any) -> Any:
            return self.blocks["a/b"](self.blocks["a"]["b"](x))

    old, new = Net(), Net()
    for model in (old, new):
        model(tf.ones((1, 2)))
    path = tfckpt.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=new).read(path).assert_consumed()
    for one, other in zip(old.get_weights(), new.get_weights(), strict=True):
        assert one.tolist() == other.tolist()


def test_a_selector_means_the_key() -> None:
    assert Selector("model/blocks/a%2Fb/*").matches("model/blocks/a%2Fb/kernel")
    assert not Selector("model/blocks/a/b/*").matches("model/blocks/a%2Fb/kernel")
    assert not Selector("model/blocks/a%2Fb/*").matches("model/blocks/a/b/kernel")
