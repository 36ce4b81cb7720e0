"""One stored value for several live ones, and what else renaming promises."""

from __future__ import annotations

import pytest

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.planning import make_plan
from tfckpt.policy import Policy


def slot(of, kind="momentum"):
    name = f"optimizer/{kind}/{of.removeprefix('model/')}"
    return Entry(name, Role.SLOT, "float32", (2,), 8, slot=kind, of=of)


def inventory(*values, **more):
    entries = [
        Entry(each, Role.WEIGHT, "float32", (2,), 8) if isinstance(each, str) else each
        for each in values
    ]
    return Inventory("here", {entry.name: entry for entry in entries}, **more)


def plan(rules, stored, live, **more):
    pairs = [{"checkpoint": old, "model": new} for old, new in rules]
    return make_plan(Policy(rename=pairs, **more), stored, live)


def came_from(made):
    return {step.name: step.source for step in made.assignments}


def test_one_value_goes_to_several_variables_and_its_slots_with_it():
    made = plan(
        [("model/shared/*", ["model/a/*", "model/b/*"])],
        inventory("model/shared/k", slot("model/shared/k")),
        inventory("model/a/k", "model/b/k", slot("model/a/k"), slot("model/b/k")),
    )
    assert made.ok
    assert came_from(made) == {
        "model/a/k": "model/shared/k",
        "model/b/k": "model/shared/k",
        "optimizer/momentum/a/k": "optimizer/momentum/shared/k",
        "optimizer/momentum/b/k": "optimizer/momentum/shared/k",
    }
    assert {step.status.value for step in made.steps} == {"RENAMED"}


def test_a_value_may_keep_its_name_and_go_elsewhere_too():
    made = plan(
        [("model/a", ["model/a", "model/b"])], inventory("model/a"), inventory("model/a", "model/b")
    )
    assert made.ok
    assert came_from(made) == {"model/a": "model/a", "model/b": "model/a"}


def test_groups_are_carried_to_each():
    made = plan(
        [(r"re:model/(\w+)_(\d)", [r"model/\1/\2", r"model/copy/\2/\1"])],
        inventory("model/x_1"),
        inventory("model/x/1", "model/copy/1/x"),
    )
    assert set(came_from(made)) == {"model/x/1", "model/copy/1/x"}


@pytest.mark.parametrize("action", ["error", "warn"])
def test_one_of_several_that_is_not_here_is_as_any_value_that_nothing_uses(action):
    made = plan(
        [("model/a", ["model/a", "model/typo"])],
        inventory("model/a"),
        inventory("model/a"),
        on_unexpected=action,
    )
    (step,) = (step for step in made.steps if step.target == "model/typo")
    assert step.status == "UNEXPECTED"
    assert "the model has no model/typo" in step.reason
    assert made.ok == (action == "warn")
    assert came_from(made) == {"model/a": "model/a"}


def test_a_clash_of_two_rules_is_an_error():
    made = plan(
        [("model/a", ["model/x", "model/y"]), ("model/b", "model/y")],
        inventory("model/a", "model/b"),
        inventory("model/x", "model/y"),
    )
    assert not made.ok
    assert any("both model/a and model/b map to model/y" in s.reason for s in made.errors)


def test_two_names_of_one_variable_are_no_clash():
    made = plan(
        [("model/t", ["model/a", "model/tied"])],
        inventory("model/t"),
        inventory("model/a", aliases={"model/tied": "model/a"}),
    )
    assert made.ok
    assert came_from(made) == {"model/a": "model/t"}


def test_names_are_exchanged_in_one_pass():
    made = plan(
        [("model/a", ["model/b", "model/c"]), ("model/b", "model/a"), ("model/**", "gone/**")],
        inventory("model/a", "model/b"),
        inventory("model/a", "model/b", "model/c"),
    )
    assert came_from(made) == {"model/b": "model/a", "model/c": "model/a", "model/a": "model/b"}
    (problem,) = made.problems
    assert "'model/**' renames nothing" in problem.message
