"""Reports hyperparameters set in code that a restore replaces, above all the learning rate.

TensorFlow restores them too, and a resumed training whose callbacks lowered the learning rate needs
that. Whoever has changed it in the code needs to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfckpt.core.inventory import Role
from tfckpt.live.variables.distributed import parts
from tfckpt.live.variables.variables import raw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.planning import Plan

# tf_keras stores the schedule's value at this step, which the code does not set.
_COMPUTED = "current_learning_rate"


def settings_of(plan: Plan, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Name → current value of each hyperparameter that the plan assigns."""
    return {
        step.name: _number(variables[step.name])
        for step in plan.assignments
        if step.live is not None
        and step.live.role is Role.HYPERPARAMETER
        and step.live.shape == ()
        and not step.name.endswith(f"/{_COMPUTED}")
    }


def replaced(before: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Name → old and new value of those that have changed."""
    pairs = {name: (value, _number(variables[name])) for name, value in before.items()}
    return {
        name: (float(str(old)), float(str(new)))  # 0.1 of float32 is 0.1
        for name, (old, new) in pairs.items()
        if not np.array_equal(old, new, equal_nan=True)
    }


def _number(variable: Any) -> Any:
    first = next(iter(parts(raw(variable))))
    return np.asarray(first.read_value())[()]
