"""Canonical names, keys of files without a graph, and keys with a slash."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import pytest
import tensorflow as tf

import tfckpt
from tfckpt.core.inventory import Role, Root
from tfckpt.core.names import (
    Node,
    NodeKind,
    assign,
)
from tfckpt.core.optimizer_names import (
    by_slot_path,
    split_slot,
)
from tfckpt.core.selectors import Selector
from tfckpt.errors import NamingError
from tfckpt.stored.formats.tf1_names import name_keys


def value(role: Role = Role.WEIGHT, label: str = "") -> Node:
    return Node(NodeKind.VALUE, label, role=role)


def group(label: str = "", base: str = "", **children: Node) -> Node:
    return Node(NodeKind.GROUP, label, base, children=list(children.items()))


def stack(*layers: Node, label: str = "", base: str = "", **children: Node) -> Node:
    return Node(
        NodeKind.SEQUENCE, label, base, layers=list(layers), children=list(children.items())
    )


def dense(label: str = "dense", base: str = "dense") -> Node:
    return group(label, base, _kernel=value())


def named(roots: dict[str, Node], *keras_roots: str) -> list[str]:
    return [name.name for name in assign(roots, keras_roots).values]


def test_underscores_are_no_part_of_a_name_unless_both_are_there() -> None:
    assert named({"model": group(_a=value(), b=value(), _b=value())}, "model") == [
        "model/_b",
        "model/a",
        "model/b",
    ]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (["depthwise_kernel", "bias"], {"kernel", "bias"}),
        (["depthwise_kernel", "pointwise_kernel"], {"depthwise_kernel", "pointwise_kernel"}),
        (["depthwise_kernel", "_kernel"], {"depthwise_kernel", "kernel"}),
    ],
)
def test_a_depthwise_kernel_is_the_kernel_where_it_is_the_only_one(attributes, expected) -> None:
    layer = group(**{attribute: value() for attribute in attributes})
    assert set(named({"layer": layer})) == {f"layer/{name}" for name in expected}


@pytest.mark.parametrize("keyword", ["seed", "metrics"])
def test_a_reserved_keyword_beside_a_lone_model_is_refused(keyword) -> None:
    with pytest.raises(NamingError, match=f"'{keyword}' is reserved"):
        assign({"model": stack(dense()), keyword: value()}, ["model"])
    assert keyword in named({keyword: value()})


def test_a_key_with_a_slash_costs_no_value_its_name() -> None:
    nested = Node(NodeKind.GROUP, children=[("a/b", value()), ("a", group(b=value()))])
    assert named({"model": nested}, "model") == ["model/a/b", "model/a/b~2"]


def test_a_slot_that_fits_two_variables_fits_none() -> None:
    variables = by_slot_path([("a", 1), ("a/b_c", 2), ("a_b/c", 3)])
    assert split_slot("a_b_c_momentum", variables)[0] is None


def test_a_slash_in_a_layers_name_is_no_level() -> None:
    """tf_keras has `conv1/conv` where Keras 3 has `conv1_conv`."""
    model = stack(group("conv1/conv", kernel=value()), group("fc", kernel=value()))
    found = assign({"model": model})
    assert [name.name for name in found.values] == ["model/conv1_conv/kernel", "model/fc/kernel"]
    assert found.aliases == {"model/conv1/conv": "model/conv1_conv"}


class Value(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    nbytes: int = 4
    crc32c: int | None = None


def inventory_of(shapes, roots=None):
    values = {key: Value("float32", shape) for key, shape in shapes.items()}
    return name_keys("here", values, roots)


def names_of(shapes, roots=None):
    return {entry.key: entry.name for entry in inventory_of(shapes, roots).entries.values()}


def beside(variable, *slots, shape=(3, 2)):
    """A variable and the slots in its scope."""
    return {variable: shape, **{f"{variable}/{slot}": shape for slot in slots}}


V1_OPTIMIZERS = {
    "Momentum": ("momentum", {"Momentum": "momentum"}),
    "Adam": ("adam", {"Adam": "momentum", "Adam_1": "velocity"}),
    "RMSProp": ("rm_sprop", {"RMSProp": "velocity", "RMSProp_1": "momentum"}),
    "RMSProp centered": (
        "rm_sprop",
        {"RMSProp": "velocity", "RMSProp_1": "average_gradient", "RMSProp_2": "momentum"},
    ),
    "Adagrad": ("adagrad", {"Adagrad": "accumulator"}),
    "AdagradDA": (
        "adagrad_da",
        {"AdagradDA": "accumulated_gradient", "AdagradDA_1": "gradient_squared_accumulator"},
    ),
    "Adadelta": (
        "adadelta",
        {"Adadelta": "accumulated_grad", "Adadelta_1": "accumulated_delta_var"},
    ),
    "Ftrl": ("ftrl", {"Ftrl": "accumulator", "Ftrl_1": "linear"}),
    "AdaMax": ("adamax", {"AdaMax": "momentum", "AdaMax_1": "velocity"}),
    "LARSOptimizer": ("lars", {"LARSOptimizer": "momentum"}),
    "adam of BERT": ("adam_weight_decay", {"adam_m": "momentum", "adam_v": "velocity"}),
    "lamb of ALBERT": ("lamb", {"lamb_m": "momentum", "lamb_v": "velocity"}),
    "somebody's own": ("lazy_adam", {"LazyAdam": "momentum", "LazyAdam_1": "velocity"}),
}


@pytest.mark.parametrize("scope", ["", "train/", "OptimizeLoss/", "loss/optimizer/"])
@pytest.mark.parametrize(("label", "slots"), V1_OPTIMIZERS.values(), ids=V1_OPTIMIZERS)
def test_slots_of_tf1s_optimizers(label, slots, scope) -> None:
    shapes = {"net/w": (3, 2), "global_step": ()}
    shapes |= {f"{scope}net/w/{key}": (3, 2) for key in slots}
    inventory = inventory_of(shapes)
    names = {entry.key: entry.name for entry in inventory.entries.values()}
    assert names["net/w"] == "model/net/w"
    assert names["global_step"] == "optimizer/iterations"
    for key, slot in slots.items():
        assert names[f"{scope}net/w/{key}"] == f"optimizer/{slot}/net/w"
        entry = inventory.entries[f"optimizer/{slot}/net/w"]
        assert (entry.role, entry.slot, entry.of) == (Role.SLOT, slot, "model/net/w")
    assert dict(inventory.optimizers) == {"optimizer": label}


KERAS_OPTIMIZERS = {
    "training/Adam": ("adam", {"m": "momentum", "v": "velocity", "vhat": "velocity_hat"}),
    "Adam": ("adam", {"m": "momentum", "v": "velocity"}),
    "AdamWeightDecay": ("adam_weight_decay", {"m": "momentum", "v": "velocity"}),
    "training/RMSprop": (
        "rm_sprop",
        {"rms": "velocity", "momentum": "momentum", "mg": "average_gradient"},
    ),
    "SGD": ("sgd", {"momentum": "momentum"}),
    "training_2/Ftrl": ("ftrl", {"accumulator": "accumulator", "linear": "linear"}),
    "Adadelta": (
        "adadelta",
        {"accum_grad": "accumulated_grad", "accum_var": "accumulated_delta_var"},
    ),
}


@pytest.mark.parametrize("scope", KERAS_OPTIMIZERS)
def test_slots_of_keras_in_graph_mode(scope) -> None:
    label, slots = KERAS_OPTIMIZERS[scope]
    shapes = {"dense/kernel": (3, 2), f"{scope}/iter": (), f"{scope}/learning_rate": ()}
    shapes |= {f"{scope}/dense/kernel/{slot}": (3, 2) for slot in slots}
    inventory = inventory_of(shapes)
    names = {entry.key: entry.name for entry in inventory.entries.values()}
    assert names[f"{scope}/iter"] == "optimizer/iterations"
    assert names[f"{scope}/learning_rate"] == "optimizer/learning_rate"
    for key, slot in slots.items():
        assert names[f"{scope}/dense/kernel/{key}"] == f"optimizer/{slot}/dense/kernel"
    assert dict(inventory.optimizers) == {"optimizer": label}


def test_slots_before_the_variable_as_tf_keras_writes_them_now() -> None:
    shapes = {"dense/kernel": (3, 2), "Adam/m/dense/kernel": (3, 2), "Adam/v/dense/kernel": (3, 2)}
    names = names_of(shapes)
    assert names["Adam/m/dense/kernel"] == "optimizer/momentum/dense/kernel"
    assert names["Adam/v/dense/kernel"] == "optimizer/velocity/dense/kernel"


def test_adafactor_of_mesh_tensorflow_and_of_tensor2tensor() -> None:
    mesh = {
        "enc/k": (4, 3), "enc/k_slot_vr": (4,), "enc/k_slot_vc": (3,),
        "enc/b": (3,), "enc/b_slot_v": (3,), "enc/b_slot_m": (3,),
    }  # fmt: skip
    assert names_of(mesh) == {
        "enc/k": "model/enc/k",
        "enc/k_slot_vr": "optimizer/r/enc/k",
        "enc/k_slot_vc": "optimizer/c/enc/k",
        "enc/b": "model/enc/b",
        "enc/b_slot_v": "optimizer/velocity/enc/b",
        "enc/b_slot_m": "optimizer/momentum/enc/b",
    }
    tensor2tensor = {
        "body/k": (4, 3), "training/body/k/Adafactor": (4,), "training/body/k/Adafactor_1": (3,),
        "body/b": (3,), "training/body/b/Adafactor": (3,),
    }  # fmt: skip
    names = names_of(tensor2tensor)
    assert names["training/body/k/Adafactor"] == "optimizer/r/body/k"
    assert names["training/body/k/Adafactor_1"] == "optimizer/c/body/k"
    assert names["training/body/b/Adafactor"] == "optimizer/velocity/body/b"


def test_shadows_are_moving_averages_of_their_variables() -> None:
    shapes = beside("conv/w", "ExponentialMovingAverage", "Momentum")
    shapes |= beside("bn/moving_mean", "ExponentialMovingAverage", shape=(2,))
    names = names_of(shapes)
    assert names["conv/w/ExponentialMovingAverage"] == "optimizer/moving_average/conv/w"
    assert names["bn/moving_mean/ExponentialMovingAverage"] == (
        "optimizer/moving_average/bn/moving_mean"
    )
    assert names["conv/w/Momentum"] == "optimizer/momentum/conv/w"


def test_a_name_like_a_slots_is_one_only_where_its_variable_is_there_and_fits() -> None:
    shapes = {
        "alone/Adam": (3,), "w": (3,), "w/Momentum": (4,), "attention/v": (2,),
        "bn/moving_mean": (3,), "bn/moving_mean/biased": (3,), "bn/moving_mean/local_step": (),
    }  # fmt: skip
    inventory = inventory_of(shapes)
    assert {entry.role for entry in inventory.entries.values()} == {Role.WEIGHT}
    assert set(inventory.entries) == {f"model/{key}" for key in shapes}


def test_two_optimizers_of_one_class_over_the_same_variable() -> None:
    shapes = beside("w", "Adam", "Adam_1", "Adam_2", "Adam_3")
    names = names_of(shapes)
    assert len(set(names.values())) == 5
    assert [names[f"w/{key}"].split("/")[2] for key in ("Adam", "Adam_1", "Adam_2", "Adam_3")] == [
        "momentum", "velocity", "momentum", "velocity",
    ]  # fmt: skip


def test_optimizers_of_several_scopes_are_told_apart() -> None:
    shapes = {"g/w": (3,), "d/w": (3,), "global_step": ()}
    for scope, variable in (("gen_train", "g/w"), ("disc_train", "d/w")):
        shapes |= {f"{scope}/{variable}/Adam": (3,), f"{scope}/{variable}/Adam_1": (3,)}
        shapes[f"{scope}/beta1_power"] = ()
    names = names_of(shapes)
    assert names["gen_train/g/w/Adam"] == "optimizer/gen_train/momentum/g/w"
    assert names["disc_train/beta1_power"] == "optimizer/disc_train/beta1_power"


def test_numbers_of_layers_are_taken_anew_in_each_scope_and_chosen_names_stay() -> None:
    shapes = {
        "dense_4/kernel": (3,), "dense_10/kernel": (3,), "enc/conv2d_7/kernel": (3,),
        "head_3/kernel": (3,), "Conv_2/weights": (3,), "model/dense_9/kernel": (3,),
        "dense_4/kernel/Momentum": (3,),
    }  # fmt: skip
    inventory = inventory_of(shapes)
    assert {entry.key: entry.name for entry in inventory.entries.values()} == {
        "dense_4/kernel": "model/dense/kernel",
        "dense_10/kernel": "model/dense_1/kernel",
        "enc/conv2d_7/kernel": "model/enc/conv2d/kernel",
        "head_3/kernel": "model/head_3/kernel",
        "Conv_2/weights": "model/Conv_2/weights",
        "model/dense_9/kernel": "model/model/dense/kernel",
        "dense_4/kernel/Momentum": "optimizer/momentum/dense/kernel",
    }
    assert [layer.place for layer in inventory.containers["model"].layers] == ["dense", "dense_1"]
    assert {path for path, held in inventory.containers.items() if held.order == "created"} == {
        "model",
        "model/enc",
        "model/model",
    }


def test_without_a_model_here_a_key_is_its_name() -> None:
    shapes = {"dense_4/kernel": (3,), "dense_4/kernel/Adam": (3,), "global_step": ()}
    names = names_of(shapes, {"kernel": Root("kernel")})
    assert names == {key: key for key in shapes}
    solver = names_of(shapes, {"net": Root("net"), "opt": Root("opt", "optimizer")})
    assert solver["dense_4/kernel/Adam"] == "optimizer/momentum/dense_4/kernel"


def test_with_several_models_the_first_component_may_be_one() -> None:
    shapes = {"generator/w": (3,), "discriminator/w": (3,), "other/w": (3,)}
    roots = {name: Root(name, "model") for name in ("generator", "discriminator")}
    assert names_of(shapes, roots) == {
        "generator/w": "generator/w",
        "discriminator/w": "discriminator/w",
        "other/w": "model/other/w",
    }


def test_deep_and_odd_keys_are_values_like_others() -> None:
    shapes = {"a/" * 5000 + "w": (3,), "": (3,), "/": (3,), "w//Adam": (3,), ":0": (3,)}
    assert sorted(names_of(shapes)) == sorted(shapes)


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
