"""Canonical names, keys of files without a graph, and keys with a slash."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import keras
import pytest
import tensorflow as tf
from zoo.restores import same

import tfckpt
from tfckpt.core.inventory import Role, Root
from tfckpt.core.selectors import Selector
from tfckpt.errors import NamingError
from tfckpt.stored.formats.tf1 import name_keys


def test_a_keyword_of_a_models_own_values_is_refused() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.5, seed=1)])
    with pytest.raises(NamingError, match="'seed' is reserved"):
        tfckpt.inventory(model=model, seed=tf.Variable(1))
    assert "seed" in tfckpt.inventory(seed=tf.Variable(1)).entries


# Keys of TF1's files


class Value(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    nbytes: int = 4
    crc32c: int | None = None


def keys(text: str, shape: tuple[int, ...] = (3, 2)) -> dict[str, tuple[int, ...]]:
    """Keys with a shape; of counters none."""
    counters = ("global_step", "iter", "learning_rate", "beta1_power", "local_step")
    return {key: () if key.endswith(counters) else shape for key in text.split()}


def inventory_of(shapes: Any, roots: Any = None) -> Any:
    return name_keys("here", {k: Value("float32", shape) for k, shape in shapes.items()}, roots)


def names_of(shapes: Any, roots: Any = None) -> dict[str, str]:
    return {entry.key: entry.name for entry in inventory_of(shapes, roots).entries.values()}


ADAFACTOR = {"enc/k": (4, 3), "enc/k_slot_vr": (4,), "enc/k_slot_vc": (3,)}
OF_BIAS = {"enc/b": (3,), "enc/b_slot_v": (3,), "enc/b_slot_m": (3,)}
T2T = {"b/k": (4, 3), "training/b/k/Adafactor": (4,), "training/b/k/Adafactor_1": (3,)}
AVERAGES = "conv/w conv/w/ExponentialMovingAverage conv/w/Momentum"
AVERAGES += " bn/moving_mean bn/moving_mean/ExponentialMovingAverage"
NUMBERED = "dense_4/kernel dense_10/kernel enc/conv2d_7/kernel head_3/kernel Conv_2/weights"
NUMBERED += " model/dense_9/kernel dense_4/kernel/Momentum"
NO_SLOTS = {
    "alone/Adam": (3,),
    "w": (3,),
    "w/Momentum": (4,),
    "attention/v": (2,),
    "bn/moving_mean": (3,),
    "bn/moving_mean/biased": (3,),
    "bn/moving_mean/local_step": (),
}
OF_OTHERS = (
    "net/w/lamb_m net/w/LazyAdam net/w/LazyAdam_1 net/w/t_0/Adagrad train/net/w/LARSOptimizer"
)
OF_OTHERS += " net/w/AdaMax training/RMSprop/net/w/rms SGD/momentum/net/w training_2/Ftrl/iter"
# keys with their shapes, what is here, and the names of some
KEYS = {
    "Adafactor of Mesh TensorFlow": (
        {**ADAFACTOR, **OF_BIAS}, None,
        {"enc/k": "model/enc/k",
         **{key: f"optimizer/tf1/{key}" for key in (*ADAFACTOR, *OF_BIAS) if "_slot" in key}}),
    "Adafactor of tensor2tensor": (
        {**T2T, "b/b": (3,), "training/b/b/Adafactor": (3,)}, None,
        {key: f"optimizer/tf1/{key}" for key in (*T2T, "training/b/b/Adafactor") if "Ada" in key}),
    "slots of optimizers that others wrote, and of Keras in graph mode": (
        keys(f"net/w {OF_OTHERS}"), None,
        {"net/w": "model/net/w", **{key: f"optimizer/tf1/{key}" for key in OF_OTHERS.split()}}),
    "shadows are moving averages": (
        keys(AVERAGES), None,
        {"conv/w/ExponentialMovingAverage": "optimizer/moving_average/conv/w",
         "bn/moving_mean/ExponentialMovingAverage": "optimizer/moving_average/bn/moving_mean",
         "conv/w/Momentum": "optimizer/tf1/conv/w/Momentum"}),
    "a name like a slot's whose variable is not there or does not fit": (
        NO_SLOTS, None, {key: f"model/{key}" for key in NO_SLOTS}),
    "numbers are taken anew in each scope, and chosen names stay": (
        keys(NUMBERED), None,
        {"dense_4/kernel": "model/dense/kernel", "dense_10/kernel": "model/dense_1/kernel",
         "enc/conv2d_7/kernel": "model/enc/conv2d/kernel", "head_3/kernel": "model/head_3/kernel",
         "Conv_2/weights": "model/Conv_2/weights",
         "model/dense_9/kernel": "model/model/dense/kernel",
         "dense_4/kernel/Momentum": "optimizer/tf1/dense_4/kernel/Momentum"}),
    "without a model here a key is its name": (
        keys("dense_4/kernel dense_4/kernel/Adam global_step"), {"kernel": Root("kernel")},
        {key: key for key in ("dense_4/kernel", "dense_4/kernel/Adam", "global_step")}),
    "but slots of an optimizer": (
        keys("dense_4/kernel dense_4/kernel/Adam global_step"),
        {"net": Root("net"), "opt": Root("opt", "optimizer")},
        {"dense_4/kernel/Adam": "optimizer/tf1/dense_4/kernel/Adam"}),
}  # fmt: skip


@pytest.mark.parametrize("case", KEYS)
def test_keys_have_names(case) -> None:
    shapes, roots, expected = KEYS[case]
    found = names_of(shapes, roots)
    assert {key: found[key] for key in expected} == expected
    assert len({*found.values()}) == len(shapes)


def test_the_containers_of_numbered_layers() -> None:
    held = inventory_of(keys(NUMBERED)).containers
    assert [layer.place for layer in held["model"].layers] == ["dense", "dense_1"]
    created = {path for path, each in held.items() if each.order == "created"}
    assert created == {"model", "model/enc", "model/model"}
    assert {e.role for e in inventory_of(NO_SLOTS).entries.values()} == {Role.WEIGHT}
    odd = {"a/" * 5000 + "w": (3,), "": (3,), "/": (3,), "w//Adam": (3,), ":0": (3,)}
    assert sorted(names_of(odd)) == sorted(odd)


# Keys with a slash

SIDES = [("a/b",), ("a b",), ("a/b", "a b")]


def holder(kept: tuple[str, ...], fill: bool = False) -> tuple[Any, dict[str, Any]]:
    found = {key: tf.Variable([(1.0 + (key == "a b")) * fill]) for key in kept}
    module = tf.Module()
    module.kept = {key: value for key, value in found.items() if "/" in key}
    if "a b" in found:
        module.kept["a"] = {"b": found["a b"]}
    return module, found


@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
def test_a_key_with_a_slash_is_no_path(writer, tmp_path) -> None:
    for stored, live in product(SIDES, SIDES):
        path = writer.Checkpoint(held=holder(stored, fill=True)[0]).write(str(tmp_path / "ckpt"))
        (theirs, expected), (dropped, got), (declared, also) = (holder(live) for _ in range(3))
        tf.train.Checkpoint(held=theirs).read(path).expect_partial()
        tfckpt.Checkpoint(held=dropped).read(path).expect_partial()
        policy = {"api": "read", "on_missing": "ignore", "on_unexpected": "ignore"}
        tfckpt.restore(path, held=declared, policy={**policy, "allow_empty": True})
        same(got.values(), expected.values())
        same(also.values(), expected.values())


def test_a_selector_that_means_the_key() -> None:
    key, levels = "model/blocks/a%2Fb/", "model/blocks/a/b/"
    assert Selector(f"{key}*").matches(f"{key}kernel")
    assert not Selector(f"{levels}*").matches(f"{key}kernel")
    assert not Selector(f"{key}*").matches(f"{levels}kernel")
