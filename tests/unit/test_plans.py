"""What becomes of each value, by what is stored, live, and asked: the cases of ``plans.yaml``.

And what needs another form: adapted values, values known by their order, what one side lacks.
"""

from __future__ import annotations

import math
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from zoo.entries import layer, sequence

import tfckpt
from tfckpt.core.inventory import LIST, Container, Entry, Inventory, Layer, Ordered, Role
from tfckpt.planning import Plan, make_plan, render_text, union_of
from tfckpt.policy import Policy
from tfckpt.policy.adapt import PlanContext

KNOWN = PlanContext(
    {"old": ("a", "b", "c"), "new": ("c", "d", "a", "e"), "far": ("x", "y", "z", "w")},
    ["mine"],
    ["glorot_uniform"],
)
TIED = {"model/tied": "model/a"}
# What a name begins with → role, dtype, shape.
ROLES = {
    r"\w+/iterations": (Role.ITERATIONS, "int64", ()),
    r"\w+/learning_rate": (Role.HYPERPARAMETER, "float32", ()),
    "optimizer/loss_scale/": (Role.SLOT, "float32", ()),
    "seed/": (Role.SEED, "uint32", (2,)),
    "metrics/": (Role.METRIC, "float32", ()),
    "save_counter|step|global_step|epoch": (Role.STATE, "int64", ()),
    "prior|temperature": (Role.STATE, "float32", (3,)),
    "iterator|data|batches": (Role.ITERATOR, "", None),
    "table": (Role.OBJECT, "", None),
    "": (Role.WEIGHT, "float32", (2,)),
}
CASES = [
    pytest.param({**case, **each}, id=f"{case['case']} {number}")
    for case in yaml.safe_load(Path(__file__).with_name("plans.yaml").read_text(encoding="utf-8"))
    for number, each in enumerate(case.pop("each", [{}]))
]


def entry(text: str) -> Entry:
    name, dtype, shape, variable = re.fullmatch(
        r"([^:(@]+)(?::(\w+))?(?:\(([\d,]*)\))?(?:@(.+))?", text
    ).groups()
    role, kind, sides = next(ROLES[start] for start in ROLES if re.match(start, name))
    if shape is not None:
        sides = tuple(int(side) for side in shape.split(",") if side)
    slot = re.fullmatch(r"\w+/(momentum|velocity|velocity_hat|moving_average)/(.+)", name)
    more = {"slot": slot[1], "of": variable or f"model/{slot[2]}"} if slot else {}
    role = Role.SLOT if slot else role
    return Entry(name, role, dtype or kind, sides, 4 * math.prod(sides or ()), **more)


def layers_of(text: str) -> dict[str, Container]:
    """Containers by path; a shape after a name is that of its kernel."""
    found = {}
    for path, begins, inner in re.findall(r"(\S+?)([\[<])(\S+)[\]>]", text):
        names = re.findall(r"[^,()]+(?:\([\d,]+\))?", inner)
        if begins == "[":
            held = sequence(*(layer(name.partition("(")[0]) for name in names))
        else:
            held = Container(LIST, tuple(Layer(str(n), x, given=True) for n, x in enumerate(names)))
        shapes = [name.partition("(")[2] for name in names]
        found[path.replace("#", "layer_with_weights-")] = held, shapes
    return found


def inventory(text: str, side: str, case: dict[str, Any]) -> Inventory:
    models = layers_of(text)
    words = [] if models else text.split()
    for path, (held, shapes) in models.items():
        for each, shape in zip(held.layers, shapes, strict=True):
            if f"{path}/{each.place}" not in models:
                words.append(f"{path}/{each.place}/kernel" + (f"({shape}" if shape else ""))
    kernels = [word for word in words if word.startswith("model/") and "slots" in case]
    words += [word.replace("model/", f"optimizer/{case['slots']}/", 1) for word in kernels]
    entries = {each.name: each for each in map(entry, words)}
    classes = dict(zip(("stored", "live"), case.get("classes", ()), strict=False))
    optimizers = {"optimizer": classes.get(side, "")} if "slots" in case or classes else {}
    if "optimizers" in case:
        counters = [name for name in entries if name.endswith("/iterations")]
        optimizers = {name.partition("/")[0]: case["optimizers"] for name in counters}
    return Inventory(
        side,
        entries,
        {path: held for path, (held, _) in models.items()},
        TIED if case.get("tied") == side else {},
        optimizers,
        complete=side == "stored" and case.get("complete", False),
    )


def planned(case: dict[str, Any]) -> Plan:
    live = inventory(case["live"], "live", case)
    if "sources" not in case:
        policy = Policy.model_validate({"name": "p", **case.get("policy", {})})
        return make_plan(policy, inventory(case["stored"], "stored", case), live, KNOWN)
    return union_of(
        [
            make_plan(Policy(name=f"of {source}", **policy), inventory(stored, source, case), live)
            for source, (stored, policy) in case["sources"].items()
        ]
    )


def said(plan: Plan) -> str:
    return " ".join(render_text(plan).split())


@pytest.mark.parametrize("case", CASES)
def test_a_case(case) -> None:
    plan = planned(case)
    text = render_text(plan)
    assert plan.ok == case.get("ok", True), text
    for name, expected in case.get("steps", {}).items():
        form = r"(\w+)(?: (error|warn|note|ok))?(?: < (\S+))?(?: from (\w+))?"
        status, severity, source, origin = re.fullmatch(form, expected).groups()
        named = [step for step in plan.steps if step.name == name]
        (step,) = named or [step for step in plan.steps if step.source == name]
        assert step.status == status, text
        assert severity in (None, step.severity), text
        assert source in (None, step.source), text
        assert origin in (None, step.origin), text
    if "gets" in case:
        assert {step.name: step.source for step in plan.assignments} == case["gets"]
    for name, sources in case.get("reads", {}).items():
        (step,) = (step for step in plan.assignments if step.name == name)
        assert [entry.name for entry in step.reads] == sources
    reasons = {step.reason for step in plan.steps}
    assert not [each for each in case.get("reasons", ()) if not any(each in r for r in reasons)]
    whole = " ".join([*text.split(), *(f"{s.reason} {s.hint}" for s in plan.steps)])
    whole += " ".join(f"{problem.message} {problem.hint}" for problem in plan.problems)
    assert not [each for each in case.get("says", ()) if each not in whole], text


# What one side lacks

MODEL = "model/a/kernel(3,2) model/a/bias model/b/kernel(2,2)"
SLOTS = " ".join(word.replace("model/", "optimizer/momentum/") for word in MODEL.split())
TRAINED = f"{MODEL} {SLOTS} optimizer/iterations optimizer/learning_rate"
ADDED = {
    "an optimizer": (TRAINED, MODEL),
    "a second optimizer": (
        f"{TRAINED} other/momentum/a/bias other/iterations other/learning_rate",
        TRAINED,
    ),
    "a loss scale": (f"{TRAINED} optimizer/loss_scale/dynamic_scale", TRAINED),
    "a rate": (TRAINED, TRAINED.removesuffix(" optimizer/learning_rate")),
    "a seed": (f"{MODEL} seed/drop", MODEL),
    "a counter": (f"{MODEL} step", MODEL),
    "a second counter": (f"{MODEL} step epoch", f"{MODEL} step"),
    "a position in data": (f"{MODEL} data", MODEL),
}


def two(stored: str, live: str, **policy: Any) -> Plan:
    case = {"optimizers": "adam", "complete": True, "policy": policy}
    return planned({"stored": stored, "live": live, **case})


@pytest.mark.parametrize("what", ADDED)
def test_what_only_one_side_has_is_left_and_said_or_refused_where_everything_is_asked(what):
    more, less = ADDED[what]
    names = {entry(word).name for word in {*more.split()} - {*less.split()}}
    for stored, live in ((more, less), (less, more)):
        plan = two(stored, live)
        assert plan.ok, render_text(plan)
        assert {step.name or step.source for step in plan.steps if step.severity == "note"} == names
        assert len(plan.assignments) == len(less.split())
        assert said(plan).count("only in the ") == 1
        warnings = tfckpt.RestoreReport(plan, "runs/ckpt-1").warnings
        assert warnings.startswith(f"{len(names)} value{'s' * (len(names) > 1)} only in the ")
        asked = {"on_missing": "error"} if stored is less else {"on_unexpected": "error"}
        assert not two(stored, live, **asked).ok
        assert not two(stored, live, assert_="consumed").ok


@pytest.mark.parametrize(
    "value",
    ["model/c/kernel", "model/c/vocabulary_size:int64()", "table", "prior", "temperature()"],
)
def test_what_a_model_computes_with_is_asked_for(value):
    assert not two(f"{MODEL} {value}", MODEL).ok
    assert not two(MODEL, f"{MODEL} {value}").ok


# Adapted values: rule, shape before and after, and what is said; some of terabytes

ADAPTED = """\
how: cast | float64(2) | float16(2) | cast same_kind: float64 (2) → float16 (2)
how: cast, casting: any | (N,N) | int8(N,N) | cast any: float32 (N, N) → int8 (N, N)
how: transpose | (2,N,N) | (N,N,2) | transpose: (2, N, N) → (N, N, 2)
how: transpose, axes: [1, 0, -1] | (2,3,4) | (3,2,4) | transpose [1, 0, 2]: (2, 3, 4) → (3, 2, 4)
how: reshape | (N,6) | (N,2,3) | reshape: (N, 6) → (N, 2, 3)
how: reshape, shape: [-1, 12] | (4,6) | (2,12) | reshape: (4, 6) → (2, 12)
how: slice | (N,6) | (2,6) | slice [0:2, :]: (N, 6) → (2, 6)
how: slice, start: [1, 3] | (4,6) | (2,3) | slice [1:3, 3:6]: (4, 6) → (2, 3)
how: pad, value: 0 | (9,N) | (N,N) | pad with 0: (9, N) → (N, N)
how: pad, value: initialize, before: [1, 0] | (4,N) | (5,N) | \
pad with initialize, at (1, 0): (4, N) → (5, N)
how: pad, value: glorot_uniform | (4,6) | (5,6) | pad with glorot_uniform: (4, 6) → (5, 6)
how: resize, method: nearest | (2,2,N) | (N,N,N) | \
resize nearest, axes [0, 1]: (2, 2, N) → (N, N, N)
how: resize, axes: [0] | (9,5) | (16,5) | resize bilinear, axes [0]: (9, 5) → (16, 5)
how: resize, grid: [3, 3], prefix: 1 | (N,10,N) | (N,17,N) | \
resize bilinear, grid 3×3 → 4×4, 1 before it kept: (N, 10, N) → (N, 17, N)
how: resize, grid: [2, 3], to_grid: [4, 3] | (6,5) | (12,5) | \
resize bilinear, grid 2×3 → 4×3: (6, 5) → (12, 5)
how: resize, grid: [4], prefix: 2 | (6,5) | (9,5) | \
resize bilinear, grid 4 → 7, 2 before it kept: (6, 5) → (9, 5)
how: vocabulary, old: old, new: new | (3,N,N) | (4,N,N) | \
vocabulary old → new, 2 of 4 words known, initialize for 2: (3, N, N) → (4, N, N)
how: vocabulary, old: old, new: new, missing: mean, axis: 1, before: 1, oov: 2 | (N,6) | (N,7) | \
vocabulary old → new, 2 of 4 words known, mean for 2: (N, 6) → (N, 7)
how: tile | (3,3,1,8) | (3,3,3,8) | tile 1×1×3×1: (3, 3, 1, 8) → (3, 3, 3, 8)
how: tile, axis: 0, scale: mean | (N,N) | (5,N,N) | tile 5×1×1, mean: (N, N) → (5, N, N)
how: tile, times: [2, 1] | (3,N) | (6,N) | tile 2×1: (3, N) → (6, N)
how: concat, checkpoint: [model/x, y], axis: 1 | (N,2) y(N,N) | (N,1000002) | \
concat axis 1: (N, 2) + (N, N) → (N, 1000002)
how: split, checkpoint: model/x, model: [model/x, y], axis: 0 | (8,N) | (6,N) y(2,N) | \
split [0:6, :]: (8, N) → (6, N)
how: function, name: mine | float64(3,4) | int8(N,N) | function mine: float64 (3, 4) → int8 (N, N)
""".replace("N", "1000000")
REFUSED = """\
how: cast | float32(2) | int32(2) | casting: same_kind
how: cast, casting: safe | float64(2) | float32(2) | safe
how: cast, casting: any | string(2) | int32(2) | does not convert string to int32
how: transpose, axes: [0, 0] | (2,3) | (3,2) | not a permutation of the 2 axes
how: transpose, axes: [0, 5] | (2,3) | (3,2) | no axis 5
how: reshape | (2,3) | (7) | (2, 3), 6 numbers, to (7)
how: reshape, shape: [4, -1] | (2,3) | (6) | (2, 3), 6 numbers
how: slice | (2,3) | (3,3) | is not within (2, 3)
how: slice, start: [1] | (2,3) | (1,3) | its start 1
how: slice, size: [2] | (4) | (3) | shape (2,) after slice, (3,) in the model
how: slice | int8(4) | int16(3) | int8 after slice, int16 in the model
how: pad, value: 0 | (2,3) | (2,2) | does not fit into (2, 2)
how: pad, value: 0, before: [1, 0] | (2,3) | (2,3) | does not fit
how: pad, value: 0.5 | int32(2) | int32(3) | int32 cannot hold 0.5
how: pad, value: 300 | uint8(2) | uint8(3) | cannot hold 300
how: pad, value: glorot_unifrm | (2) | (3) | no initializer
how: pad, value: glorot_uniform | int8(2) | int8(3) | floating-point
how: pad, value: initialize | float16(2) | (3) | initialize takes
how: resize | (1,10,5) | (1,17,5) | differ in 1 axes
how: resize | int32(2,3) | int32(4,5) | does not support int32
how: resize | (0,2) | (4,5) | without elements
how: resize, grid: [3, 3] | (10,5) | (17,5) | make 9 positions
how: resize, grid: [3, 3] | (9,5) | (12,5) | cannot be inferred
how: resize, grid: [2, 3] | (6,5) | (16,5) | grid cannot be inferred
how: resize, grid: [2, 3], to_grid: [2, 2] | (6,5) | (16,5) | not a grid of 2×2
how: vocabulary, old: old, new: new | (4,5) | (4,5) | has 3 words
how: vocabulary, old: old, new: new | (3,5) | (5,5) | has 4 words
how: vocabulary, old: old, new: far | (3,5) | (4,5) | no word of far
how: vocabulary, old: old, new: new, missing: mean | int8(3) | int8(4) | mean needs
how: tile | (2) | (5) | not a multiple
how: tile | (3,3) | (5,3,3) | cannot tile
how: tile, scale: mean | int8(2) | int8(4) | mean needs
how: function, name: other | (2) | (4) | registered as 'other'
"""


def adapted(line: str, **policy: Any) -> tuple[Any, str]:
    """The step of the only value, and what is to be said of it."""
    rule, *sides, text = line.split(" | ")
    stored, live = (f"model/x{'' if side[0] == '(' else ':'}{side}" for side in sides)
    rules = [{"model": "model/x", **yaml.safe_load(f"{{{rule}}}")}]
    step, *_ = planned({"stored": stored, "live": live, "policy": {"adapt": rules, **policy}}).steps
    return step, text


@pytest.mark.parametrize("line", ADAPTED.splitlines())
def test_an_adapted_value_says_its_shapes_and_takes_no_memory_in_a_plan(line) -> None:
    tracemalloc.start()
    step, text = adapted(line)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (step.status, step.severity, step.reason) == ("ADAPTED", "note", text)
    assert peak < 20 << 20


@pytest.mark.parametrize("line", REFUSED.splitlines())
def test_what_cannot_be_is_refused_with_its_reason(line) -> None:
    for action in ("error", "skip"):
        step, text = adapted(line, on_shape_mismatch=action)
        assert (step.status, step.severity) == ("MISMATCH", "error")
        assert text in step.reason
        assert step.hint


def test_a_position_embedding_wants_to_know_what_its_positions_are() -> None:
    step, _ = adapted("how: resize | (1,196,5) | (1,576,5) | ")
    assert "`grid`" in step.hint
    assert "`axes`" in step.hint


def test_a_plan_as_json_has_every_operation_and_every_source() -> None:
    names = ["model/q", "model/k"]
    rule = {"how": "concat", "checkpoint": names, "model": "model/qk", "axis": -1}
    sides = {"stored": "model/q(2,3) model/k(2,4)", "live": "model/qk(2,7)"}
    made = planned({**sides, "policy": {"adapt": [rule]}})
    (step,) = made.to_json()["steps"]
    assert (step["status"], step["name"], step["source"]) == ("ADAPTED", "model/qk", "model/q")
    assert step["parts"] == [
        {"source": "model/k", "dtype": "float32", "shape": [2, 4], "nbytes": 32}
    ]
    before = [{"dtype": "float32", "shape": [2, width]} for width in (3, 4)]
    after = [{"dtype": "float32", "shape": [2, 7]}]
    assert step["changes"] == [
        {"how": "concat", "detail": "axis 1", "before": before, "after": after}
    ]
    assert made.nbytes == 56
    assert "model/qk ← model/q + model/k" in str(made)
    sources = {"a": ["model/b", {}], "b": ["model/c", {}]}
    steps = planned({"live": "model/b model/c", "sources": sources}).to_json()["steps"]
    assert [(step["name"], step["origin"]) for step in steps] == [
        ("model/b", "a"),
        ("model/c", "b"),
    ]


# Values that a file knows by their place in a layer: stored, live; a name has its shape, and for
# values of the layers in the layer the path there

ORDERS = {
    "by place": ("vars/0(2,3) vars/1(3)", "kernel(2,3) bias(3)", True),
    "one more": ("vars/0(2,3) vars/1(3)", "kernel(2,3) bias(3) gate(3)", False),
    "one less": ("vars/0(2,3) vars/1(3)", "kernel(2,3)", False),
    "another order": ("vars/0(2,3) vars/1(3)", "bias(3) kernel(2,3)", False),
    "one moved": ("vars/0(2,3) vars/1(3)", "kernel(3) bias(4)", False),
    "the other moved": ("vars/0(2,3) vars/1(3)", "kernel(2,5) bias(2,3)", False),
    "a name that speaks of another place": ("gamma(3) beta(3)", "beta(3) gamma(3)", False),
    "scopes": (
        "f/k@both/forward_lstm/cell/k b/k@both_3/backward_lstm/cell_7/k",
        "fl/k@both/forward_lstm/cell/k bl/k@both_3/backward_lstm/cell_7/k",
        True,
    ),
    "numbered layers as they stand": ("d/k@d/k d_1/k@d_1/k", "d/k@d/k d_1/k@d_1/k", True),
    "numbered layers in another order": ("d_1/k@d_1/k d/k@d/k", "d/k@d/k d_1/k@d_1/k", False),
}
# Keras 2 writes the layers last that are frozen; their numbers give them away.
COUNTED = [
    ("dense_4 dense_5 dense_6", "dense dense_1 dense_2", True),
    ("dense_5 dense_6 dense_4", "dense dense_1 dense_2", False),
    ("dense_5 dense_4 dense_6", "dense_8 dense_7 dense_9", True),
    ("dense_9 dense_10 dense_11", "one two three", True),
    ("dense_10 dense_11 dense_9", "one two three", False),
]
for there, here, goes in COUNTED:
    stored = " ".join(f"{name}/k@a/{name}/k" for name in there.split())
    names = zip("xyz", here.split(), strict=True)
    live = " ".join(f"{called}/k@a/{name}/k" for called, name in names)
    ORDERS[f"{there} → {here}"] = (stored, live, goes)


def in_order(text: str, layer: str = "model/a") -> Inventory:
    """One layer's values in order: its own, or, with their paths, those of layers in it, too."""
    values = [entry(f"{layer}/{word.partition('@')[0]}") for word in text.split()]
    paths = [word.partition("@")[2] for word in text.split()]
    order = tuple(Ordered(v.name, path) for v, path in zip(values, paths, strict=True))
    kept = "deep_orders" if any(paths) else "own_orders"
    return Inventory("there", {v.name: v for v in values}, **{kept: {layer: order}})


def pairs(stored: Inventory, live: Inventory, **policy: Any) -> dict[str, str]:
    plan = make_plan(Policy(**policy), stored, live)
    assert plan.ok == (len(plan.assignments) == len(live.entries)), str(plan)
    return {step.name: step.source for step in plan.assignments}


@pytest.mark.parametrize("case", ORDERS)
def test_values_known_by_their_place_go_there_or_are_refused(case) -> None:
    stored, live = map(in_order, ORDERS[case][:2])
    expected = dict(zip(live.entries, stored.entries, strict=True)) if ORDERS[case][2] else {}
    assert pairs(stored, live) == expected
    if "kernel" in ORDERS[case][1] and not expected:
        skipped = make_plan(Policy(on_shape_mismatch="skip"), stored, live)
        assert {step.status.value for step in skipped.steps} == {"SUSPECT", "UNEXPECTED"}


def test_a_rule_may_name_the_layer_or_the_value() -> None:
    stored, live = in_order("vars/0(2,3) vars/1(3)"), in_order("kernel(2,3) bias(3)", "model/b")
    expected = dict(zip(live.entries, stored.entries, strict=True))
    each = [{"checkpoint": old, "model": new} for new, old in expected.items()]
    for rules in ([{"checkpoint": "model/a/**", "model": "model/b/**"}], each):
        assert pairs(stored, live, rename=rules) == expected
