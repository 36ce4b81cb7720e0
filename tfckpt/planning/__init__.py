"""From a policy and two inventories to a plan, without a file and without TensorFlow."""

from tfckpt.planning.checks.step import Severity, Status, Step
from tfckpt.planning.plan import Plan, RestoreReport
from tfckpt.planning.planner import make_plan
from tfckpt.planning.report import render_text
from tfckpt.planning.union import union_of

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
