"""From a policy and two inventories to a plan, without a file and without TensorFlow.

The names are loaded on first use: who only prints a shape need not wait for the planner.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfckpt.planning.checks.step import Severity, Status, Step
    from tfckpt.planning.plan import Plan, RestoreReport
    from tfckpt.planning.planner import make_plan
    from tfckpt.planning.report import render_text
    from tfckpt.planning.union import union_of

_LAZY = {
    "Plan": "plan",
    "RestoreReport": "plan",
    "Severity": "checks.step",
    "Status": "checks.step",
    "Step": "checks.step",
    "make_plan": "planner",
    "render_text": "report",
    "union_of": "union",
}

__all__ = [
    "Plan",
    "RestoreReport",
    "Severity",
    "Status",
    "Step",
    "make_plan",
    "render_text",
    "union_of",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
