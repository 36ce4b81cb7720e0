"""What a plan says of adapted values: shapes before and after, and why one cannot be adapted."""

from __future__ import annotations

import pytest

from tfckpt.planning import Status, make_plan
from tfckpt.planning.reshaping import Known
from tfckpt.policy import Policy
from tfckpt.records import Entry, Inventory, Role

KNOWN = Known(
    {"old": ("a", "b", "c"), "new": ("c", "d", "a", "e"), "far": ("x", "y", "z", "w")},
    frozenset({"mine"}),
    frozenset({"glorot_uniform"}),
)


def value(name, shape, dtype="float32", **more):
    return Entry(name, more.pop("role", Role.WEIGHT), dtype, shape, 4, **more)


def slot(of, shape, kind="momentum"):
    name = f"optimizer/{kind}/{of.removeprefix('model/')}"
    return value(name, shape, role=Role.SLOT, slot=kind, of=of)


def inventory(*entries):
    return Inventory("here", {entry.name: entry for entry in entries})


def plan(rules, stored, live, **more):
    return make_plan(Policy(adapt=rules, **more), inventory(*stored), inventory(*live), KNOWN)


def one(rules, old, new, **more):
    """The step of the only value."""
    if not isinstance(rules, list):
        rules = [rules]
    rules = [{"model": "model/x", **rule} for rule in rules]
    made = plan(rules, [value("model/x", *old)], [value("model/x", *new)], **more)
    (step,) = made.steps
    return step


# --- what goes


@pytest.mark.parametrize(
    ("rule", "old", "new", "text"),
    [
        ({"how": "cast"}, ((2,), "float64"), ((2,), "float16"),
         "cast same_kind: float64 (2) → float16 (2)"),
        ({"how": "cast", "casting": "any"}, ((2,), "float32"), ((2,), "int8"),
         "cast any: float32 (2) → int8 (2)"),
        ({"how": "transpose"}, ((2, 3, 4),), ((4, 3, 2),), "transpose: (2, 3, 4) → (4, 3, 2)"),
        ({"how": "transpose", "axes": [1, 0, -1]}, ((2, 3, 4),), ((3, 2, 4),),
         "transpose [1, 0, 2]: (2, 3, 4) → (3, 2, 4)"),
        ({"how": "reshape"}, ((4, 6),), ((4, 2, 3),), "reshape: (4, 6) → (4, 2, 3)"),
        ({"how": "reshape", "shape": [-1, 12]}, ((4, 6),), ((2, 12),), "reshape: (4, 6) → (2, 12)"),
        ({"how": "slice"}, ((4, 6),), ((2, 6),), "slice [0:2, :]: (4, 6) → (2, 6)"),
        ({"how": "slice", "start": [1, 3]}, ((4, 6),), ((2, 3),),
         "slice [1:3, 3:6]: (4, 6) → (2, 3)"),
        ({"how": "pad", "value": 0}, ((4, 6),), ((5, 6),), "pad with 0: (4, 6) → (5, 6)"),
        ({"how": "pad", "value": "initialize", "before": [1, 0]}, ((4, 6),), ((5, 6),),
         "pad with initialize, at (1, 0): (4, 6) → (5, 6)"),
        ({"how": "pad", "value": "glorot_uniform"}, ((4, 6),), ((5, 6),),
         "pad with glorot_uniform: (4, 6) → (5, 6)"),
        ({"how": "resize", "method": "nearest"}, ((2, 2, 5),), ((3, 4, 5),),
         "resize nearest, axes [0, 1]: (2, 2, 5) → (3, 4, 5)"),
        ({"how": "resize", "axes": [0]}, ((9, 5),), ((16, 5),),
         "resize bilinear, axes [0]: (9, 5) → (16, 5)"),
        ({"how": "resize", "grid": [3, 3], "prefix": 1}, ((1, 10, 5),), ((1, 17, 5),),
         "resize bilinear, grid 3×3 → 4×4, 1 before it kept: (1, 10, 5) → (1, 17, 5)"),
        ({"how": "resize", "grid": [2, 3], "to_grid": [4, 3]}, ((6, 5),), ((12, 5),),
         "resize bilinear, grid 2×3 → 4×3: (6, 5) → (12, 5)"),
        ({"how": "resize", "grid": [4], "prefix": 2}, ((6, 5),), ((9, 5),),
         "resize bilinear, grid 4 → 7, 2 before it kept: (6, 5) → (9, 5)"),
        ({"how": "vocabulary", "old": "old", "new": "new"}, ((3, 5),), ((4, 5),),
         "vocabulary old → new, 2 of 4 words known, initialize for 2: (3, 5) → (4, 5)"),
        ({"how": "vocabulary", "old": "old", "new": "new", "missing": "mean", "axis": 1,
          "before": 1, "oov": 2}, ((5, 6),), ((5, 7),),
         "vocabulary old → new, 2 of 4 words known, mean for 2: (5, 6) → (5, 7)"),
        ({"how": "tile"}, ((3, 3, 1, 8),), ((3, 3, 3, 8),),
         "tile 1×1×3×1: (3, 3, 1, 8) → (3, 3, 3, 8)"),
        ({"how": "tile", "axis": 0, "scale": "mean"}, ((3, 3, 1, 8),), ((5, 3, 3, 1, 8),),
         "tile 5×1×1×1×1, mean: (3, 3, 1, 8) → (5, 3, 3, 1, 8)"),
        ({"how": "tile", "times": [2, 1]}, ((3, 4),), ((6, 4),), "tile 2×1: (3, 4) → (6, 4)"),
        ({"how": "function", "name": "mine"}, ((3, 4), "float64"), ((7,), "int8"),
         "function mine: float64 (3, 4) → int8 (7)"),
    ],
)  # fmt: skip
def test_an_adapted_value_says_its_shapes_before_and_after(rule, old, new, text) -> None:
    step = one(rule, old, new)
    assert (step.status, step.severity) == (Status.ADAPTED, "note")
    assert step.reason == text


def test_rules_make_a_pipeline_in_the_order_written() -> None:
    rules = [{"how": "transpose"}, {"how": "slice", "size": [4, 2]}, {"how": "reshape"}]
    step = one(rules, ((3, 4),), ((2, 4),))
    assert step.reason == (
        "transpose: (3, 4) → (4, 3); slice [:, 0:2]: (4, 3) → (4, 2); reshape: (4, 2) → (2, 4)"
    )
    assert one(rules[::-1], ((3, 4),), ((2, 4),)).status == Status.MISMATCH


def test_a_plan_as_json_has_every_operation() -> None:
    made = plan(
        [{"how": "concat", "checkpoint": ["model/q", "model/k"], "model": "model/qk", "axis": -1}],
        [value("model/q", (2, 3)), value("model/k", (2, 4))],
        [value("model/qk", (2, 7))],
    )
    (step,) = made.to_json()["steps"]
    assert (step["status"], step["name"], step["source"]) == ("ADAPTED", "model/qk", "model/q")
    assert step["parts"] == [
        {"source": "model/k", "dtype": "float32", "shape": [2, 4], "nbytes": 4}
    ]
    assert step["changes"] == [
        {
            "how": "concat",
            "detail": "axis 1",
            "before": [
                {"dtype": "float32", "shape": [2, 3]},
                {"dtype": "float32", "shape": [2, 4]},
            ],
            "after": [{"dtype": "float32", "shape": [2, 7]}],
        }
    ]
    assert made.nbytes == 8
    assert "model/qk ← model/q + model/k" in str(made)
    assert "concat axis 1: (2, 3) + (2, 4) → (2, 7)" in str(made)


def test_what_is_adapted_counts_as_restored() -> None:
    rule = {"how": "slice", "model": "model/x"}
    made = plan([rule], [value("model/x", (9,))], [value("model/x", (5,))], min_restored=1.0)
    assert made.ok
    assert [step.name for step in made.assignments] == ["model/x"]


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
    assert "'k/*' names, and it is absent" in step.reason


@pytest.mark.parametrize(
    ("rule", "live", "reason"),
    [
        (QKV, {"q": (4, 5), "k": (4, 5), "v": (4, 5)}, "sizes of 5 + 5 + 5 are not the 12"),
        (QKV, {"q": (4, 6), "k": (4, 6)}, "nothing here is model/a/v"),
        (QKV, {"q": (5, 5), "k": (4, 4), "v": (4, 4)}, "takes no whole part of (4, 12)"),
        ({**QKV, "sizes": [4, 4, 5]}, {"q": (4, 4), "k": (4, 4), "v": (4, 4)}, "4 + 4 + 5 are not"),
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
    [(((2, 3), (3, 3)), "(2, 3) and (3, 3) are not joined along axis 1"),
     (((2, 3), (2,)), "not joined")],
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


# --- what does not go


@pytest.mark.parametrize(
    ("rule", "old", "new", "reason"),
    [
        ({"how": "cast"}, ((2,), "float32"), ((2,), "int32"), "casting: same_kind"),
        ({"how": "cast", "casting": "safe"}, ((2,), "float64"), ((2,), "float32"), "safe"),
        ({"how": "cast", "casting": "any"}, ((2,), "string"), ((2,), "int32"), "string does not"),
        ({"how": "transpose", "axes": [0, 0]}, ((2, 3),), ((3, 2),), "no order of all 2 axes"),
        ({"how": "transpose", "axes": [0, 5]}, ((2, 3),), ((3, 2),), "no axis 5"),
        ({"how": "reshape"}, ((2, 3),), ((7,),), "has 6 numbers"),
        ({"how": "reshape", "shape": [4, -1]}, ((2, 3),), ((6,),), "has 6 numbers"),
        ({"how": "slice"}, ((2, 3),), ((3, 3),), "is not within (2, 3)"),
        ({"how": "slice", "start": [1]}, ((2, 3),), ((1, 3),), "its start 1"),
        ({"how": "pad", "value": 0}, ((2, 3),), ((2, 2),), "does not fit into (2, 2)"),
        ({"how": "pad", "value": 0, "before": [1, 0]}, ((2, 3),), ((2, 3),), "does not fit"),
        ({"how": "pad", "value": 0.5}, ((2,), "int32"), ((3,), "int32"), "int32 does not hold 0.5"),
        ({"how": "pad", "value": 300}, ((2,), "uint8"), ((3,), "uint8"), "does not hold 300"),
        ({"how": "pad", "value": "glorot_unifrm"}, ((2,),), ((3,),), "no initializer"),
        ({"how": "pad", "value": "glorot_uniform"}, ((2,), "int8"), ((3,), "int8"), "fractions"),
        ({"how": "pad", "value": "initialize"}, ((2,), "float16"), ((3,),), "initialize takes"),
        ({"how": "resize"}, ((1, 10, 5),), ((1, 17, 5),), "differ in 1 axes"),
        ({"how": "resize"}, ((2, 3), "int32"), ((4, 5), "int32"), "numbers with fractions"),
        ({"how": "resize", "grid": [3, 3]}, ((10, 5),), ((17, 5),), "are 9 positions"),
        ({"how": "resize", "grid": [3, 3]}, ((9, 5),), ((12, 5),), "no square"),
        ({"how": "resize", "grid": [2, 3]}, ((6, 5),), ((16, 5),), "old grid is none"),
        ({"how": "resize", "grid": [2, 3], "to_grid": [2, 2]}, ((6, 5),), ((16, 5),), "no grid"),
        ({"how": "vocabulary", "old": "old", "new": "new"}, ((4, 5),), ((4, 5),), "has 3 words"),
        ({"how": "vocabulary", "old": "old", "new": "new"}, ((3, 5),), ((5, 5),), "has 4 words"),
        ({"how": "vocabulary", "old": "old", "new": "far"}, ((3, 5),), ((4, 5),), "no word of far"),
        ({"how": "vocabulary", "old": "old", "new": "new", "missing": "mean"}, ((3,), "int8"),
         ((4,), "int8"), "mean divides"),
        ({"how": "tile"}, ((2,),), ((5,),), "no multiple"),
        ({"how": "tile"}, ((3, 3),), ((5, 3, 3),), "is not tiled"),
        ({"how": "tile", "scale": "mean"}, ((2,), "int8"), ((4,), "int8"), "mean divides"),
        ({"how": "function", "name": "other"}, ((2,),), ((4,),), "registered as 'other'"),
        ({"how": "slice", "size": [2]}, ((4,),), ((3,),), "shape (2,) after slice, (3,) here"),
        ({"how": "slice"}, ((4,), "int8"), ((3,), "int16"), "int8 after slice, int16 here"),
        ({"how": "reshape"}, (None, ""), ((3,),), "no tensor"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("action", ["error", "skip"])
def test_what_cannot_be_is_refused_with_its_reason(rule, old, new, reason, action) -> None:
    step = one(rule, old, new, on_shape_mismatch=action)
    assert (step.status, step.severity) == (Status.MISMATCH, "error")
    assert reason in step.reason
    assert step.hint


def test_a_position_embedding_wants_to_know_what_its_positions_are() -> None:
    step = one({"how": "resize"}, ((1, 196, 5),), ((1, 576, 5),))
    assert "`grid`" in step.hint
    assert "`axes`" in step.hint


def test_types_may_be_left_to_on_dtype_mismatch() -> None:
    step = one({"how": "slice"}, ((4,), "float16"), ((3,), "float32"), on_dtype_mismatch="cast")
    assert step.status == Status.ADAPTED
    assert "float16 → float32" in step.reason


# --- slots


@pytest.mark.parametrize("how", ["transpose", "reshape"])
def test_a_slot_is_not_adapted_along_even_where_its_shape_would_do(how) -> None:
    stored = live = [value("model/x", (3, 3)), slot("model/x", (3, 3))]
    made = plan([{"how": how, "model": "model/x"}], stored, live)
    (step,) = made.errors
    assert step.name == "optimizer/momentum/x"
    assert "its variable is adapted" in step.reason
    assert "slots: reset" in step.hint
    assert plan([{"how": how, "model": "model/x"}], stored, live, optimizer={"slots": "reset"}).ok
    both = [{"how": how, "model": "model/x"}, {"how": how, "model": "optimizer/*/x"}]
    assert plan(both, stored, live).ok


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
    assert all("all meant for model/x" in step.reason for step in made.errors)
