"""Plans of adapted values: shapes before and after, splits, joins, and why one cannot be."""

from __future__ import annotations

import pytest
from zoo.adapting import plan, value

from tfckpt.planning import Status


def one(rules, old, new, **more):
    """The step of the only value."""
    if not isinstance(rules, list):
        rules = [rules]
    rules = [{"model": "model/x", **rule} for rule in rules]
    made = plan(rules, [value("model/x", *old)], [value("model/x", *new)], **more)
    (step,) = made.steps
    return step


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


@pytest.mark.parametrize(
    ("rule", "old", "new", "reason"),
    [
        ({"how": "cast"}, ((2,), "float32"), ((2,), "int32"), "casting: same_kind"),
        ({"how": "cast", "casting": "safe"}, ((2,), "float64"), ((2,), "float32"), "safe"),
        ({"how": "cast", "casting": "any"}, ((2,), "string"), ((2,), "int32"),
         "does not convert string to int32"),
        ({"how": "transpose", "axes": [0, 0]}, ((2, 3),), ((3, 2),),
         "not a permutation of the 2 axes"),
        ({"how": "transpose", "axes": [0, 5]}, ((2, 3),), ((3, 2),), "no axis 5"),
        ({"how": "reshape"}, ((2, 3),), ((7,),), "(2, 3), 6 numbers, to (7)"),
        ({"how": "reshape", "shape": [4, -1]}, ((2, 3),), ((6,),), "(2, 3), 6 numbers"),
        ({"how": "slice"}, ((2, 3),), ((3, 3),), "is not within (2, 3)"),
        ({"how": "slice", "start": [1]}, ((2, 3),), ((1, 3),), "its start 1"),
        ({"how": "pad", "value": 0}, ((2, 3),), ((2, 2),), "does not fit into (2, 2)"),
        ({"how": "pad", "value": 0, "before": [1, 0]}, ((2, 3),), ((2, 3),), "does not fit"),
        ({"how": "pad", "value": 0.5}, ((2,), "int32"), ((3,), "int32"), "int32 cannot hold 0.5"),
        ({"how": "pad", "value": 300}, ((2,), "uint8"), ((3,), "uint8"), "cannot hold 300"),
        ({"how": "pad", "value": "glorot_unifrm"}, ((2,),), ((3,),), "no initializer"),
        ({"how": "pad", "value": "glorot_uniform"}, ((2,), "int8"), ((3,), "int8"),
         "floating-point"),
        ({"how": "pad", "value": "initialize"}, ((2,), "float16"), ((3,),), "initialize takes"),
        ({"how": "resize"}, ((1, 10, 5),), ((1, 17, 5),), "differ in 1 axes"),
        ({"how": "resize"}, ((2, 3), "int32"), ((4, 5), "int32"), "does not support int32"),
        ({"how": "resize", "grid": [3, 3]}, ((10, 5),), ((17, 5),), "make 9 positions"),
        ({"how": "resize", "grid": [3, 3]}, ((9, 5),), ((12, 5),), "cannot be inferred"),
        ({"how": "resize", "grid": [2, 3]}, ((6, 5),), ((16, 5),), "grid cannot be inferred"),
        ({"how": "resize", "grid": [2, 3], "to_grid": [2, 2]}, ((6, 5),), ((16, 5),),
         "not a grid of 2×2"),
        ({"how": "vocabulary", "old": "old", "new": "new"}, ((4, 5),), ((4, 5),), "has 3 words"),
        ({"how": "vocabulary", "old": "old", "new": "new"}, ((3, 5),), ((5, 5),), "has 4 words"),
        ({"how": "vocabulary", "old": "old", "new": "far"}, ((3, 5),), ((4, 5),), "no word of far"),
        ({"how": "vocabulary", "old": "old", "new": "new", "missing": "mean"}, ((3,), "int8"),
         ((4,), "int8"), "mean needs"),
        ({"how": "resize"}, ((0, 2),), ((4, 5),), "without elements"),
        ({"how": "tile"}, ((2,),), ((5,),), "not a multiple"),
        ({"how": "tile"}, ((3, 3),), ((5, 3, 3),), "cannot tile"),
        ({"how": "tile", "scale": "mean"}, ((2,), "int8"), ((4,), "int8"), "mean needs"),
        ({"how": "function", "name": "other"}, ((2,),), ((4,),), "registered as 'other'"),
        ({"how": "slice", "size": [2]}, ((4,),), ((3,),),
         "shape (2,) after slice, (3,) in the model"),
        ({"how": "slice"}, ((4,), "int8"), ((3,), "int16"), "int8 after slice, int16 in the model"),
        ({"how": "reshape"}, (None, ""), ((3,),), "not a tensor"),
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
