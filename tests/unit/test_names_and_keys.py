"""Canonical names, keys of files without a graph, and keys with a slash."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import pytest
import tensorflow as tf
from zoo.restores import same

import tfckpt
from tfckpt.core.inventory import Role, Root
from tfckpt.core.names import Node, NodeKind, assign
from tfckpt.core.optimizer_names import by_slot_path, split_slot
from tfckpt.core.selectors import Selector
from tfckpt.errors import NamingError
from tfckpt.stored.formats.tf1_names import name_keys

# Trees of objects


def value() -> Node:
    return Node(NodeKind.VALUE, role=Role.WEIGHT)


def group(label: str = "", *words: str, **children: Node) -> Node:
    children = {**children, **{word: value() for word in words}}
    return Node(NodeKind.GROUP, label, children=list(children.items()))


def stack(*layers: Node) -> Node:
    return Node(NodeKind.SEQUENCE, layers=list(layers))


def named(roots: dict[str, Node], *keras_roots: str) -> set[str]:
    return {name.name for name in assign(roots, keras_roots).values}


NESTED = Node(NodeKind.GROUP, children=[("a/b", value()), ("a", group("", "b"))])
# a tree under `model` and what its values are called, without `model/`
TREES = [
    (group("", "_a", "b", "_b"), "a b _b"),  # an underscore is kept where both are there
    (group("", "depthwise_kernel", "bias"), "kernel bias"),
    (group("", "depthwise_kernel", "pointwise_kernel"), "depthwise_kernel pointwise_kernel"),
    (group("", "depthwise_kernel", "_kernel"), "depthwise_kernel kernel"),
    (NESTED, "a/b a/b~2"),  # a key with a slash costs no value its name
    # tf_keras has `conv1/conv` where Keras 3 has `conv1_conv`
    (stack(group("conv1/conv", "kernel"), group("fc", "kernel")), "conv1_conv/kernel fc/kernel"),
]


@pytest.mark.parametrize(("tree", "names"), TREES, ids=[names for _, names in TREES])
def test_values_are_called_by_their_place(tree, names) -> None:
    assert named({"model": tree}, "model") == {f"model/{name}" for name in names.split()}


def test_what_is_ambiguous_is_refused_or_no_slot() -> None:
    for keyword in ("seed", "metrics"):
        with pytest.raises(NamingError, match=f"'{keyword}' is reserved"):
            assign({"model": stack(group("dense", "_kernel")), keyword: value()}, ["model"])
        assert keyword in named({keyword: value()})
    conv = assign({"model": stack(group("conv1/conv", "kernel"))})
    assert conv.aliases == {"model/conv1/conv": "model/conv1_conv"}
    variables = by_slot_path([("a", 1), ("a/b_c", 2), ("a_b/c", 3)])
    assert split_slot("a_b_c_momentum", variables)[0] is None


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


def check(inventory: Any, scope: str, variable: str, label: str, slots: dict[str, str]) -> None:
    for key, slot in slots.items():
        entry = inventory.entries[f"optimizer/{slot}/{variable}"]
        assert entry.key == f"{scope}{variable}/{key}"
        assert (entry.role, entry.slot, entry.of) == (Role.SLOT, slot, f"model/{variable}")
    assert dict(inventory.optimizers) == {"optimizer": label}


BOTH = ["momentum", "velocity"]
ACCUMULATED = ["accumulated_grad", "accumulated_delta_var"]
OF_ADAGRAD_DA = ["accumulated_gradient", "gradient_squared_accumulator"]
# the optimizer; its label and the slots `Momentum`, `Momentum_1`, …, or by their own words
V1 = {
    "Momentum": ("momentum", ["momentum"]),
    "Adam": ("adam", BOTH),
    "RMSProp": ("rm_sprop", ["velocity", "momentum"]),
    "RMSProp centered": ("rm_sprop", ["velocity", "average_gradient", "momentum"]),
    "Adagrad": ("adagrad", ["accumulator"]),
    "AdagradDA": ("adagrad_da", OF_ADAGRAD_DA),
    "Adadelta": ("adadelta", ACCUMULATED),
    "Ftrl": ("ftrl", ["accumulator", "linear"]),
    "AdaMax": ("adamax", BOTH),
    "LARSOptimizer": ("lars", ["momentum"]),
    "adam of BERT": ("adam_weight_decay", {"adam_m": "momentum", "adam_v": "velocity"}),
    "lamb of ALBERT": ("lamb", {"lamb_m": "momentum", "lamb_v": "velocity"}),
    "LazyAdam": ("lazy_adam", BOTH),  # somebody's own
}
RMS = {"rms": "velocity", "momentum": "momentum", "mg": "average_gradient"}
M_V = {"m": "momentum", "v": "velocity"}
IN_GRAPH_MODE = {
    "training/Adam": ("adam", {**M_V, "vhat": "velocity_hat"}),
    "Adam": ("adam", M_V),
    "AdamWeightDecay": ("adam_weight_decay", M_V),
    "training/RMSprop": ("rm_sprop", RMS),
    "SGD": ("sgd", {"momentum": "momentum"}),
    "training_2/Ftrl": ("ftrl", {"accumulator": "accumulator", "linear": "linear"}),
    "Adadelta": ("adadelta", dict(zip(("accum_grad", "accum_var"), ACCUMULATED, strict=True))),
}


@pytest.mark.parametrize("case", V1)
def test_slots_of_tf1s_optimizers(case) -> None:
    label, slots = V1[case]
    if isinstance(slots, list):
        word = case.split()[0]
        slots = {word + (f"_{n}" if n else ""): slot for n, slot in enumerate(slots)}
    for scope in ("", "train/", "OptimizeLoss/", "loss/optimizer/"):
        text = " ".join(["net/w global_step", *(f"{scope}net/w/{key}" for key in slots)])
        inventory = inventory_of(keys(text))
        assert inventory.entries["model/net/w"].key == "net/w"
        assert inventory.entries["optimizer/iterations"].key == "global_step"
        check(inventory, scope, "net/w", label, slots)


@pytest.mark.parametrize("scope", IN_GRAPH_MODE)
def test_slots_of_keras_in_graph_mode(scope) -> None:
    label, slots = IN_GRAPH_MODE[scope]
    text = f"dense/kernel {scope}/iter {scope}/learning_rate"
    for slot in slots:
        text += f" {scope}/dense/kernel/{slot}"
    inventory = inventory_of(keys(text))
    for counter, name in (("iter", "iterations"), ("learning_rate", "learning_rate")):
        assert inventory.entries[f"optimizer/{name}"].key == f"{scope}/{counter}"
    check(inventory, f"{scope}/", "dense/kernel", label, slots)


ADAFACTOR = {"enc/k": (4, 3), "enc/k_slot_vr": (4,), "enc/k_slot_vc": (3,)}
OF_BIAS = {"enc/b": (3,), "enc/b_slot_v": (3,), "enc/b_slot_m": (3,)}
T2T = {"b/k": (4, 3), "training/b/k/Adafactor": (4,), "training/b/k/Adafactor_1": (3,)}
TWO_ADAMS = "w w/Adam w/Adam_1 w/Adam_2 w/Adam_3"
AVERAGES = "conv/w conv/w/ExponentialMovingAverage conv/w/Momentum"
AVERAGES += " bn/moving_mean bn/moving_mean/ExponentialMovingAverage"
GAN = "g/w d/w global_step gen_train/g/w/Adam gen_train/g/w/Adam_1 gen_train/beta1_power"
GAN += " disc_train/d/w/Adam disc_train/d/w/Adam_1 disc_train/beta1_power"
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
# keys with their shapes, what is here, and the names of some
KEYS = {
    "Adafactor of Mesh TensorFlow": (
        {**ADAFACTOR, **OF_BIAS}, None,
        {"enc/k": "model/enc/k", "enc/k_slot_vr": "optimizer/r/enc/k",
         "enc/k_slot_vc": "optimizer/c/enc/k", "enc/b_slot_v": "optimizer/velocity/enc/b",
         "enc/b_slot_m": "optimizer/momentum/enc/b"}),
    "Adafactor of tensor2tensor": (
        {**T2T, "b/b": (3,), "training/b/b/Adafactor": (3,)}, None,
        {"training/b/k/Adafactor": "optimizer/r/b/k", "training/b/k/Adafactor_1": "optimizer/c/b/k",
         "training/b/b/Adafactor": "optimizer/velocity/b/b"}),
    "shadows are moving averages": (
        keys(AVERAGES), None,
        {"conv/w/ExponentialMovingAverage": "optimizer/moving_average/conv/w",
         "bn/moving_mean/ExponentialMovingAverage": "optimizer/moving_average/bn/moving_mean",
         "conv/w/Momentum": "optimizer/momentum/conv/w"}),
    "a name like a slot's whose variable is not there or does not fit": (
        NO_SLOTS, None, {key: f"model/{key}" for key in NO_SLOTS}),
    "optimizers of several scopes": (
        keys(GAN), None,
        {"gen_train/g/w/Adam": "optimizer/gen_train/momentum/g/w",
         "disc_train/beta1_power": "optimizer/disc_train/beta1_power"}),
    "numbers are taken anew in each scope, and chosen names stay": (
        keys(NUMBERED), None,
        {"dense_4/kernel": "model/dense/kernel", "dense_10/kernel": "model/dense_1/kernel",
         "enc/conv2d_7/kernel": "model/enc/conv2d/kernel", "head_3/kernel": "model/head_3/kernel",
         "Conv_2/weights": "model/Conv_2/weights",
         "model/dense_9/kernel": "model/model/dense/kernel",
         "dense_4/kernel/Momentum": "optimizer/momentum/dense/kernel"}),
    "without a model here a key is its name": (
        keys("dense_4/kernel dense_4/kernel/Adam global_step"), {"kernel": Root("kernel")},
        {key: key for key in ("dense_4/kernel", "dense_4/kernel/Adam", "global_step")}),
    "but slots of an optimizer": (
        keys("dense_4/kernel dense_4/kernel/Adam global_step"),
        {"net": Root("net"), "opt": Root("opt", "optimizer")},
        {"dense_4/kernel/Adam": "optimizer/momentum/dense_4/kernel"}),
}  # fmt: skip


@pytest.mark.parametrize("case", KEYS)
def test_keys_have_names(case) -> None:
    shapes, roots, expected = KEYS[case]
    found = names_of(shapes, roots)
    assert {key: found[key] for key in expected} == expected
    assert len({*found.values()}) == len(shapes)


def test_two_optimizers_and_the_containers_of_numbered_layers() -> None:
    found = names_of(keys(TWO_ADAMS))
    slots = [found[f"w/{key}"].split("/")[2] for key in ("Adam", "Adam_1", "Adam_2", "Adam_3")]
    assert slots == [*BOTH, *BOTH]
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


def test_layers_in_a_dict_and_a_selector_that_means_the_key(flavour, tmp_path) -> None:
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
    same(new.get_weights(), old.get_weights())
    key, levels = "model/blocks/a%2Fb/", "model/blocks/a/b/"
    assert Selector(f"{key}*").matches(f"{key}kernel")
    assert not Selector(f"{levels}*").matches(f"{key}kernel")
    assert not Selector(f"{key}*").matches(f"{levels}kernel")
