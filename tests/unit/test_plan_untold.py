"""Layers whose names a file of plain TensorFlow does not tell: by position, or refused.

Layers of the checkpoint are written ``#0`` where the file does not tell their name, ``dense?``
where it is automatic, and ``head`` where it was chosen. Each has one kernel, but for the stacks.
"""

import dataclasses

import pytest
from zoo.entries import layer, sequence

from tfckpt.core.inventory import Entry, Inventory, Ordered, Role
from tfckpt.planning import make_plan
from tfckpt.policy import Policy

MOMENTUM = "optimizer/momentum"


def model(layers, path="model", *, shapes=(), slots=False):
    """``[("backbone", ["d1", "d2"]), "head"]``: a model in a model, and a layer."""
    sequences, entries, wanted = {}, {}, [(path, layers)]
    while wanted:
        stack, inner = wanted.pop()
        found = []
        for each in inner:
            text, below = each if isinstance(each, tuple) else (each, None)
            found.append(layer(text))
            name = f"{stack}/{found[-1].place}"
            if below is not None:
                wanted.append((name, below))
                continue
            kernel = Entry(f"{name}/kernel", Role.WEIGHT, "float32", dict(shapes).get(text, (2,)))
            entries[kernel.name] = kernel
            if slots:
                momentum = f"{MOMENTUM}/{kernel.name.removeprefix('model/')}"
                entries[momentum] = Entry(
                    momentum, Role.SLOT, "float32", kernel.shape, slot="momentum", of=kernel.name
                )
        sequences[stack] = sequence(*found)
    return Inventory("here", entries, sequences)


def pairs(plan):
    return {step.name: step.source for step in plan.assignments}


def only(plan, name):
    (step,) = (step for step in plan.steps if step.name == name)
    return step


LIVE = [("backbone", ["d1", "d2"]), "head"]


def test_what_agrees_in_all_but_the_untold_name_is_loaded_and_noted_and_its_slots_follow():
    stored = model([("#0", ["d1", "d2"]), "head"], slots=True)
    plan = make_plan(Policy(), stored, model(LIVE, slots=True))
    assert plan.ok
    assert pairs(plan) == {
        "model/backbone/d1/kernel": "model/layer_with_weights-0/d1/kernel",
        "model/backbone/d2/kernel": "model/layer_with_weights-0/d2/kernel",
        "model/head/kernel": "model/head/kernel",
        f"{MOMENTUM}/backbone/d1/kernel": f"{MOMENTUM}/layer_with_weights-0/d1/kernel",
        f"{MOMENTUM}/backbone/d2/kernel": f"{MOMENTUM}/layer_with_weights-0/d2/kernel",
        f"{MOMENTUM}/head/kernel": f"{MOMENTUM}/head/kernel",
    }
    step = only(plan, "model/backbone/d1/kernel")
    assert (step.status, step.severity) == ("LOADED", "note")
    assert "does not store the layer's name" in step.reason
    assert "position" in step.reason
    assert "shapes" in step.reason
    assert only(plan, "model/head/kernel").severity == "ok"


def test_untold_layers_in_untold_layers_are_found_too():
    stored = model([("#0", ["d1", ("#1", ["a", "#1"])]), "head"])
    live = model([("backbone", ["d1", ("neck", ["a", "b"])]), "head"])
    plan = make_plan(Policy(), stored, live)
    assert plan.ok
    assert pairs(plan)["model/backbone/neck/b/kernel"] == (
        "model/layer_with_weights-0/layer_with_weights-1/layer_with_weights-1/kernel"
    )
    assert set(pairs(plan)) == set(live.entries)


def test_automatic_names_around_and_below_an_untold_layer_are_believed():
    stored = model([("#0", ["dense?", "dense_1?"]), "dense?", "dense_1?"])
    live = model([("functional?", ["dense?", "dense_1?"]), "dense?", "dense_1?"])
    plan = make_plan(Policy(), stored, live)
    assert plan.ok
    assert set(pairs(plan)) == set(live.entries)


LENIENT = [
    {"on_missing": "ignore", "on_unexpected": "ignore"},
    {"expect_partial": True, "api": "read"},
    {"assert": "none"},
    {"match": "name", "assert": "none"},
]


@pytest.mark.parametrize("policy", LENIENT, ids=str)
@pytest.mark.parametrize(
    ("layers", "shapes", "why"),
    [
        ([("backbone", ["d1", "d2"]), "new", "head"], (), "3 layers in the model and 2"),
        (
            ["head", ("backbone", ["d1", "d2"])],
            (),
            "position 2 is 'backbone' in the model and 'head'",
        ),
        (LIVE, [("d2", (2, 3))], "shapes"),
    ],
    ids=["count", "order", "shape"],
)
def test_an_untold_layer_that_may_be_another_is_refused_however_lenient_the_policy(
    policy, layers, shapes, why
):
    stored = model([("#0", ["d1", "d2"]), "head"], slots=True)
    live = model(layers, shapes=shapes, slots=True)
    plan = make_plan(Policy.model_validate(policy), stored, live)
    assert not plan.ok
    below = [name for name in live.entries if "/backbone/" in name]
    for name in below:
        step = only(plan, name)
        assert (step.status, step.severity) == ("SUSPECT", "error")
        assert "'layer_with_weights-0'" in step.reason
        assert "'backbone'" in step.reason
        assert why in step.reason
        assert "rename" in step.hint
    assert pairs(plan)["model/head/kernel"] == "model/head/kernel"


def test_an_untold_layer_of_another_size_is_a_mismatch():
    stored = model([("#0", ["d1", "d2"]), "head"])
    live = model(LIVE, shapes=[("d2", (3,))])
    plan = make_plan(Policy(), stored, live)
    assert only(plan, "model/backbone/d2/kernel").status == "MISMATCH"
    assert pairs(plan).keys() == {"model/backbone/d1/kernel", "model/head/kernel"}
    assert make_plan(Policy(on_shape_mismatch="skip"), stored, live).ok


def test_a_layer_inside_of_an_untold_one_is_known_by_its_name():
    stored, live = model([("#0", ["d1", "d2"]), "head"]), model([("body", ["d1", "d3"]), "head"])
    plan = make_plan(Policy(), stored, live)
    assert only(plan, "model/body/d3/kernel").status == "MISSING"
    assert pairs(plan).keys() == {"model/body/d1/kernel", "model/head/kernel"}


def test_the_hints_are_true():
    stored = model([("#0", ["d1", "d2"]), "head"])
    live = model(["new", ("backbone", ["d1", "d2"]), "head"])
    rule = {"checkpoint": "model/layer_with_weights-0/**", "model": "model/backbone/**"}
    assert make_plan(Policy(rename=(rule,), exclude=("model/new/**",)), stored, live).ok
    same = model([("encoder", ["d1", "d3"]), "last"])
    assert make_plan(Policy(match="structure"), stored, same).ok


def test_what_the_policy_excludes_or_expects_is_not_refused():
    stored = model([("#0", ["d1", "d2"]), "head"])
    live = model([("backbone", ["d1", "d9"]), "head"])
    body = ("model/backbone/**",)
    left = ("model/layer_with_weights-0/**",)
    assert make_plan(Policy(exclude=body, on_unexpected="ignore"), stored, live).ok
    assert make_plan(Policy(expect_missing=body, expect_unexpected=left), stored, live).ok


def test_layers_that_have_a_partner_are_missing_nothing_when_an_untold_one_is_left_over():
    stored = model(["a", "#1", "head"])
    plan = make_plan(Policy(on_unexpected="warn"), stored, model(["a", "head"]))
    assert plan.ok
    assert pairs(plan) == {
        "model/a/kernel": "model/a/kernel",
        "model/head/kernel": "model/head/kernel",
    }


def test_a_rename_of_the_model_around_reaches_what_is_below_an_untold_layer():
    stored = model([("#0", ["d1"]), "head"], "old")
    rules = ({"checkpoint": "old/**", "model": "model/**"},)
    live = model([("backbone", ["d1"]), "head"])
    plan = make_plan(Policy(rename=rules), stored, live)
    assert plan.ok
    assert pairs(plan)["model/backbone/d1/kernel"] == "old/layer_with_weights-0/d1/kernel"


def test_selection_is_by_the_live_name():
    stored = model([("#0", ["d1"]), "head"])
    live = model([("backbone", ["d1"]), "head"])
    plan = make_plan(Policy(include=("model/backbone/**",)), stored, live)
    assert plan.ok
    assert set(pairs(plan)) == {"model/backbone/d1/kernel"}


def test_of_two_layers_that_are_as_near_the_first_is_named_first():
    plan = make_plan(Policy(), model(["#0", "mid", "#2"]), model(["a", "b", "mid", "c"]))
    assert (
        "'b', at position 2 of 'model' in the model, may be 'layer_with_weights-0' or "
        "'layer_with_weights-2', but there are 4 layers"
    ) in only(plan, "model/b/kernel").reason


def test_which_layers_might_agree_says_nothing_of_those_that_have_a_partner():
    """`b` is `#1`: that it is not `#0` refuses no slot that the file does not have."""
    layers = [layer(f"#{index}") for index in range(2)]
    names = [f"model/{each.place}/vars/0" for each in layers]
    stored = Inventory(
        "here",
        {n: Entry(n, Role.WEIGHT, "float32", s) for n, s in zip(names, ((3,), (3,)), strict=True)},
        {"model": sequence(*layers)},
        own_orders={name.removesuffix("/vars/0"): (Ordered(name),) for name in names},
    )
    live = model(["a", "b"], shapes=[("a", (4,)), ("b", (3,))], slots=True)
    orders = {f"model/{each}": (Ordered(f"model/{each}/kernel"),) for each in "ab"}
    plan = make_plan(Policy(), stored, dataclasses.replace(live, own_orders=orders))
    assert pairs(plan) == {"model/b/kernel": "model/layer_with_weights-1/vars/0"}
    assert only(plan, "model/a/kernel").status == "SUSPECT"
    assert only(plan, f"{MOMENTUM}/a/kernel").status == "SUSPECT"
    assert only(plan, f"{MOMENTUM}/b/kernel").status == "MISSING"
