"""Plans of values that are split and joined, of slots, and of rules that meet nothing."""

from __future__ import annotations

import pytest
from zoo.adapting import inventory, plan, slot, value

from tfckpt.core.inventory import Role
from tfckpt.planning import Status, make_plan
from tfckpt.policy import Policy

# --- split and concat

QKV = {
    "how": "split",
    "checkpoint": "model/*/qkv",
    "model": ["model/*/q", "model/*/k", "model/*/v"],
    "axis": 1,
}


def test_a_fused_value_is_split_for_each_of_its_parts() -> None:
    live = [
        value(f"model/{b}/{n}", (4, s)) for b in "ab" for n, s in (("q", 4), ("k", 2), ("v", 2))
    ]
    made = plan([QKV], [value("model/a/qkv", (4, 8)), value("model/b/qkv", (4, 8))], live)
    assert made.ok
    assert {step.name: step.reason for step in made.steps if "/a/" in step.name} == {
        "model/a/q": "split [:, 0:4]: (4, 8) → (4, 4)",
        "model/a/k": "split [:, 4:6]: (4, 8) → (4, 2)",
        "model/a/v": "split [:, 6:8]: (4, 8) → (4, 2)",
    }


def test_heads_are_reshaped_after_the_split_and_the_sizes_are_found_all_the_same() -> None:
    reshape = {"how": "reshape", "model": "model/a/?"}
    live = [value(f"model/a/{name}", (4, 2, 2)) for name in "qkv"]
    made = plan([QKV, reshape], [value("model/a/qkv", (4, 12))], live)
    assert made.ok
    assert {step.reason for step in made.steps} >= {
        "split [:, 4:8]: (4, 12) → (4, 4); reshape: (4, 4) → (4, 2, 2)"
    }


def test_what_stands_before_a_split_is_done_to_the_whole() -> None:
    transpose = {"how": "transpose", "model": "model/a/?"}
    live = [value(f"model/a/{name}", (4, 4)) for name in "qkv"]
    assert plan([transpose, QKV], [value("model/a/qkv", (12, 4))], live).ok


def test_what_stands_before_a_concat_is_done_to_each() -> None:
    rules = [
        {"how": "reshape", "model": "model/qkv", "shape": [4, -1]},
        {"how": "concat", "checkpoint": ["model/q", "model/k"], "model": "model/qkv", "axis": 1},
    ]
    stored = [value("model/q", (4, 2, 3)), value("model/k", (4, 1, 3))]
    made = plan(rules, stored, [value("model/qkv", (4, 9))])
    assert made.ok
    assert made.steps[0].reason == (
        "reshape: (4, 2, 3) + (4, 1, 3) → (4, 6) + (4, 3); concat axis 1: (4, 6) + (4, 3) → (4, 9)"
    )


def test_a_split_comes_before_a_rename_that_is_wider() -> None:
    rename = [{"checkpoint": "model/**", "model": "model/**"}]
    live = [value(f"model/a/{name}", (4, 4)) for name in "qkv"] + [value("model/b", (1,))]
    stored = [value("model/a/qkv", (4, 12)), value("model/b", (1,))]
    assert plan([QKV], stored, live, rename=rename).ok


def test_a_joined_value_that_lacks_a_part_is_refused() -> None:
    rule = {"how": "concat", "checkpoint": ["q/*", "k/*"], "model": "model/*", "axis": 0}
    made = plan([rule], [value("q/a", (2,)), value("q/b", (2,)), value("k/a", (2,))],
                [value("model/a", (4,)), value("model/b", (4,))])  # fmt: skip
    (step,) = made.errors
    assert step.name == "model/b"
    assert "needs 'k/*', which is missing" in step.reason


@pytest.mark.parametrize(
    ("rule", "live", "reason"),
    [
        (QKV, {"q": (4, 5), "k": (4, 5), "v": (4, 5)}, "sizes 5 + 5 + 5 do not add up to 12"),
        (QKV, {"q": (4, 6), "k": (4, 6)}, "the model has no model/a/v"),
        (QKV, {"q": (5, 5), "k": (4, 4), "v": (4, 4)}, "(4, 12) cannot be split"),
        ({**QKV, "sizes": [4, 4, 5]}, {"q": (4, 4), "k": (4, 4), "v": (4, 4)}, "4 + 4 + 5 do"),
        ({**QKV, "axis": 2}, {"q": (4, 4), "k": (4, 4), "v": (4, 4)}, "has no axis 2"),
    ],
)
def test_a_split_that_cannot_be(rule, live, reason) -> None:
    made = plan([rule], [value("model/a/qkv", (4, 12))],
                [value(f"model/a/{name}", shape) for name, shape in live.items()])  # fmt: skip
    assert any(reason in step.reason for step in made.errors)
    assert not any(step.status == Status.ADAPTED for step in made.steps if step.name == "model/a/q")


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [(((2, 3), (3, 3)), "cannot concatenate (2, 3) and (3, 3) along axis 1"),
     (((2, 3), (2,)), "cannot concatenate")],
)  # fmt: skip
def test_values_that_are_not_joined(shapes, reason) -> None:
    rule = {"how": "concat", "checkpoint": ["model/q", "model/k"], "model": "model/x", "axis": 1}
    stored = [value("model/q", shapes[0]), value("model/k", shapes[1])]
    made = plan([rule], stored, [value("model/x", (2, 6))])
    assert reason in made.errors[0].reason
    assert len(made.errors) == 1


def test_a_function_may_take_several_values() -> None:
    rule = {"how": "function", "name": "mine", "checkpoint": ["a/*", "b/*"], "model": "model/*"}
    made = plan([rule], [value("a/x", (2,)), value("b/x", (3,))], [value("model/x", (7, 7))])
    assert made.ok
    assert [entry.name for entry in made.steps[0].reads] == ["a/x", "b/x"]


# --- slots


@pytest.mark.parametrize("how", ["transpose", "function"])
def test_a_slot_is_not_adapted_along_even_where_its_shape_would_do(how) -> None:
    stored = live = [value("model/x", (3, 3)), slot("model/x", (3, 3))]
    rule = {"how": how, "model": "model/x"} | ({"name": "mine"} if how == "function" else {})
    made = plan([rule], stored, live)
    (step,) = made.errors
    assert step.name == "optimizer/momentum/x"
    assert "its variable is adapted" in step.reason
    assert "slots: reset" in step.hint
    assert plan([rule], stored, live, optimizer={"slots": "reset"}).ok
    assert plan([rule, {**rule, "model": "optimizer/*/x"}], stored, live).ok


def test_slots_of_a_split_value_are_split_by_a_rule_of_their_own() -> None:
    stored = [value("model/a/qkv", (2, 6)), slot("model/a/qkv", (2, 6))]
    live = [value(f"model/a/{name}", (2, 2)) for name in "qkv"]
    live += [slot(f"model/a/{name}", (2, 2)) for name in "qkv"]
    made = plan([QKV], stored, live)
    assert [step.name for step in made.errors] == [
        "optimizer/momentum/a/k",
        "optimizer/momentum/a/q",
        "optimizer/momentum/a/v",
    ]
    again = {**QKV, "checkpoint": "optimizer/*/a/qkv",
             "model": [f"optimizer/*/a/{name}" for name in "qkv"]}  # fmt: skip
    assert plan([QKV, again], stored, live).ok


def test_slots_of_joined_values_are_one_refusal_with_the_same_advice() -> None:
    rule = {"how": "concat", "checkpoint": ["model/q", "model/k"], "model": "model/x", "axis": 0}
    stored = [value("model/q", (2,)), value("model/k", (2,))]
    stored += [slot("model/q", (2,)), slot("model/k", (2,))]
    live = [value("model/x", (4,)), slot("model/x", (4,))]
    (step,) = plan([rule], stored, live).errors
    assert step.name == "optimizer/momentum/x"
    assert "slots: reset" in step.hint


def test_a_cast_variable_leaves_its_slots_alone() -> None:
    stored = [value("model/x", (3,), "float64"), slot("model/x", (3,))]
    live = [value("model/x", (3,)), slot("model/x", (3,))]
    assert plan([{"how": "cast", "model": "model/x"}], stored, live).ok


# --- rules that meet nothing


def test_rules_that_match_nothing_are_problems_with_suggestions() -> None:
    rules = [
        {"how": "transpose", "model": "model/embd"},
        {"how": "split", "checkpoint": "model/fuse", "model": ["model/a", "model/b"], "axis": 0},
    ]
    entries = [value("model/embed", (3,)), value("model/fused", (3,))]
    made = plan(rules, entries, entries)
    assert sorted((problem.message, problem.hint) for problem in made.problems) == [
        ("adapt: 'model/embd' matches nothing", "did you mean 'model/embed'?"),
        ("adapt: 'model/fuse' matches nothing in the checkpoint", "did you mean 'model/fused'?"),
    ]


def test_a_value_goes_to_each_rule_that_joins_it_with_others() -> None:
    rules = [
        {"how": "function", "name": "mine", "checkpoint": ["k", "g"], "model": "model/k"},
        {"how": "function", "name": "mine", "checkpoint": ["b", "g"], "model": "model/b"},
    ]
    stored = [value(name, (2,)) for name in ("k", "b", "g")]
    live = [value("model/k", (2,)), value("model/b", (2,))]
    made = plan(rules, stored, live)
    assert made.ok
    assert [[e.name for e in step.reads] for step in made.steps] == [["b", "g"], ["k", "g"]]


def test_two_rules_that_make_one_value_clash() -> None:
    rules = [
        {"how": "concat", "checkpoint": ["a", "b"], "model": "model/x", "axis": 0},
        {"how": "function", "name": "mine", "checkpoint": ["a"], "model": "model/x"},
    ]
    made = plan(rules, [value("a", (2,)), value("b", (2,))], [value("model/x", (4,))])
    assert not made.ok
    assert all("map to model/x" in step.reason for step in made.errors)


@pytest.mark.parametrize("how", ["cast", "reshape", "slice", "tile"])
def test_a_rule_for_all_leaves_what_fits_as_it_is(how) -> None:
    rules = [{"how": how, "model": "**"}]
    fits = [value("model/x", (3, 3)), slot("model/x", (3, 3)), value("name", (), "string")]
    made = plan(rules, fits, fits)
    assert made.ok
    assert {step.status.value for step in made.steps} == {"LOADED"}


def test_a_cast_for_all_is_none_of_an_iterator() -> None:
    entries = [value("model/x", (3,)), value("iterator", None, "", role=Role.ITERATOR)]
    live = [value("model/x", (3,), "float64"), entries[1]]
    made = plan([{"how": "cast", "model": "**"}], entries, live)
    assert made.ok
    assert [step.status.value for step in made.steps] == ["LOADED", "ADAPTED"]


def test_a_cast_of_a_slot_does_not_adapt_it() -> None:
    stored = live = [value("model/x", (3, 3)), slot("model/x", (3, 3))]
    rules = [{"how": "cast", "model": "**"}, {"how": "transpose", "model": "model/x"}]
    (step,) = plan(rules, stored, live).errors
    assert "its variable is adapted (transpose: model/x), but this slot is not" in step.reason


def test_a_value_of_another_shape_is_told_of_adapt() -> None:
    made = make_plan(Policy(), inventory(value("x", (3,))), inventory(value("x", (4,))))
    assert "`adapt`" in made.errors[0].hint


def test_values_of_different_types_are_made_equal_before_they_are_joined() -> None:
    rules = [{"how": "concat", "checkpoint": ["a", "b"], "model": "x", "axis": 0}]
    stored = [value("a", (2,)), value("b", (2,), "float16")]
    (step,) = plan(rules, stored, [value("x", (4,))]).errors
    assert "cannot concatenate float32 and float16" in step.reason
    assert "how: cast" in step.hint
    assert plan([{"how": "cast", "model": "x"}, *rules], stored, [value("x", (4,))]).ok


def test_moving_averages_are_joined_in_place_of_their_weights() -> None:
    stored = [value("model/a", (2,)), value("model/b", (2,))]
    stored += [slot(entry.name, (2,), kind="moving_average") for entry in stored]
    rule = {"how": "concat", "checkpoint": ["model/a", "model/b"], "model": "model/x", "axis": 0}
    made = plan([rule], stored, [value("model/x", (4,))], ema="prefer")
    (step,) = made.assignments
    assert [entry.name for entry in step.reads] == [
        "optimizer/moving_average/a",
        "optimizer/moving_average/b",
    ]
