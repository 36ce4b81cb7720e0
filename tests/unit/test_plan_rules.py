"""Renaming, aliases, expected differences, and rules that meet nothing."""

import pytest

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.planning import make_plan
from tfckpt.policy import Policy


def slot(of, kind="momentum", path="optimizer"):
    name = f"{path}/{kind}/{of.removeprefix('model/')}"
    return Entry(name, Role.SLOT, "float32", (2,), 8, slot=kind, of=of)


def inventory(*values, **more):
    entries = [
        Entry(each, Role.WEIGHT, "float32", (2,), 8) if isinstance(each, str) else each
        for each in values
    ]
    return Inventory("here", {entry.name: entry for entry in entries}, **more)


def rename(*pairs):
    return tuple({"checkpoint": old, "model": new} for old, new in pairs)


def sources(plan):
    return {step.name: (step.status.value, step.source) for step in plan.steps if step.name}


def only(plan, name):
    (step,) = (step for step in plan.steps if name in {step.name, step.source})
    return step


# --- renaming


def test_a_renamed_value_and_its_slots_go_together():
    policy = Policy(rename=rename(("model/backbone/**", "model/encoder/**")))
    stored = inventory("model/backbone/a", slot("model/backbone/a"))
    plan = make_plan(policy, stored, inventory("model/encoder/a", slot("model/encoder/a")))
    assert plan.ok
    assert sources(plan) == {
        "model/encoder/a": ("RENAMED", "model/backbone/a"),
        "optimizer/momentum/encoder/a": ("RENAMED", "optimizer/momentum/backbone/a"),
    }


def test_slots_follow_a_variable_that_moves_to_another_model():
    policy = Policy(rename=rename(("model/**", "generator/**")))
    stored = inventory("model/a", slot("model/a"))
    plan = make_plan(policy, stored, inventory("generator/a", slot("generator/a")))
    assert plan.ok
    assert sources(plan)["optimizer/momentum/generator/a"] == ("RENAMED", "optimizer/momentum/a")


def test_a_rule_for_the_slot_itself_comes_before_its_variable():
    policy = Policy(
        rename=rename(
            ("model/old", "model/new"), ("optimizer/momentum/old", "optimizer/velocity/new")
        )
    )
    stored = inventory("model/old", slot("model/old"))
    plan = make_plan(policy, stored, inventory("model/new", slot("model/new", "velocity")))
    assert sources(plan)["optimizer/velocity/new"] == ("RENAMED", "optimizer/momentum/old")


def test_rules_see_stored_names_once_and_the_first_that_matches_wins():
    policy = Policy(rename=rename(("model/a", "model/b"), ("model/b", "model/a")))
    both = inventory("model/a", "model/b")
    plan = make_plan(policy, both, both)
    assert plan.ok
    assert sources(plan) == {
        "model/a": ("RENAMED", "model/b"),
        "model/b": ("RENAMED", "model/a"),
    }


def test_selection_is_by_the_new_name():
    policy = Policy(include=("model/encoder/**",), rename=rename(("old/**", "model/encoder/**")))
    plan = make_plan(policy, inventory("old/a", "model/b"), inventory("model/encoder/a"))
    assert plan.ok
    assert only(plan, "old/a").status == "RENAMED"
    assert only(plan, "model/b").status == "EXCLUDED"


@pytest.mark.parametrize("reverse", [False, True])
def test_two_stored_values_for_one_live_value_are_refused_and_both_named(reverse):
    names = ["model/a", "model/b"]
    policy = Policy(rename=rename(("model/b", "model/a")))
    plan = make_plan(policy, inventory(*sorted(names, reverse=reverse)), inventory("model/a"))
    assert not plan.ok
    assert len(plan.errors) == 2
    for step in plan.errors:
        assert "model/a and model/b" in step.reason
        assert "exclude_checkpoint" in step.hint


def test_two_stored_values_for_an_excluded_live_value_do_no_harm():
    policy = Policy(rename=rename(("model/b", "model/a")), exclude=("model/a",))
    stored = inventory("model/a", "model/b", "model/c")
    assert make_plan(policy, stored, inventory("model/a", "model/c")).ok


# --- slots and their variables


def numbered(of, name):
    return slot(of)._replace(name=name)


COLLIDING = (
    numbered("model/enc/k", "optimizer/momentum/enc/k"),
    numbered("enc/k", "optimizer/momentum/enc/k~2"),
)


def test_a_slot_is_its_variables_whatever_its_own_name():
    stored = inventory("model/enc/k", "enc/k", *COLLIDING)
    live = inventory(
        "model/enc/k",
        "enc/k",
        numbered("enc/k", "optimizer/momentum/enc/k"),
        numbered("model/enc/k", "optimizer/momentum/enc/k~2"),
    )
    plan = make_plan(Policy(), stored, live)
    assert plan.ok
    slots = [step for step in plan.assignments if step.live.role is Role.SLOT]
    assert len(slots) == 2
    assert all(step.live.of == step.stored.of for step in slots)


@pytest.mark.parametrize("rules", [(), rename(("optimizer/**", "optimizer/**"))])
def test_a_slot_of_another_variable_is_never_loaded(rules):
    stored = inventory("model/enc/k", "enc/k", COLLIDING[0])
    live = inventory("model/enc/k", "enc/k", numbered("enc/k", "optimizer/momentum/enc/k"))
    policy = Policy(rename=rules, on_missing="warn", on_unexpected="warn")
    plan = make_plan(policy, stored, live)
    left = [s for s in plan.steps if s.entry.role is Role.SLOT]
    assert sorted(step.status.value for step in left) == ["MISSING", "UNEXPECTED"]
    (step,) = (step for step in left if step.stored)
    assert "is a slot of enc/k, not of model/enc/k" in step.reason


def test_slots_of_an_optimizer_alone_go_by_their_names():
    label = slot("model/a")._replace(of="a")
    for stored, live in ((slot("model/a"), label), (label, slot("model/a"))):
        sides = [inventory(s, *([s.of] if s.of == "model/a" else [])) for s in (stored, live)]
        plan = make_plan(Policy(on_missing="warn", on_unexpected="warn"), *sides)
        assert sources(plan)["optimizer/momentum/a"] == ("LOADED", "optimizer/momentum/a")


def test_a_rule_for_the_optimizer_leaves_its_slots_to_their_variables():
    policy = Policy(rename=rename(("model/**", "generator/**"), ("optimizer/**", "g_opt/**")))
    stored = inventory("model/a", slot("model/a"))
    live = inventory("generator/a", slot("generator/a", path="g_opt"))
    plan = make_plan(policy, stored, live)
    assert plan.ok
    assert sources(plan)["g_opt/momentum/generator/a"] == ("RENAMED", "optimizer/momentum/a")


def test_a_left_over_value_says_what_it_was_meant_for():
    policy = Policy(rename=rename(("old/**", "model/**")), on_unexpected="warn")
    plan = make_plan(policy, inventory("model/a", "old/b"), inventory("model/a"))
    assert only(plan, "old/b").target == "model/b"
    assert {step["source"]: step["target"] for step in plan.to_json()["steps"]} == {
        "model/a": "",
        "old/b": "model/b",
    }


# --- one value, several names


def test_a_live_value_is_found_by_each_path_that_leads_to_it():
    live = inventory("model/a/kernel", slot("model/a/kernel"), aliases={"model/tied": "model/a"})
    stored = inventory("model/tied/kernel", slot("model/tied/kernel"))
    plan = make_plan(Policy(), stored, live)
    assert plan.ok
    assert sources(plan) == {
        "model/a/kernel": ("LOADED", "model/tied/kernel"),
        "optimizer/momentum/a/kernel": ("LOADED", "optimizer/momentum/tied/kernel"),
    }


def test_a_stored_value_is_found_by_each_path_that_led_to_it():
    stored = inventory("model/a/kernel", slot("model/a/kernel"), aliases={"model/tied": "model/a"})
    plan = make_plan(Policy(), stored, inventory("model/tied/kernel", slot("model/tied/kernel")))
    assert plan.ok
    assert sources(plan) == {
        "model/tied/kernel": ("LOADED", "model/a/kernel"),
        "optimizer/momentum/tied/kernel": ("LOADED", "optimizer/momentum/a/kernel"),
    }


def test_tied_weights_fill_two_live_values_that_are_no_longer_tied():
    stored = inventory("model/a/kernel", aliases={"model/tied": "model/a"})
    plan = make_plan(Policy(), stored, inventory("model/a/kernel", "model/tied/kernel"))
    assert plan.ok
    assert {source for _, source in sources(plan).values()} == {"model/a/kernel"}


def test_a_second_value_for_what_is_tied_here_is_left_over():
    live = inventory("model/a/kernel", aliases={"model/tied": "model/a"})
    plan = make_plan(Policy(), inventory("model/a/kernel", "model/tied/kernel"), live)
    assert sources(plan) == {"model/a/kernel": ("LOADED", "model/a/kernel")}
    assert only(plan, "model/tied/kernel").status == "UNEXPECTED"


# --- expected differences


def test_differences_that_are_declared_are_noted():
    policy = Policy(expect_missing=("model/head/**",), expect_unexpected=("model/old/**",))
    plan = make_plan(
        policy, inventory("model/a", "model/old/w"), inventory("model/a", "model/head/w")
    )
    assert plan.ok
    assert {step.severity.value for step in plan.steps} == {"ok", "note"}


@pytest.mark.parametrize(
    ("field", "text"),
    [("expect_missing", "not missing"), ("expect_unexpected", "not unexpected")],
)
def test_a_declared_difference_must_occur(field, text):
    both = inventory("model/a", "model/b")
    plan = make_plan(Policy(**{field: ("model/b",)}), both, both)
    (problem,) = plan.problems
    assert "model/b" in problem.message
    assert text in problem.message


# --- rules that meet nothing


@pytest.mark.parametrize("field", ["include", "exclude", "exclude_checkpoint"])
def test_a_selector_that_matches_nothing_is_a_problem_with_a_suggestion(field):
    both = inventory("model/encoder/kernel", "model/head/kernel")
    given = ("model/enc0der/**", "**") if field == "include" else ("model/enc0der/**",)
    plan = make_plan(Policy(**{field: given}), both, both)
    (problem,) = plan.problems
    assert problem.message == f"{field}: 'model/enc0der/**' matches nothing"
    assert problem.hint == "did you mean 'model/encoder/**'?"
    assert not plan.ok


TIED = {"model/tied": "model/a"}


@pytest.mark.parametrize(
    ("policy", "tied"),
    [
        ({"exclude": ("model/tied/**",)}, "live"),
        ({"include": ("**", "model/tied/*")}, "live"),
        ({"expect_missing": ("model/tied/*",)}, "live"),
        ({"exclude_checkpoint": ("model/tied/**",)}, "stored"),
        ({"expect_unexpected": ("model/tied/**",)}, "stored"),
        ({"rename": rename(("model/tied/**", "model/b/**"))}, "stored"),
    ],
)
def test_a_selector_that_only_matches_a_further_name_is_told_the_canonical_one(policy, tied):
    sides = {
        side: inventory("model/a/k", "model/b/k", aliases=TIED if side == tied else {})
        for side in ("stored", "live")
    }
    (problem,) = make_plan(Policy(**policy), **sides).problems
    assert "matches nothing" in problem.message
    assert "'model/tied/k' is another name of 'model/a/k'" in problem.hint


def test_names_with_the_same_last_component_are_suggested():
    both = inventory("a/b/c/embeddings")
    plan = make_plan(Policy(exclude=("zzzz/embeddings",)), both, both)
    assert "a/b/c/embeddings" in plan.problems[0].hint


def test_a_rename_that_matches_nothing_is_a_problem():
    both = inventory("model/a")
    plan = make_plan(Policy(rename=rename(("model/b", "model/c"))), both, both)
    assert "'model/b' matches nothing in the checkpoint" in plan.problems[0].message


def test_a_rename_whose_values_an_earlier_rule_takes_is_a_problem_of_its_own_kind():
    policy = Policy(rename=rename(("model/**", "net/**"), ("model/a", "model/b")))
    plan = make_plan(policy, inventory("model/a"), inventory("net/a"))
    assert "renames nothing" in plan.problems[0].message
    assert "an earlier rule" in plan.problems[0].hint


def test_overlapping_rules_that_each_match_something_are_fine():
    both = inventory("model/a", "model/head/b")
    policy = Policy(exclude=("model/head/**", "model/head/b"), include=("model/**", "model/a"))
    assert make_plan(policy, both, both).ok


def test_a_rule_for_live_names_may_match_what_only_the_checkpoint_has():
    policy = Policy(exclude=("model/head/**",))
    plan = make_plan(policy, inventory("model/a", "model/head/b"), inventory("model/a"))
    assert plan.ok


def test_the_default_include_needs_to_match_nothing():
    plan = make_plan(Policy(allow_empty=True), inventory(), inventory())
    assert plan.ok
