"""The initial values of an optimizer that is reset, and of new low-rank factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import begins_as_weights
from tfckpt.errors import RestoreError
from tfckpt.live.building.build import build_for, strategy_of
from tfckpt.live.objects.collect import collect_as
from tfckpt.live.variables.variables import raw
from tfckpt.planning.checks.one_sided import optimizer_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.core.inventory import Entry
    from tfckpt.live.objects.collect import Live
    from tfckpt.planning import Plan


def initial_values(plan: Plan, live: Live) -> Mapping[str, Any]:
    """Canonical name → value, for every step that resets one.

    They are read from a copy of the optimizer that is built from its config for the same variables:
    Keras keeps no initial values, and not all of them are zero (Adagrad's are 0.1). What begins as
    the weights is the variable itself, which has its new value when the slot is assigned. A weight
    that is reset is a low-rank factor, which Keras makes of zeros.
    """
    import tensorflow as tf

    slots = {step.name: step.live for step in plan.resets if step.live}
    values = {
        name: raw(live.variables[slot.of])
        for name, slot in slots.items()
        if slot.of in live.variables and _is_copy(slot, live)
    }
    factors = [name for name, entry in slots.items() if entry.role is Role.WEIGHT]
    values |= {name: tf.zeros_like(raw(live.variables[name])) for name in factors}
    names = slots.keys() - values.keys()
    for path, optimizer in live.optimizers.items():
        own = {name for name in names if name.startswith(path + "/")}
        nested = any(path.startswith(outer + "/") for outer in live.optimizers)
        if not own or nested:  # the outer one resets it
            continue
        trained = _trained(path, live)
        fresh = collect_as({**trained, path: _twin(optimizer, path, [*trained.values()])}).variables
        if lost := own - fresh.keys():
            raise RestoreError(
                f"{min(lost)} cannot be reset: a new {type(optimizer).__name__} with the same "
                "config does not have this value",
                hint="exclude it in the policy to keep its current value",
            )
        values |= {name: raw(fresh[name]).read_value() for name in own}
    return values


def _is_copy(slot: Entry, live: Live) -> bool:
    cls = live.inventory.optimizers.get(optimizer_of(slot, live.inventory), "")
    return begins_as_weights(slot.slot, cls)


def _twin(optimizer: Any, path: str, variables: list[Any]) -> Any:
    try:
        with strategy_of(variables).scope():
            twin = type(optimizer).from_config(optimizer.get_config())
        build_for(twin, variables)
    except Exception as error:
        raise RestoreError(
            f"{path} ({type(optimizer).__name__}) cannot be reset: building a new one from its "
            f"config failed: {error}",
        ) from error
    return twin


def _trained(path: str, live: Live) -> dict[str, Any]:
    """The variables that the optimizer has slots for by name, in the order of their slots."""
    seen: dict[str, None] = {}
    for name, entry in live.inventory.entries.items():
        if entry.of and name.startswith(path + "/"):
            seen[entry.of] = None
    return {name: live.variables[name] for name in seen if name in live.variables}
