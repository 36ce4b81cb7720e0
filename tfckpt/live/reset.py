"""What an optimizer starts from, for a policy that resets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.live.inventory import collect_as
from tfckpt.live.variables import raw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.live.inventory import Live
    from tfckpt.planning import Plan


def initial_values(plan: Plan, live: Live) -> Mapping[str, Any]:
    """Canonical name → value, for every step that resets one.

    A twin of the optimizer is built from its config, for the same variables, and asked; Keras keeps
    no initial values, and not all of them are zero (Adagrad's are 0.1).
    """
    values: dict[str, Any] = {}
    names = {step.name for step in plan.resets if step.name}
    for path, optimizer in live.optimizers.items():
        own = {name for name in names if name.startswith(path + "/")}
        nested = any(path.startswith(outer + "/") for outer in live.optimizers)
        if not own or nested or int(optimizer.iterations) == 0:
            continue  # the outer one resets it, or there is nothing to reset: it took no step
        twin = type(optimizer).from_config(optimizer.get_config())
        variables = _trained(path, live)
        if hasattr(twin, "_create_all_weights"):
            twin._create_all_weights(variables)
        else:
            twin.build(variables)
        fresh = collect_as({**live.models, path: twin}).variables
        values |= {name: raw(fresh[name]).read_value() for name in own & fresh.keys()}
    return values


def _trained(path: str, live: Live) -> list[Any]:
    """The variables that the optimizer has slots for, in the order of their slots."""
    seen: dict[str, None] = {}
    for name, entry in live.inventory.entries.items():
        if entry.of and name.startswith(path + "/"):
            seen[entry.of] = None
    return [live.variables[name] for name in seen if name in live.variables]
