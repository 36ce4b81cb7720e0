"""Each status a value can end in, and what the policy has to say about it."""

import dataclasses
import math

import pytest

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.planning import Severity, Status, make_plan
from tfckpt.policy import Policy


def value(name, role=Role.WEIGHT, dtype="float32", shape=(2,)):
    return Entry(name, role, dtype, shape, 4 * math.prod(shape or ()))


def slot(of, kind="momentum", path="optimizer"):
    name = f"{path}/{kind}/{of.removeprefix('model/')}"
    return Entry(name, Role.SLOT, "float32", (2,), 8, slot=kind, of=of)


def inventory(*values, **more):
    entries = [value(each) if isinstance(each, str) else each for each in values]
    return Inventory("here", {entry.name: entry for entry in entries}, **more)


ITERATIONS = value("optimizer/iterations", Role.ITERATIONS, "int64", ())
RATE = value("optimizer/learning_rate", Role.HYPERPARAMETER, shape=())
SEED = value("seed/dropout", Role.SEED, "uint32", (2,))
METRIC = value("metrics/accuracy/total", Role.METRIC, shape=())
COUNTER = value("save_counter", Role.STATE, "int64", ())


def outcome(plan):
    return {step.name or step.source: step.status.value for step in plan.steps}


def only(plan, name):
    (step,) = (step for step in plan.steps if name in {step.name, step.source})
    return step


def test_equal_values_are_loaded_and_nothing_is_said():
    plan = make_plan(Policy(), inventory("model/a", ITERATIONS), inventory("model/a", ITERATIONS))
    assert outcome(plan) == {"model/a": "LOADED", "optimizer/iterations": "LOADED"}
    assert plan.ok
    assert {step.severity for step in plan.steps} == {Severity.OK}
    assert plan.counts == {Status.LOADED: 2}
    assert plan.nbytes == 8 + 4
    assert len(plan.assignments) == 2


# --- missing and unexpected


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        ({}, "error"),
        ({"on_missing": "warn"}, "warn"),
        ({"on_missing": "ignore"}, "note"),
        ({"assert_": "consumed"}, "error"),
        ({"assert_": "existing_objects_matched"}, "error"),
        ({"assert_": "nontrivial_match"}, "warn"),
        ({"assert_": "none"}, "warn"),
    ],
)
def test_a_live_value_without_a_stored_one_is_missing(given, severity):
    plan = make_plan(Policy(**given), inventory("model/a"), inventory("model/a", "model/b"))
    step = only(plan, "model/b")
    assert (step.status, step.severity, step.source) == ("MISSING", severity, "")
    assert plan.ok == (severity != "error")


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        ({}, "error"),
        ({"on_unexpected": "warn"}, "warn"),
        ({"on_unexpected": "ignore"}, "note"),
        ({"assert_": "consumed"}, "error"),
        ({"assert_": "existing_objects_matched"}, "warn"),
        ({"expect_partial": True}, "note"),
    ],
)
def test_a_stored_value_without_a_live_one_is_unexpected(given, severity):
    plan = make_plan(Policy(**given), inventory("model/a", "model/b"), inventory("model/a"))
    step = only(plan, "model/b")
    assert (step.status, step.severity, step.name) == ("UNEXPECTED", severity, "")


def test_metrics_never_refuse():
    plan = make_plan(
        Policy(assert_="consumed"),
        inventory("model/a", METRIC),
        inventory("model/a", value("metrics/loss/total", Role.METRIC)),
    )
    assert plan.ok
    assert only(plan, METRIC.name).status == "UNEXPECTED"
    assert only(plan, METRIC.name).severity == "note"
    assert only(plan, "metrics/loss/total").status == "MISSING"


def test_absent_seeds_are_noted_where_the_writer_never_saves_them_and_refused_where_it_does():
    live = inventory("model/a", SEED)
    foreign = make_plan(Policy(), inventory("model/a"), live)
    assert (only(foreign, SEED.name).status, only(foreign, SEED.name).severity) == (
        "MISSING",
        "note",
    )
    own = make_plan(Policy(on_missing="error"), inventory("model/a", complete=True), live)
    assert only(own, SEED.name).severity == "error"


def seeds(*numbers, base="dropout"):
    names = (f"seed/{base}_{number}" if number else f"seed/{base}" for number in numbers)
    return inventory(
        "model/a", *(value(n, Role.SEED, "uint32", (2,)) for n in names), complete=True
    )


@pytest.mark.parametrize(("there", "here"), [([0, 1], [0]), ([0], [0, 1, 2])])
def test_a_dropout_more_or_less_gives_no_dropout_its_neighbours_seed_and_refuses_nothing(
    there, here
):
    plan = make_plan(Policy(assert_="consumed"), seeds(*there), seeds(*here))
    assert plan.ok
    assert [step.name for step in plan.assignments] == ["model/a"]
    left = [step for step in plan.steps if step.entry.role is Role.SEED]
    assert len(left) == len(there) + len(here)
    for step in left:
        assert step.severity == "note"
        assert "so which seed belongs to which layer is unknown" in step.reason


def test_seeds_of_another_class_or_of_chosen_names_are_loaded():
    plan = make_plan(Policy(on_unexpected="warn"), seeds(1, 2, base="drop"), seeds(2, base="drop"))
    assert {step.name for step in plan.assignments} == {"model/a", "seed/drop_2"}
    noise = value("seed/noise", Role.SEED, "uint32", (2,))
    old, new = (
        dataclasses.replace(side, entries={**side.entries, noise.name: noise})
        for side in (seeds(0, 1), seeds(0))
    )
    assert {step.name for step in make_plan(Policy(), old, new).assignments} == {
        "model/a",
        "seed/noise",
    }
    trusting = make_plan(Policy(match="name", on_unexpected="warn"), old, new)
    assert "seed/dropout" in {step.name for step in trusting.assignments}


def test_seeds_stay_where_training_state_does_not_list_them():
    policy = Policy(training_state=("epoch",))
    plan = make_plan(policy, inventory("model/a", SEED), inventory("model/a", SEED))
    assert only(plan, SEED.name).status == "EXCLUDED"


# --- shapes and types


@pytest.mark.parametrize(("old", "new"), [((3, 3), (3, 4)), ((1,), ()), ((), (1,)), (None, (2,))])
def test_unequal_shapes_are_refused_with_both_of_them(old, new):
    stored = inventory("model/b", value("model/a", shape=old))
    plan = make_plan(Policy(), stored, inventory("model/b", value("model/a", shape=new)))
    step = only(plan, "model/a")
    assert (step.status, step.severity) == ("MISMATCH", "error")
    assert str(new) in step.reason
    skipped = make_plan(
        Policy(on_shape_mismatch="skip"), stored, inventory("model/b", value("model/a", shape=new))
    )
    assert (only(skipped, "model/a").status, only(skipped, "model/a").severity) == (
        "MISMATCH",
        "warn",
    )
    assert skipped.ok


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("float32", "bfloat16", "CAST"),
        ("float16", "float32", "CAST"),
        ("int64", "int32", "CAST"),
        ("float32", "int32", "CAST"),
        ("bool", "float32", "CAST"),
        ("float32", "complex64", "CAST"),
        ("string", "float32", "MISMATCH"),
        ("float32", "string", "MISMATCH"),
        ("complex64", "float32", "MISMATCH"),
        ("int32", "bool", "MISMATCH"),
        ("variant", "int64", "MISMATCH"),
    ],
)
def test_numbers_are_cast_on_demand_and_nothing_else_is(old, new, status):
    stored = inventory("model/b", value("model/a", dtype=old))
    live = inventory("model/b", value("model/a", dtype=new))
    refused = only(make_plan(Policy(), stored, live), "model/a")
    assert (refused.status, refused.severity) == ("MISMATCH", "error")
    assert old in refused.reason
    assert new in refused.reason
    plan = make_plan(Policy(on_dtype_mismatch="cast"), stored, live)
    assert only(plan, "model/a").status == status
    assert plan.ok == (status == "CAST")


def test_strings_go_into_strings_and_objects_into_objects():
    both = inventory(
        value("vocabulary", Role.STATE, "string"), value("iterator", Role.OBJECT, "", None)
    )
    assert set(outcome(make_plan(Policy(), both, both)).values()) == {"LOADED"}


# --- what is selected


def test_include_and_exclude_select_live_names_and_stored_values_alike():
    policy = Policy(include=("model/**",), exclude=("model/head/**",))
    both = ("model/a", "model/head/kernel", ITERATIONS)
    plan = make_plan(policy, inventory(*both, "model/head/old"), inventory(*both, "model/head/new"))
    assert outcome(plan) == {
        "model/a": "LOADED",
        "model/head/kernel": "EXCLUDED",
        "model/head/old": "EXCLUDED",
        "model/head/new": "EXCLUDED",
        "optimizer/iterations": "EXCLUDED",
    }
    assert plan.ok


def test_exclude_checkpoint_leaves_a_stored_value_out_and_its_live_one_is_missing():
    policy = Policy(exclude_checkpoint=("model/b",))
    plan = make_plan(policy, inventory("model/a", "model/b"), inventory("model/a", "model/b"))
    stored, live = (step for step in plan.steps if "b" in step.name + step.source)
    assert {(stored.status, stored.source), (live.status, live.source)} == {
        ("EXCLUDED", "model/b"),
        ("MISSING", ""),
    }
    assert "exclude_checkpoint" in next(s.reason for s in (stored, live) if s.status == "MISSING")


# --- roles


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, ("LOADED", "LOADED", "LOADED")),
        ({"slots": "reset"}, ("RESET", "RESET", "LOADED")),
        ({"slots": "reset", "iterations": "restore"}, ("RESET", "LOADED", "LOADED")),
        ("reset", ("RESET", "RESET", "EXCLUDED")),
        ({"iterations": "reset"}, ("LOADED", "RESET", "LOADED")),
        ({"hyperparameters": "config"}, ("LOADED", "LOADED", "EXCLUDED")),
    ],
)
def test_optimizer_state_is_treated_by_role(rules, expected):
    both = inventory("model/a", slot("model/a"), ITERATIONS, RATE)
    plan = make_plan(Policy(optimizer=rules), both, both)
    names = ("optimizer/momentum/a", "optimizer/iterations", "optimizer/learning_rate")
    assert tuple(outcome(plan)[name] for name in names) == expected
    assert plan.ok
    assert {step.name for step in plan.resets} == {
        name for name, status in zip(names, expected, strict=True) if status == "RESET"
    }


def test_what_is_reset_or_kept_is_not_unexpected_in_the_checkpoint():
    rules = {"slots": "reset", "iterations": "reset", "hyperparameters": "config"}
    stored = inventory("model/a", slot("model/a"), ITERATIONS, RATE)
    plan = make_plan(Policy(optimizer=rules), stored, inventory("model/a"))
    assert plan.ok
    assert plan.counts == {Status.LOADED: 1, Status.EXCLUDED: 3}


def test_a_reset_reaches_what_include_does_not_and_spares_what_exclude_names():
    both = inventory("model/a", slot("model/a"), slot("model/a", "velocity"))
    policy = Policy(
        include=("model/**",),
        exclude=("optimizer/velocity/**",),
        optimizer={"slots": "reset"},
    )
    assert outcome(make_plan(policy, both, both)) == {
        "model/a": "LOADED",
        "optimizer/momentum/a": "RESET",
        "optimizer/velocity/a": "EXCLUDED",
    }


# --- TensorFlow's save counter (the table of status methods in TensorFlow's own behaviour)


@pytest.mark.parametrize("assertion", [None, "existing_objects_matched", "nontrivial_match"])
def test_read_leaves_the_save_counter(assertion):
    both = inventory("model/a", COUNTER)
    plan = make_plan(Policy(api="read", assert_=assertion), both, both)
    assert outcome(plan) == {"model/a": "LOADED", "save_counter": "EXCLUDED"}
    assert only(plan, "save_counter").severity == "note"
    assert plan.ok


def test_read_of_a_saved_checkpoint_is_not_consumed():
    stored = inventory("model/a", COUNTER)
    plan = make_plan(Policy(api="read", assert_="consumed"), stored, inventory("model/a"))
    step = only(plan, "save_counter")
    assert (step.status, step.severity) == ("UNEXPECTED", "error")


@pytest.mark.parametrize("assertion", [None, "consumed", "existing_objects_matched"])
def test_restore_of_a_written_checkpoint_misses_the_save_counter(assertion):
    policy = Policy(api="restore", assert_=assertion)
    plan = make_plan(policy, inventory("model/a"), inventory("model/a", COUNTER))
    step = only(plan, "save_counter")
    assert (step.status, step.severity) == ("MISSING", "error")
    assert "write()" in step.reason


@pytest.mark.parametrize("assertion", [None, "consumed", "existing_objects_matched"])
def test_what_counts_no_saves_is_read_unless_the_policy_says_restore(assertion):
    plan = make_plan(Policy(assert_=assertion), inventory("model/a"), inventory("model/a", COUNTER))
    step = only(plan, "save_counter")
    assert plan.ok
    assert (step.status, step.severity) == ("EXCLUDED", "note")
    assert "api: read" in step.reason


def test_a_record_of_tfckpt_without_the_counter_is_not_taken_as_read():
    stored = dataclasses.replace(inventory("model/a"), complete=True)
    plan = make_plan(Policy(on_missing="error"), stored, inventory("model/a", COUNTER))
    assert only(plan, "save_counter").severity == "error"


@pytest.mark.parametrize("assertion", [None, "consumed", "existing_objects_matched"])
def test_read_of_a_written_checkpoint_is_fine(assertion):
    policy = Policy(api="read", assert_=assertion)
    assert make_plan(policy, inventory("model/a"), inventory("model/a", COUNTER)).ok


def test_restore_where_nothing_counts_saves_leaves_the_counter():
    plan = make_plan(Policy(), inventory("model/a", COUNTER), inventory("model/a"))
    assert plan.ok
    assert only(plan, "save_counter").status == "EXCLUDED"


# --- the plan as a whole


def test_restoring_nothing_is_refused_unless_that_is_allowed():
    stored, live = inventory("net/a", COUNTER), inventory("model/b", COUNTER)
    plan = make_plan(Policy(assert_="none"), stored, live)
    assert not plan.ok
    assert "no value would be restored" in plan.problems[0].message
    assert "net/…" in plan.problems[0].hint
    assert make_plan(Policy(assert_="none", allow_empty=True), stored, live).ok


def test_what_matches_any_checkpoint_is_nothing_unless_nothing_else_was_asked_for():
    stored = inventory("net/a", ITERATIONS, RATE, COUNTER)
    policy = Policy(assert_="none")
    plan = make_plan(policy, stored, inventory("model/b", ITERATIONS, RATE, COUNTER))
    assert "no value would be restored" in plan.problems[0].message
    assert make_plan(policy, stored, inventory(ITERATIONS, RATE)).ok
    assert not make_plan(policy, stored, inventory(COUNTER)).ok


def test_a_mismatch_is_reported_once_and_not_as_nothing_restored_too():
    stored = inventory(value("model/a", shape=(3,)))
    plan = make_plan(Policy(), stored, inventory("model/a"))
    assert [step.status for step in plan.errors] == ["MISMATCH"]
    assert plan.problems == ()


@pytest.mark.parametrize(("least", "ok"), [(0.0, True), (0.9, True), (0.91, False), (1.0, False)])
def test_min_restored_counts_selected_parameters(least, ok):
    live = inventory(
        value("model/body", shape=(30, 30)),
        value("model/head", shape=(100,)),
        value("model/frozen", shape=(1000,)),
        slot("model/body"),
    )
    stored = inventory(value("model/body", shape=(30, 30)))
    policy = Policy(min_restored=least, assert_="none", exclude=("model/frozen",))
    plan = make_plan(policy, stored, live)
    assert plan.ok == ok
    if not ok:
        assert "90.0% of the 1,000 selected" in plan.problems[0].message


def test_a_plan_as_json_has_plain_types_and_says_what_is_on_either_side():
    stored = inventory(value("model/a", dtype="float16", shape=(2, 3)))
    live = inventory(value("model/a", dtype="float32", shape=(2, 3)))
    document = make_plan(Policy(name="p", on_dtype_mismatch="cast"), stored, live).to_json()
    assert document["ok"] is True
    assert document["counts"] == {"CAST": 1}
    assert document["steps"] == [
        {
            "status": "CAST",
            "severity": "note",
            "name": "model/a",
            "source": "model/a",
            "role": "weight",
            "live": {"dtype": "float32", "shape": [2, 3], "nbytes": 24},
            "stored": {"dtype": "float16", "shape": [2, 3], "nbytes": 24},
            "reason": "float16 → float32",
            "hint": "",
            "target": "",
            "parts": [],
            "changes": [],
            "origin": "",
        }
    ]
