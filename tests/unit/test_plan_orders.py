"""Values that a file tells by their place in a layer: where they go, and where they are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfckpt.core.inventory import Entry, Inventory, Ordered, Role
from tfckpt.planning import make_plan
from tfckpt.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Sequence


def plan(rules, stored, live, **more):
    pairs = [{"checkpoint": old, "model": new} for old, new in rules]
    return make_plan(Policy(rename=pairs, **more), stored, live)


STORED = ("model/a/vars/0", "model/a/vars/1")
LIVE = ("model/a/kernel", "model/a/bias")
SHAPES = ((2, 3), (3,))


def in_order(
    names: Sequence[str],
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    paths: Sequence[str] | None = None,
    layer: str = "model/a",
) -> Inventory:
    """One layer's values in order: its own, or, with their paths, those of layers in it, too."""
    entries = {
        name: Entry(name, Role.WEIGHT, "float32", shape, 4)
        for name, shape in zip(names, shapes, strict=True)
    }
    called = paths or [""] * len(names)
    order = {layer: tuple(Ordered(*one) for one in zip(names, called, strict=True))}
    return Inventory("there", entries, **{"deep_orders" if paths else "own_orders": order})


def pairs(stored: Inventory, live: Inventory, **policy: object) -> dict[str, str]:
    """Live name → stored name of what would be assigned."""
    plan = make_plan(Policy.model_validate({"name": "p", **policy}), stored, live)
    assert plan.ok == (len(plan.assignments) == len(live.entries)), str(plan)
    return {step.name: step.source for step in plan.assignments}


def test_numbered_values_go_by_their_place() -> None:
    assert pairs(in_order(STORED), in_order(LIVE)) == dict(zip(LIVE, STORED, strict=True))


@pytest.mark.parametrize(
    "live",
    [
        in_order((*LIVE, "model/a/gate"), (*SHAPES, (3,))),
        in_order(LIVE[:1], SHAPES[:1]),
        in_order(LIVE[::-1], SHAPES[::-1]),
        in_order(LIVE, ((3,), (4,))),
        in_order(LIVE, ((2, 5), (2, 3))),
    ],
    ids=["one more", "one less", "another order", "one moved", "the other moved"],
)
def test_a_layer_that_does_not_agree_is_refused(live: Inventory) -> None:
    assert pairs(in_order(STORED), live) == {}
    skipped = make_plan(Policy(name="p", on_shape_mismatch="skip"), in_order(STORED), live)
    assert {step.status.value for step in skipped.steps} == {"SUSPECT", "UNEXPECTED"}


def test_a_name_that_speaks_of_another_place_is_refused() -> None:
    names = ("model/a/gamma", "model/a/beta")
    shapes = ((3,), (3,))
    assert pairs(in_order(names, shapes), in_order(names[::-1], shapes)) == {}


def test_a_rule_may_name_the_layer_or_the_value() -> None:
    live = in_order(tuple(name.replace("/a/", "/b/") for name in LIVE), layer="model/b")
    layer = {"checkpoint": "model/a/**", "model": "model/b/**"}
    expected = dict(zip(live.entries, STORED, strict=True))
    assert pairs(in_order(STORED), live, rename=[layer]) == expected
    each = [
        {"checkpoint": there, "model": here}
        for here, there in zip(live.entries, STORED, strict=True)
    ]
    assert pairs(in_order(STORED), live, rename=each) == expected


DEEP = ("model/a/forward_lstm/kernel", "model/a/backward_lstm/kernel")
HERE = ("model/a/forward_layer/cell/kernel", "model/a/backward_layer/cell/kernel")
SQUARE = ((2, 2), (2, 2))


def scopes(first: str, second: str) -> list[str]:
    return [f"both/{first}_lstm/lstm_cell/kernel", f"both_3/{second}_lstm/lstm_cell_7/kernel"]


def test_scopes_go_by_their_place() -> None:
    stored = in_order(DEEP, SQUARE, scopes("forward", "backward"))
    live = in_order(HERE, SQUARE, scopes("forward", "backward"))
    assert pairs(stored, live) == dict(zip(HERE, DEEP, strict=True))


def test_numbered_layers_in_another_order_are_refused() -> None:
    names = ("model/a/dense/kernel", "model/a/dense_1/kernel")
    paths = ["dense/kernel", "dense_1/kernel"]
    live = in_order(names, SQUARE, paths)
    assert pairs(in_order(names, SQUARE, paths), live) == {name: name for name in names}
    assert pairs(in_order(names[::-1], SQUARE, paths[::-1]), live) == {}


def numbered_layers(paths: Sequence[str], names: Sequence[str]) -> Inventory:
    full = [f"model/a/{name}/kernel" for name in names]
    shapes = [(2, 2)] * len(full)
    return in_order(full, shapes, [f"a/{path}/kernel" for path in paths])


@pytest.mark.parametrize(
    ("there", "here", "goes"),
    [
        (("dense_4", "dense_5", "dense_6"), ("dense", "dense_1", "dense_2"), True),
        (("dense_5", "dense_6", "dense_4"), ("dense", "dense_1", "dense_2"), False),
        (("dense_5", "dense_4", "dense_6"), ("dense_8", "dense_7", "dense_9"), True),
        (("dense_9", "dense_10", "dense_11"), ("one", "two", "three"), True),
        (("dense_10", "dense_11", "dense_9"), ("one", "two", "three"), False),
    ],
    ids=[
        "the same",
        "the first frozen",
        "created in another order",
        "named here",
        "named and frozen",
    ],
)
def test_automatic_numbers_must_stand_in_one_order(
    there: Sequence[str], here: Sequence[str], goes: bool
) -> None:
    """Keras 2 writes the layers last that are frozen; their numbers give them away."""
    stored, live = (
        numbered_layers(there, there),
        numbered_layers(here, ("first", "second", "third")),
    )
    found = dict(zip(live.entries, stored.entries, strict=True)) if goes else {}
    assert pairs(stored, live) == found
