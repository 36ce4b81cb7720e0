"""The cases of ``plans.yaml``: what becomes of each value, by what is stored, live, and asked."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from zoo.adapting import KNOWN
from zoo.entries import layer, sequence

from tfckpt.core.inventory import LIST, Container, Entry, Inventory, Layer, Role
from tfckpt.planning import make_plan, render_text
from tfckpt.policy import Policy

TIED = {"model/tied": "model/a"}
# The beginning of a name → role, dtype, shape.
ROLES = {
    "optimizer/iterations": (Role.ITERATIONS, "int64", ()),
    "optimizer/learning_rate": (Role.HYPERPARAMETER, "float32", ()),
    "seed/": (Role.SEED, "uint32", (2,)),
    "metrics/": (Role.METRIC, "float32", ()),
    "save_counter": (Role.STATE, "int64", ()),
    "iterator": (Role.ITERATOR, "", None),
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
    role, kind, sides = next(ROLES[start] for start in ROLES if name.startswith(start))
    if shape is not None:
        sides = tuple(int(side) for side in shape.split(",") if side)
    slot = re.fullmatch(r"\w+/(momentum|velocity|moving_average)/(.+)", name)
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
    return Inventory(
        side,
        entries,
        {path: held for path, (held, _) in models.items()},
        TIED if case.get("tied") == side else {},
        {"optimizer": classes.get(side, "")} if "slots" in case or classes else {},
        complete=side == "stored" and case.get("complete", False),
    )


@pytest.mark.parametrize("case", CASES)
def test_a_case(case) -> None:
    policy = Policy.model_validate({"name": "p", **case.get("policy", {})})
    plan = make_plan(
        policy, *(inventory(case[each], each, case) for each in ("stored", "live")), KNOWN
    )
    text = render_text(plan)
    assert plan.ok == case.get("ok", True), text
    for name, expected in case.get("steps", {}).items():
        status, _, source = expected.partition(" < ")
        status, _, severity = status.partition(" ")
        named = [step for step in plan.steps if step.name == name]
        (step,) = named or [step for step in plan.steps if step.source == name]
        assert step.status == status, text
        assert not severity or step.severity == severity, text
        assert not source or step.source == source, text
    if "gets" in case:
        assert {step.name: step.source for step in plan.assignments} == case["gets"]
    for name, sources in case.get("reads", {}).items():
        (step,) = (step for step in plan.assignments if step.name == name)
        assert [entry.name for entry in step.reads] == sources
    reasons = {step.reason for step in plan.steps}
    assert not [each for each in case.get("reasons", ()) if not any(each in r for r in reasons)]
    said = " ".join([*text.split(), *(f"{s.reason} {s.hint}" for s in plan.steps)])
    said += " ".join(f"{problem.message} {problem.hint}" for problem in plan.problems)
    assert not [each for each in case.get("says", ()) if each not in said], text
