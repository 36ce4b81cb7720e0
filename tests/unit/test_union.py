"""The plans of several sources as one: who provides what, what is missing, and who is at fault."""

from __future__ import annotations

from typing import Any

import pytest

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.errors import PolicyError
from tfckpt.planning import Plan, Severity, Status, make_plan, union_of
from tfckpt.policy import Policy, load_policy

BODY, HEAD, SLOT = "model/body/kernel", "model/head/kernel", "optimizer/momentum/body/kernel"


def value(name: str, shape: tuple[int, ...] = (2,)) -> Entry:
    if name == SLOT:
        return Entry(name, Role.SLOT, "float32", shape, 8, slot="momentum", of=BODY)
    return Entry(name, Role.WEIGHT, "float32", shape, 8)


def inventory(source: str, *entries: Entry) -> Inventory:
    return Inventory(source, {entry.name: entry for entry in entries})


LIVE = inventory("here", value(BODY), value(HEAD))
WHOLE = value(BODY), value(HEAD)


def plan(source: str, *entries: Entry, live: Inventory = LIVE, **policy: Any) -> Plan:
    return make_plan(Policy(name=f"of {source}", **policy), inventory(source, *entries), live)


def found(united: Plan) -> dict[tuple[str, str], str]:
    """Live name and source → status, of the steps that a live value has."""
    return {(step.name, step.origin): step.status.value for step in united.steps if step.name != ""}


def test_each_value_comes_from_the_source_that_provides_it() -> None:
    united = union_of(
        [plan("a", *WHOLE, include=["model/body/**"]), plan("b", *WHOLE, exclude=["model/body/**"])]
    )
    assert united.ok
    assert found(united) == {(BODY, "a"): "LOADED", (HEAD, "b"): "LOADED"}
    left = {(step.source, step.origin): step.status for step in united.steps if not step.name}
    assert left == {(HEAD, "a"): Status.EXCLUDED, (BODY, "b"): Status.EXCLUDED}
    assert united.source == "a, b"
    assert united.policy == "of a, of b"


def test_two_sources_for_one_value_are_an_error_that_names_both() -> None:
    united = union_of([plan("a", *WHOLE), plan("b", value(HEAD), include=["model/head/**"])])
    (error,) = united.errors
    assert (error.name, error.status) == (HEAD, Status.MISMATCH)
    assert error.reason == "a (policy 'of a') and b (policy 'of b') would both restore it"
    assert "exclude it" in error.hint
    assert [step.name for step in united.assignments] == [BODY]


def test_a_value_that_one_restores_and_another_resets_is_an_error() -> None:
    live = inventory("here", value(BODY), value(SLOT))
    united = union_of(
        [
            plan("a", value(BODY), value(SLOT), live=live),
            plan("b", value(HEAD), live=live, optimizer={"slots": "reset"}, expect_partial=True),
        ]
    )
    (error,) = united.errors
    assert error.name == SLOT
    assert (
        error.reason == "a (policy 'of a') would restore it, and b (policy 'of b') would reset it"
    )


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [
        ({}, {"on_missing": "ignore"}, Severity.ERROR),
        ({"on_missing": "ignore"}, {"on_missing": "warn"}, Severity.WARN),
        ({"on_missing": "ignore"}, {"on_missing": "ignore"}, Severity.NOTE),
        ({"exclude": ["model/head/**"]}, {"on_missing": "warn"}, Severity.WARN),
    ],
)
def test_what_nobody_provides_is_missing_as_the_strictest_has_it(first, second, severity) -> None:
    other = inventory("here", value(BODY), value(HEAD), value("model/other"))
    united = union_of(
        [
            plan("a", value(BODY), live=other, **first),
            plan("b", value("model/other"), live=other, **second),
        ]
    )
    (head,) = [step for step in united.steps if step.name == HEAD]
    assert (head.status, head.severity) == (Status.MISSING, severity)
    assert [step.name for step in united.assignments] == [BODY, "model/other"]


def test_what_no_policy_selects_is_left_alone() -> None:
    only = {"include": ["model/body/**"]}
    united = union_of([plan("a", *WHOLE, **only), plan("b", *WHOLE, exclude=["model/**"])])
    assert found(united)[HEAD, "a"] == "EXCLUDED"


def test_a_fault_of_one_source_is_not_mended_by_another() -> None:
    united = union_of([plan("a", value(BODY, (3,)), value(HEAD)), plan("b", value(BODY))])
    (error,) = united.errors
    assert (error.name, error.origin, error.status) == (BODY, "a", Status.MISMATCH)
    assert "shape (3,)" in error.reason
    assert [step.name for step in united.assignments] == [HEAD]


def test_what_one_source_skips_another_may_provide() -> None:
    skipping = {"on_shape_mismatch": "skip", "on_missing": "ignore"}
    wide = value(HEAD, (3,))
    united = union_of(
        [plan("a", value(BODY), wide, **skipping), plan("b", value(HEAD), **skipping)]
    )
    assert united.ok
    assert found(united) == {(BODY, "a"): "LOADED", (HEAD, "b"): "LOADED"}


def test_left_over_values_and_idle_rules_are_judged_for_each_source() -> None:
    united = union_of(
        [
            plan("a", value(BODY), value("model/old")),
            plan("b", value(HEAD), exclude_checkpoint=["model/hed/**"]),
        ]
    )
    (left,) = united.errors
    assert (left.source, left.origin, left.status) == ("model/old", "a", Status.UNEXPECTED)
    (problem,) = united.problems
    assert problem.message == "b: exclude_checkpoint: 'model/hed/**' matches nothing"


def test_a_source_that_provides_nothing_is_an_error() -> None:
    united = union_of([plan("a", *WHOLE), plan("b", value("x"), exclude=["**"])])
    assert [problem.message for problem in united.problems] == ["no value would be restored from b"]


def test_policies_of_two_files_keep_their_places(tmp_path) -> None:
    policies = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.yaml"
        path.write_text("allow_empty: true\nexclude:\n  - 'nothing/*'\n", encoding="utf-8")
        policies.append(load_policy(path))
    plans = [make_plan(policy, inventory("a", *WHOLE), LIVE) for policy in policies]
    messages = [problem.message for problem in union_of(plans).problems]
    assert messages == [
        f"{tmp_path}/{name}.yaml:3:5: a: exclude: 'nothing/*' matches nothing"
        for name in ("one", "two")
    ]
    assert f"{tmp_path}/two.yaml:3:5" in str(union_of(plans))


def test_the_report_and_the_json_say_which_value_came_from_where() -> None:
    united = union_of(
        [plan("zoo/a", *WHOLE, include=["model/body/**"]), plan("zoo/b", *WHOLE, exclude=[BODY])]
    )
    assert "LOADED  1 value from zoo/a" in str(united)
    assert "LOADED  1 value from zoo/b" in str(united)
    origins = {step["name"]: step["origin"] for step in united.to_json()["steps"] if step["name"]}
    assert origins == {BODY: "zoo/a", HEAD: "zoo/b"}


def test_a_policy_with_training_state_is_refused_where_a_training_begins() -> None:
    from tfckpt.policy import Config

    policies = {"resume": {"training_state": ["epoch"]}}
    for source in ({"all_of": [{"path": "a", "policy": "resume"}] * 2}, {"average": ["a", "b"]}):
        given = {"policy": "resume", **source} if "average" in source else source
        with pytest.raises(PolicyError, match="policy `resume` has `training_state`"):
            Config(version=1, policies=policies, restore=given)
