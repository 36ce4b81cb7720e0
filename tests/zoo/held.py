"""What a model, a module and an optimizer hold, as they themselves say, and where a name leads.

A name is followed along Keras's own attributes and lists of layers, not by what tfckpt says of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from zoo.variables import inner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What a slot is called in an optimizer: a list in both flavours, and a word in the legacy ones.
SLOTS = {
    "momentum": ("_momentums", "momentums", "m", "momentum"),
    "velocity": ("_velocities", "v", "rms"),
    "velocity_hat": ("_velocity_hats", "vhat"),
    "average_gradient": ("_average_gradients", "mg"),
    "accumulator": ("_accumulators", "accumulator"),
    "linear": ("_linears", "linear"),
    "moving_average": ("_model_variables_moving_average",),
    "accumulated_gradient": ("_accumulated_gradients",),
}
# What a loss scale is called, in Keras 3 and in tf_keras.
SCALE = {
    "dynamic_scale": ("dynamic_scale", "_loss_scale._current_loss_scale"),
    "step_counter": ("step_counter", "_loss_scale._counter"),
    "iterations": ("_iterations",),
    "learning_rate": ("_learning_rate",),
}


def by_group(objects: Mapping[str, Any]) -> dict[str, list[tf.Variable]]:
    """The variables of all objects, each once: weights, seeds, metrics, and of the optimizer."""
    groups: dict[str, list[Any]] = {}
    for value in objects.values():
        if isinstance(value, tf.Module) and not hasattr(value, "compile"):
            groups["weights"] = list(value.variables)
            continue
        solver = getattr(value, "optimizer", None)
        known = [each for each in value.weights if hasattr(each, "assign")]  # no vocabulary
        groups["weights"] = [*known, *_plain_variables(value)]
        groups["metrics"] = [v for metric in _metrics(value) for v in metric.variables]
        groups["seeds"] = _generators(value)
        groups["settings"] = _settings(solver)
        groups["optimizer"] = _variables(solver)
    taken: set[int] = set()
    return {name: _each_once(groups.get(name, ()), taken) for name in GROUPS}


GROUPS = ("metrics", "settings", "optimizer", "weights", "seeds")


def _each_once(variables: Iterable[Any], taken: set[int]) -> list[tf.Variable]:
    found = {id(inner(each)): inner(each) for each in variables}
    new = [value for key, value in found.items() if key not in taken]
    taken.update(found)
    return new


def _metrics(model: Any) -> list[Any]:
    """One by one; Keras 3 has one around those that were compiled."""
    return [within for each in model.metrics for within in getattr(each, "metrics", ()) or [each]]


def _variables(solver: Any) -> list[Any]:
    if solver is None:
        return []
    found = solver.variables() if callable(solver.variables) else solver.variables
    more = [_first(solver, names, None) for names in SCALE.values()]
    return [*found, *(each for each in more if each is not None)]


def _settings(solver: Any) -> list[Any]:
    """What the program sets: the learning rate, and in legacy optimizers all of it."""
    if solver is None:
        return []
    both = solver, getattr(solver, "inner_optimizer", solver)
    if hasattr(both[1], "_hyper"):
        return [each for each in both[1]._hyper.values() if isinstance(each, tf.Variable)]
    return [each._learning_rate for each in both if hasattr(each, "_learning_rate")]


def _generators(model: Any) -> list[Any]:
    """The states of Keras 3 are among its variables; tf_keras keeps them in a generator."""
    weights = {id(each) for each in model.weights}
    own = [each for each in model.variables if id(each) not in weights]
    within = (getattr(layer, "_random_generator", None) for layer in model.layers)
    more = (getattr(each, "_generator", None) for each in within)
    states = [each.state for each in more if each is not None]
    return [each for each in (*own, *states) if hasattr(each, "assign")]


def _plain_variables(model: Any) -> list[tf.Variable]:
    """Those of TensorFlow, directly or in a module, of which Keras 3 does not know."""
    kept = (
        value
        for layer in model.layers
        for name, value in vars(layer).items()
        if not name.startswith("_")
    )
    return [
        each
        for value in kept
        for each in (
            [value]
            if isinstance(value, tf.Variable)
            else value.variables
            if isinstance(value, tf.Module) and not hasattr(value, "weights")
            else []
        )
    ]


def follow(objects: Mapping[str, Any], name: str) -> Any:
    """The variable that a name leads to."""
    first, *parts = name.split("/")
    if first in objects:
        return _walk(objects[first], parts)
    model = objects["model"]
    if first == "seed":
        layer = _walk(model, parts)
        generator = getattr(layer, "seed_generator", None) or getattr(layer, "generator", None)
        return generator.state if generator else layer._random_generator._generator.state
    if first == "metrics":
        (metric,) = (each for each in _metrics(model) if each.name == parts[0])
        return _called(metric.variables, parts[1])
    assert first == "optimizer", name
    return _of_optimizer(model, parts)


def _walk(place: Any, parts: list[str]) -> Any:
    for part in parts:
        place = _step(place, part)
    return place


def _step(place: Any, part: str) -> Any:
    if isinstance(place, dict):
        return place[part]
    if isinstance(place, list | tuple):
        return place[int(part)]
    kinds = {each.__name__ for each in type(place).__mro__}
    if kinds & {"Sequential", "Functional"} and part in (own := _own_names(place.layers)):
        return own[part]  # of a subclassed model, attributes count
    for attribute in (part, f"_{part}"):
        if (found := getattr(place, attribute, None)) is not None:
            return found
    return _called(place.weights, part)


def _own_names(layers: Iterable[Any]) -> dict[str, Any]:
    """Layers by name, those of generated names counted anew from zero."""
    given, generated = {}, []
    for layer in layers:
        base = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", type(layer).__name__)  # as Keras does
        base = re.sub("([a-z])([A-Z])", r"\1_\2", base).lower()
        if counted := re.fullmatch(rf"{base}(?:_(\d+))?", layer.name):
            generated.append((base, int(counted[1] or 0), layer))
        else:
            given[layer.name] = layer
    for base, _, layer in sorted(generated, key=lambda each: each[:2]):
        count = sum(name == base or name.startswith(f"{base}_") for name in given)
        given[f"{base}_{count}" if count else base] = layer
    return given


def _called(variables: Iterable[Any], name: str) -> Any:
    (found,) = (v for v in variables if v.name.partition(":")[0].rpartition("/")[2] == name)
    return found


def _of_optimizer(model: Any, parts: list[str]) -> Any:
    solver = model.optimizer
    if parts[0] == "loss_scale":
        return _first(solver, SCALE[parts[1]])
    solver = getattr(solver, "inner_optimizer", solver)
    if len(parts) == 1 and hasattr(solver, "_hyper") and parts[0] in solver._hyper:
        return solver._hyper[parts[0]]
    if len(parts) == 1:
        return getattr(solver, f"_{parts[0]}")
    variable = _walk(model, parts[1:])
    names = SLOTS[parts[0]]
    if hasattr(solver, "get_slot"):
        (name,) = set(names) & set(solver.get_slot_names())
        return solver.get_slot(variable, name)
    if hasattr(solver, "_index_dict"):
        index = solver._index_dict[solver._var_key(variable)]
    else:
        index = solver._get_variable_index(variable)
    return _first(solver, names)[index]


def _first(place: Any, names: Iterable[str], *default: Any) -> Any:
    """The first of some attributes that there is."""
    for name in names:
        found = place
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found
    (otherwise,) = default
    return otherwise
