"""The grammar of canonical names, read off small trees made by hand."""

from __future__ import annotations

import pytest

from tfckpt.core.inventory import Entry, Inventory, Role, weak_base
from tfckpt.core.names import (
    Names,
    Node,
    NodeKind,
    Slot,
    assign,
)
from tfckpt.core.optimizer_names import (
    by_slot_path,
    optimizer_value,
    promote_optimizer,
    slot_name,
    split_slot,
)
from tfckpt.errors import NamingError


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


def test_automatic_names_are_numbered_anew_in_each_stack() -> None:
    inner = stack(dense("dense_7"), dense("dense_9"), label="encoder")
    model = stack(dense("dense_4"), inner, dense("dense_5"))
    assert named({"model": model}, "model") == [
        "model/dense/kernel",
        "model/dense_1/kernel",
        "model/encoder/dense/kernel",
        "model/encoder/dense_1/kernel",
    ]


def test_a_chosen_name_is_kept_and_takes_no_number() -> None:
    model = stack(dense("dense_4"), dense("head_3", base=""), dense("dense_5"))
    assert named({"model": model}, "model") == [
        "model/dense/kernel",
        "model/head_3/kernel",
        "model/dense_1/kernel",
    ]


def test_layers_that_hold_weights_are_numbered_first() -> None:
    seeded = group("block_1", "block", seed_generator=value(Role.SEED))
    model = stack(seeded, group("block_2", "block", w=value()))
    names = assign({"model": model}, ["model"])
    assert {n.name for n in names.values} == {"model/block/w", "seed/block_1"}
    assert [(x.place, x.own) for x in names.containers["model"].layers] == [("block", "block_2")]


def test_an_unknown_name_is_said_to_be_untold() -> None:
    names = assign({"model": stack(dense("head", base=""), dense("", base=""), dense())}, ["model"])
    assert [layer.own for layer in names.containers["model"].layers] == ["head", "", "dense"]


def test_a_list_of_layers_keeps_its_order_and_the_names_that_the_user_gave() -> None:
    layers = {"10": dense("b", ""), "2": dense("dense_7"), "x": value(), "1": group("empty")}
    listed = Node(NodeKind.LIST, children=list(layers.items()))
    found = assign({"model": group(blocks=listed)}, ["model"]).containers["model/blocks"]
    assert [(x.place, x.own, x.given) for x in found.layers] == [
        ("10", "b", True),
        ("2", "dense_7", None),
    ]


def test_a_layer_without_a_known_name_has_tensorflows_word_for_it() -> None:
    model = stack(dense(), dense("", base=""))
    assert named({"model": model}, "model") == [
        "model/dense/kernel",
        "model/layer_with_weights-1/kernel",
    ]


def test_the_shortest_path_is_the_name_and_the_others_are_aliases() -> None:
    tied = dense()
    model = group(decoder=group(embed=tied), tied=tied, also=tied)
    names = assign({"model": model}, ["model"])
    assert [name.name for name in names.values] == ["model/also/kernel"]
    assert names.aliases == {"model/tied": "model/also", "model/decoder/embed": "model/also"}


def test_an_aside_names_only_what_has_no_other_name() -> None:
    scale, lonely = value(), value()
    layer = group(counter=scale)
    layer.asides = [("c", scale), ("d", lonely)]
    names = assign({"model": group(own=layer)}, ["model"])
    assert [name.name for name in names.values] == ["model/own/counter", "model/own/d"]
    assert names.aliases == {"model/own/c": "model/own/counter"}


def test_underscores_are_no_part_of_a_name_unless_both_are_there() -> None:
    assert named({"model": group(_a=value(), b=value(), _b=value())}, "model") == [
        "model/_b",
        "model/a",
        "model/b",
    ]


def test_two_private_spellings_do_not_depend_on_their_order() -> None:
    one, two = value(), value()
    forward = assign({"model": group(_x=one, __x=two)}, ["model"])
    backward = assign({"model": group(__x=two, _x=one)}, ["model"])
    assert {n.name: n.node for n in forward.values} == {"model/x": one, "model/__x": two}
    assert {n.name: n.node for n in backward.values} == {"model/x": one, "model/__x": two}


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


def test_a_lone_models_seeds_and_metrics_stand_at_the_top() -> None:
    dropout = group("dropout", "dropout", seed_generator=value(Role.SEED))
    two = group("augment", "", flip=value(Role.SEED), rotate=value(Role.SEED))
    model = stack(dense(), dropout, two)
    model.metrics = [("accuracy", group(total=value(Role.METRIC), count=value(Role.METRIC)))]
    names = assign({"model": model}, ["model"])
    assert {name.name: name.role for name in names.values} == {
        "metrics/accuracy/total": Role.METRIC,
        "metrics/accuracy/count": Role.METRIC,
        "model/dense/kernel": Role.WEIGHT,
        "seed/dropout": Role.SEED,
        "seed/augment/flip": Role.SEED,
        "seed/augment/rotate": Role.SEED,
    }


def gan() -> dict[str, Node]:
    def model() -> Node:
        made = stack(dense(), group("dropout", "dropout", seed_generator=value(Role.SEED)))
        made.metrics = [("loss", group(total=value(Role.METRIC)))]
        return made

    return {"generator": model(), "discriminator": model()}


def test_seeds_and_metrics_of_several_models_stand_under_their_owners() -> None:
    assert set(named(gan(), "generator", "discriminator")) == {
        f"{owner}/{rest}"
        for owner in ("generator", "discriminator")
        for rest in ("dense/kernel", "seed/dropout", "metrics/loss/total")
    }


def adam(*variables: Node) -> Node:
    optimizer = Node(NodeKind.OPTIMIZER, "adam")
    optimizer.children = [("iterations", value(Role.ITERATIONS))]
    optimizer.slots = [
        Slot(slot, of, value(Role.SLOT)) for slot in ("momentum", "velocity") for of in variables
    ]
    return optimizer


def test_a_slot_is_named_by_its_variable_without_the_lone_model() -> None:
    layer = dense()
    names = assign({"model": stack(layer), "optimizer": adam(layer.children[0][1])}, ["model"])
    assert [(n.name, n.slot, n.of) for n in names.values if n.slot] == [
        ("optimizer/momentum/dense/kernel", "momentum", "model/dense/kernel"),
        ("optimizer/velocity/dense/kernel", "velocity", "model/dense/kernel"),
    ]
    assert names.optimizers == {"optimizer": "adam"}


def test_a_slot_says_which_of_several_models_it_belongs_to() -> None:
    models = gan()
    kernel = models["generator"].layers[0].children[0][1]
    roots = {**models, "generator_optimizer": adam(kernel)}
    assert "generator_optimizer/momentum/generator/dense/kernel" in named(
        roots, "generator", "discriminator"
    )


def test_a_slot_of_a_variable_that_is_not_there_has_its_own_name() -> None:
    assert named({"optimizer": adam(value(label="net/dense_3/kernel"))})[1:] == [
        "optimizer/momentum/net/dense_3/kernel",
        "optimizer/velocity/net/dense_3/kernel",
    ]


@pytest.mark.parametrize("keyword", ["seed", "metrics"])
def test_a_reserved_keyword_beside_a_lone_model_is_refused(keyword) -> None:
    with pytest.raises(NamingError, match=f"'{keyword}' is reserved"):
        assign({"model": stack(dense()), keyword: value()}, ["model"])
    assert keyword in named({keyword: value()})


def test_a_key_with_a_slash_costs_no_value_its_name() -> None:
    nested = Node(NodeKind.GROUP, children=[("a/b", value()), ("a", group(b=value()))])
    assert named({"model": nested}, "model") == ["model/a/b", "model/a/b~2"]


def test_the_model_is_named_before_whatever_else_holds_it() -> None:
    layer = dense()
    names = assign({"a_tower": group(x=layer), "model": stack(layer)}, ["model"])
    assert [name.name for name in names.values] == ["model/dense/kernel"]
    assert names.aliases == {"a_tower/x": "model/dense"}


def find(names: Names, name: str) -> str | None:
    entries = {n.name: Entry(n.name, n.role, "float32", ()) for n in names.values}
    entry = Inventory("", entries, aliases=names.aliases).find(name)
    return None if entry is None else entry.name


def test_an_alias_of_an_alias_is_found() -> None:
    inner = dense()
    block = group(inner=inner)
    names = assign({"model": group(b=block, z=block, y=inner)}, ["model"])
    assert find(names, "model/z/inner/kernel") == "model/y/kernel"


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("_momentums", "momentum"),
        ("momentums", "momentum"),
        ("_velocities", "velocity"),
        ("_velocity_hats", "velocity_hat"),
        ("vhat", "velocity_hat"),
        ("_accumulated_delta_vars", "accumulated_delta_var"),
        ("accum_var", "accumulated_delta_var"),
        ("_r", "r"),
        ("_model_variables_moving_average", "moving_average"),
    ],
)
def test_a_slot_has_one_word(attribute, expected) -> None:
    assert slot_name(attribute) == expected


@pytest.mark.parametrize(
    ("attribute", "name", "role"),
    [
        ("_iterations", "iterations", Role.ITERATIONS),
        ("iter", "iterations", Role.ITERATIONS),
        ("_learning_rate", "learning_rate", Role.HYPERPARAMETER),
        ("beta_1", "beta_1", Role.HYPERPARAMETER),
        ("good_steps", "step_counter", Role.SLOT),
    ],
)
def test_an_optimizers_own_value_has_one_word(attribute, name, role) -> None:
    assert optimizer_value(attribute) == (name, role)


def test_a_slots_variable_is_the_longest_that_fits() -> None:
    variables = by_slot_path([("a", 1), ("a/b", 2)])
    assert split_slot("a_b_velocity_hat", variables) == (2, "velocity_hat")
    assert split_slot("c_momentum", variables) == (None, "")


def test_a_slot_that_fits_two_variables_fits_none() -> None:
    variables = by_slot_path([("a", 1), ("a/b_c", 2), ("a_b/c", 3)])
    assert split_slot("a_b_c_momentum", variables)[0] is None


def test_keras_has_two_words_for_a_functional_model() -> None:
    assert weak_base("model_2", {"functional", "model"}) == "functional"
    assert weak_base("functional_2", {"functional", "model"}) == "functional"
    assert weak_base("model_two", {"functional", "model"}) == ""


@pytest.mark.parametrize("keyword", ["optimizer", "solver"])
def test_a_compiled_optimizer_has_the_name_it_was_given_or_the_usual_one(keyword) -> None:
    solver = Node(NodeKind.OPTIMIZER, children=[("iterations", value())])
    for given in ({}, {keyword: solver}):
        roots = {"model": group(optimizer=solver), **given}
        expected = keyword if given else "optimizer"
        promote_optimizer(roots)
        assert [name.name for name in assign(roots).values] == [f"{expected}/iterations"]


def test_a_compiled_optimizer_stays_below_its_model_where_another_has_the_name() -> None:
    compiled, given = (Node(NodeKind.OPTIMIZER, children=[("iterations", value())]) for _ in "ab")
    roots = {"model": group(optimizer=compiled), "optimizer": given}
    promote_optimizer(roots)
    assert {name.name for name in assign(roots, {"model"}).values} == {
        "model/optimizer/iterations",
        "optimizer/iterations",
    }


def test_a_slash_in_a_layers_name_is_no_level() -> None:
    """tf_keras has `conv1/conv` where Keras 3 has `conv1_conv`."""
    model = stack(group("conv1/conv", kernel=value()), group("fc", kernel=value()))
    found = assign({"model": model})
    assert [name.name for name in found.values] == ["model/conv1_conv/kernel", "model/fc/kernel"]
    assert found.aliases == {"model/conv1/conv": "model/conv1_conv"}


def test_another_name_of_a_layer_is_an_alias_unless_a_layer_has_it() -> None:
    first, second = group("a/bn", w=value()), group("bn", w=value())
    first.other, third = "bn", group("a/fc", w=value())
    third.other = "fc"
    aliases = assign({"model": stack(first, second, third)}).aliases
    assert aliases["model/fc"] == "model/a_fc"
    assert "model/bn" not in aliases
