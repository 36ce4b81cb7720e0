"""Live optimizers: built for what a checkpoint has of them, as new ones, and what each trains."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import LOSS_SCALE, begins_as_weights, optimizer_of
from tfckpt.errors import RestoreError
from tfckpt.live.flavors import has_named_slots, is_v1
from tfckpt.live.inventory import collect_as
from tfckpt.live.optimizers import is_built, says_built, trained_in
from tfckpt.live.private.building import build_slots
from tfckpt.live.rebuild import strategy_of, trainable_now
from tfckpt.live.variables import in_parts, parts, raw
from tfckpt.planning.checks.step import ASSIGNED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.core.builds import Builds
    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.live.inventory import Live
    from tfckpt.live.rebuild import Building, Walk
    from tfckpt.planning import Plan


def build_optimizers(
    plan: Plan, live: Live, recorded: Mapping[str, Builds], building: Building, walk: Walk
) -> Live:
    """Build the optimizers that a plan has slots for; returns the live values afterwards.

    ``recorded`` has what each trained before the save, by source of the plan.
    """
    if not (slots := _waiting_slots(plan)):
        return live
    trained = {path: _trained_before(path, plan, live, recorded) for path in live.optimizers}
    whole = all(step.name or step.entry.role is not Role.WEIGHT for step in plan.steps)
    unbuilt = _unbuilt(live, slots, trained, whole=whole)
    return _built(unbuilt, live, building, walk)


def build_as_stored(stored: Inventory, live: Live, building: Building, walk: Walk) -> Live:
    """Build the optimizers that an inventory has slots for; returns the live values afterwards."""
    slots = {name: entry.of for name, entry in stored.entries.items() if entry.of}
    return _built(_unbuilt(live, slots), live, building, walk)


def _built(
    unbuilt: list[tuple[Any, list[Any]]], live: Live, building: Building, walk: Walk
) -> Live:
    if not unbuilt:
        return live
    building.begins(live)
    for optimizer, variables in unbuilt:
        build_for(optimizer, variables)
    return dataclasses.replace(walk(), unbuilt=live.unbuilt)


def _unbuilt(
    live: Live,
    slots: Mapping[str, str],
    trained: Mapping[str, tuple[Mapping[str, Any], frozenset[str]]] | None = None,
    *,
    whole: bool = False,
) -> list[tuple[Any, list[Any]]]:
    """The optimizers to build, as the checkpoint has slots for them, each with the variables.

    These are those that it ``trained`` before the save, if that is known. If it is not, or there is
    one optimizer, which may train more by now, also those that Keras would train, and could not
    then: those of the model compiled with it, else of the models that the stored slots belong to,
    else the slots' own variables; without those that only other optimizers have slots for, as in a
    GAN. ``slots`` maps the name that a stored slot would have to the name of its variable, "" if
    the file does not say. If the models have the ``whole`` of the weights that were saved, no call
    makes more that could be trained.
    """
    found = list[tuple[Any, list[Any]]]()
    owned = _slot_owners(live, slots)
    for path, optimizer in live.optimizers.items():
        own = {name for name in slots if name.startswith(path + "/")}
        if not getattr(getattr(optimizer, "inner_optimizer", optimizer), "use_ema", False):
            own.discard(f"{path}/iterations")
        if not own or is_built(optimizer, path, live):
            continue
        known, untrained = (trained or {}).get(path, ({}, frozenset[str]()))
        gone = [name for name, variable in known.items() if variable is None]
        if any(name.rpartition("/")[0] in live.layers for name in gone):
            continue  # its layer may make the variable later
        variables = [variable for variable in known.values() if variable is not None]
        compiled = any(getattr(m, "optimizer", None) is optimizer for m in live.models.values())
        if gone or not known or compiled or len(live.optimizers) == 1:
            others = {name for other in owned if other != path for name in owned[other]}
            named = (others - owned[path].keys()) | untrained
            out = [*variables, *(live.variables[name] for name in named & live.variables.keys())]
            held = {id(raw(variable)) for variable in out}
            more = _to_train(optimizer, list(owned[path]), live, whole=whole)
            if compiled and more:  # Keras trains no other ones
                now = {id(raw(variable)) for variable in more}
                variables = [variable for variable in variables if id(raw(variable)) in now]
            variables += [variable for variable in more if id(raw(variable)) not in held]
        if variables:
            found.append((optimizer, variables))
    return found


def _slot_owners(live: Live, slots: Mapping[str, str]) -> dict[str, dict[str, None]]:
    """Path of each optimizer → the variables that it has slots for, or will have."""
    entries = live.inventory.entries.items()
    known = {**{name: entry.of for name, entry in entries if entry.of}, **slots}
    return {
        path: {
            variable: None
            for name, variable in known.items()
            if name.startswith(path + "/") and variable in live.variables
        }
        for path in live.optimizers
    }


def _to_train(optimizer: Any, owners: list[str], live: Live, *, whole: bool) -> list[Any]:
    models = [m for m in live.models.values() if getattr(m, "optimizer", None) is optimizer]
    if not models:
        first = dict.fromkeys(name.partition("/")[0] for name in owners)
        models = [live.models[component] for component in first if component in live.models]
    if not models and not owners and len(live.models) == 1:
        models = [*live.models.values()]
    # tf_keras raises if the model is not built.
    found = [variable for m in models for variable in trainable_now(m, live)]
    if found or (models and not whole):
        return found
    of = set(owners)  # a file may have them in another order than the program
    return [variable for name, variable in live.variables.items() if name in of]


def _waiting_slots(plan: Plan) -> dict[str, str]:
    """The stored slots that no optimizer has yet, as :func:`_unbuilt` takes them.

    And the steps that are restored: Keras 3 begins an average at zero unless the step is the first.
    """
    return {
        step.target or step.name: step.entry.of
        for step in plan.steps
        if (step.target and not step.name and step.entry.role is Role.SLOT)
        or (step.name and step.entry.role is Role.ITERATIONS and step.status in ASSIGNED)
    }


def _trained_before(
    at: str, plan: Plan, live: Live, recorded: Mapping[str, Builds]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Name → variable that an optimizer trained before the save, in its order; None if it is gone.

    And the names of what it could have trained, and did not. Both empty if nothing says so.
    """
    builds = [*recorded.values()]
    names = builds[0].optimizers.get(at, ()) if len(builds) == 1 else ()
    if not names:
        return {}, frozenset()
    moved = {step.source: step.name for step in plan.steps if step.source and step.name}
    found = {(now := moved.get(name, name)): live.variables.get(now) for name in names}
    return found, frozenset(moved.get(name, name) for name in builds[0].untrained)


def build_compiled(model: Any) -> None:
    """Create the variables of a model's optimizer, as Keras does in the first step.

    Not with a custom ``train_step``: it may use other optimizers, as in a GAN, and never build the
    one that Keras compiled.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not model.built or says_built(optimizer):
        return
    if type(model).train_step.__module__.partition(".")[0] in ("keras", "tf_keras"):
        build_for(optimizer, list(model.trainable_variables))


def build_for(optimizer: Any, variables: list[Any]) -> None:
    """Create an optimizer's variables, in any flavor, under the strategy of the variables."""
    variables = [part for variable in variables for part in in_parts(variable)]
    with strategy_of(variables).scope():
        if is_v1(optimizer):
            build_slots(optimizer, [raw(variable) for variable in variables])
        elif has_named_slots(optimizer):
            optimizer._create_all_weights(variables)
        else:
            optimizer.build(variables)


def initial_values(plan: Plan, live: Live) -> Mapping[str, Any]:
    """Canonical name → value, for every step that resets one.

    They are read from a copy of the optimizer that is built from its config for the same variables:
    Keras keeps no initial values, and not all of them are zero (Adagrad's are 0.1). What begins as
    the weights is the variable itself, which has its new value when the slot is assigned. A weight
    that is reset is a low-rank factor, which Keras makes of zeros.
    """
    slots = {step.name: step.live for step in plan.resets if step.live}
    values = {
        name: raw(live.variables[slot.of])
        for name, slot in slots.items()
        if slot.of in live.variables and _is_copy(slot, live)
    }
    factors = [name for name, entry in slots.items() if entry.role is Role.WEIGHT]
    values |= {name: tf.zeros_like(raw(live.variables[name])) for name in factors}
    counts = [name for name, entry in slots.items() if entry.role is Role.ITERATIONS]
    values |= {name: tf.zeros_like(raw(live.variables[name])) for name in counts}
    of_path: dict[str, set[str]] = {}
    for name in slots.keys() - values.keys():
        at = optimizer_of(slots[name], live.inventory).removesuffix(f"/{LOSS_SCALE}")
        of_path.setdefault(at, set()).add(name)
    for path, own in of_path.items():
        optimizer, trained = live.optimizers[path], trained_in(path, live)
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
