"""Values and plans for the tests of ``adapt``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.planning import make_plan
from tfckpt.policy import Policy
from tfckpt.policy.adapt import PlanContext

if TYPE_CHECKING:
    from tfckpt.planning import Plan

KNOWN = PlanContext(
    {"old": ("a", "b", "c"), "new": ("c", "d", "a", "e"), "far": ("x", "y", "z", "w")},
    frozenset({"mine"}),
    frozenset({"glorot_uniform"}),
)


def value(name: str, shape: Any, dtype: str = "float32", **more: Any) -> Entry:
    return Entry(name, more.pop("role", Role.WEIGHT), dtype, shape, 4, **more)


def slot(of: str, shape: Any, kind: str = "momentum") -> Entry:
    name = f"optimizer/{kind}/{of.removeprefix('model/')}"
    return value(name, shape, role=Role.SLOT, slot=kind, of=of)


def inventory(*entries: Entry) -> Inventory:
    return Inventory("here", {entry.name: entry for entry in entries})


def plan(rules: Any, stored: list[Entry], live: list[Entry], **more: Any) -> Plan:
    return make_plan(Policy(adapt=rules, **more), inventory(*stored), inventory(*live), KNOWN)
