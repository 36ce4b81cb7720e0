"""Builds Keras objects that have no variables yet, or refuses them.

TensorFlow would restore such an object later, when its variables are created; in Keras 3 that
registers a kernel twice and silently leaves one of them random (tf#82209).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import LOSS_SCALE, begins_as_weights, optimizer_of
from tfckpt.errors import NotBuiltError, RestoreError
from tfckpt.live.flavors import flavor_of, has_named_slots, is_optimizer, is_v1, name_of
from tfckpt.live.inventory import collect_as, is_model
from tfckpt.live.private import fit
from tfckpt.live.private.building import build_slots, has_own_build
from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.live.rebuild import ancestors, strategy_of, trainables, trained_in
from tfckpt.live.variables import in_parts, raw
from tfckpt.planning import Status
from tfckpt.planning.checks.step import ASSIGNED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tfckpt.core.inventory import Entry
    from tfckpt.live.inventory import Live
    from tfckpt.planning import Plan, Step

_OF_KERAS = frozenset({Role.WEIGHT, Role.SLOT})


def build_models(objects: Mapping[str, Any], specs: Mapping[str, Any] | None) -> None:
    """Call each unbuilt model or layer once on zeros of the declared shape.

    Unknown dimensions are taken as 1. A built model is not called, since a call may change its
    state, as that of a stateful RNN.
    """
    models = {keyword: obj for keyword, obj in objects.items() if _is_layer(obj)}
    for keyword, spec in (specs or {}).items():
        model = models.get(keyword)
        if model is None and keyword == "model":
            alone = [obj for obj in models.values() if is_model(obj)] or [*models.values()]
            model = alone[0] if len(alone) == 1 else None
        if model is None:
            what = _shown_objects(models, objects)
            raise NotBuiltError(f"build: no Keras model or layer was given as {keyword!r}; {what}")
        if all(layer.built for layer in with_layers_below(model)):
            continue
        try:
            strategy = getattr(model, "distribute_strategy", tf.distribute.get_strategy())
            with strategy.scope():
                model(_zeros(spec), training=False)
        except Exception as error:
            raise NotBuiltError(
                f"build: calling {keyword!r} on zeros of the declared shape failed: {error}",
                hint="declare the spec of one batch, batch size first: {shape: [null, 28, 28]}",
            ) from error


def _shown_objects(models: Collection[str], objects: Collection[str]) -> str:
    if models:
        return f"models and layers given: {', '.join(models)}"
    return f"other objects given: {', '.join(objects)}" if objects else "no objects were given"


def _is_layer(obj: Any) -> bool:
    flavor = flavor_of(obj)
    if flavor is None or isinstance(obj, flavor.metric):
        return False
    return isinstance(obj, flavor.layer)


def build_by_step(model: Any, spec: Any) -> None:
    """Create every variable of a compiled model by tracing its first step, as ``fit`` would.

    ``spec`` is that of one batch. Only initializers run: no batch is taken, no value is assigned.
    Within a ``fit`` that runs no eager steps, its train function is traced, which it does not do
    again.
    """

    def step(batch: Any) -> Any:
        return model.distribute_strategy.run(model.train_step, args=(batch,))

    # Keras 3 traces a step without AutoGraph; an eager one may branch on a tensor.
    converts = getattr(flavor_of(model), "name", "") == "tf_keras" or model.run_eagerly
    try:
        with model.distribute_strategy.scope():
            if not tf.distribute.has_strategy() and fit.trace(model, tf.data.IteratorSpec(spec)):
                return
            tf.function(step, autograph=converts).get_concrete_function(spec)
    except Exception as error:
        raise NotBuiltError(
            f"{type(model).__name__} {model.name!r} creates variables in its first training step, "
            f"and tracing that step on the data of `fit` failed: {error}",
            hint="before `fit`, call the model once on a batch, and `build(variables)` of each "
            "optimizer with the variables that it trains",
        ) from error


def build_by_evaluation(model: Any, spec: Any) -> None:
    """Create the metrics that a first evaluation of a model would, if its step can be traced."""
    with contextlib.suppress(Exception), model.distribute_strategy.scope():
        tf.function(model.test_step).get_concrete_function(spec)


def _zeros(spec: Any) -> Any:
    if isinstance(spec, (list, tuple)):
        return [_zeros(each) for each in spec]
    if hasattr(spec, "shape"):
        return tf.zeros([1 if side is None else side for side in spec.shape], spec.dtype)
    return {name: _zeros(each) for name, each in spec.items()}


def unbuilt_optimizers(
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
        if not own or _is_built(optimizer, path, live):
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


def build_compiled(model: Any) -> None:
    """Create the variables of a model's optimizer, as Keras does in the first step.

    Not with a custom ``train_step``: it may use other optimizers, as in a GAN, and never build the
    one that Keras compiled.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not model.built or _says_built(optimizer):
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


def _is_built(optimizer: Any, path: str, live: Live) -> bool:
    prefix = path + "/"
    entries = live.inventory.entries.items()
    return _says_built(optimizer) or any(e.of and name.startswith(prefix) for name, e in entries)


def _says_built(optimizer: Any) -> bool:
    # tf_keras's legacy optimizers have no such flag, and can be built any number of times.
    return bool(getattr(optimizer, "built", False)) or bool(getattr(optimizer, "_built", False))


def _to_train(optimizer: Any, owners: list[str], live: Live, *, whole: bool) -> list[Any]:
    models = [m for m in live.models.values() if getattr(m, "optimizer", None) is optimizer]
    if not models:
        first = dict.fromkeys(name.partition("/")[0] for name in owners)
        models = [live.models[component] for component in first if component in live.models]
    if not models and not owners and len(live.models) == 1:
        models = [*live.models.values()]
    # tf_keras raises if the model is not built.
    found = [variable for m in models for variable in _trainable(m, live)]
    if found or (models and not whole):
        return found
    return [live.variables[name] for name in owners if name in live.variables]


def _trainable(model: Any, live: Live) -> list[Any]:
    """The trainable variables of a model, unless it is not built and may make more."""
    if model.built:
        return list(model.trainable_variables)
    if _may_make(model, live):
        return []
    return [each for layer in with_layers_below(model) for each in trainables(layer)]


def waiting_slots(plan: Plan) -> dict[str, str]:
    """The stored slots that no optimizer has yet, as :func:`unbuilt_optimizers` takes them.

    And the steps that are restored: Keras 3 begins an average at zero unless the step is the first.
    """
    return {
        step.target or step.name: step.entry.of
        for step in plan.steps
        if (step.target and not step.name and step.entry.role is Role.SLOT)
        or (step.name and step.entry.role is Role.ITERATIONS and step.status in ASSIGNED)
    }


def check_built(live: Live, plan: Plan) -> None:
    """Refuse, in one message, objects without variables that the checkpoint may have values for."""
    if not (live.unbuilt or live.optimizers):
        return
    left = [s for s in plan.steps if s.status is Status.UNEXPECTED and s.entry.role in _OF_KERAS]
    if not left:
        return
    tree = _NameTree(step.name for step in plan.assignments)
    weights = [
        step
        for step in left
        if step.entry.role is not Role.SLOT and not _is_closed(step.target, live)
    ]
    slots = [step for step in left if step.entry.role is Role.SLOT]
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(live.unbuilt, key=lambda path: path.count("/")):
        layer = live.unbuilt[path]
        if any(path.startswith(f"{above}/") for above in found):
            continue
        theirs = _theirs(path, weights, tree if _has_weights(layer, path) else None)
        if theirs:
            model = live.models.get(path.partition("/")[0])
            alone = not is_model(layer) and (model is None or model.built)
            found[path] = theirs, _how_to_build(layer, "layer" if alone else "model")
    for path, optimizer in live.optimizers.items():
        if not _is_built(optimizer, path, live) and (theirs := _theirs(path, slots, None)):
            legacy = has_named_slots(optimizer)
            how = "take a step" if legacy else "call optimizer.build(model.trainable_variables)"
            hint = f"{how} before restoring; or pass the model it trains to the checkpoint, too"
            found[path] = theirs, hint
    objects = {**live.unbuilt, **live.optimizers}
    named = {path: f"{path} ({_described(objects[path])})" for path in found}
    if not found:
        return
    lacking = "no variables yet, but the checkpoint has"
    lines = [f"{len(found)} objects have {lacking} values:"] if len(found) > 1 else []
    colon = ":" if lines else f" has {lacking}"
    lines += [f"{named[path]}{colon} {theirs}" for path, (theirs, _) in found.items()]
    hints = dict.fromkeys(hint for _, hint in found.values())
    raise NotBuiltError("\n  ".join(lines), hint="\n  ".join(hints))


def _is_closed(name: str, live: Live) -> bool:
    """Whether a value lies below a layer of which nothing can get variables any more."""
    at = next((at for at in ancestors(name) if at in live.layers), "")
    return bool(at) and not _may_make(live.layers[at], live)


def _may_make(layer: Any, live: Live) -> bool:
    """Whether a call of a layer may make variables in it, or in a layer below."""
    unbuilt = set(map(id, live.unbuilt.values()))
    below = (each for each in with_layers_below(layer) if id(each) in unbuilt)
    return any(has_own_build(each) or _has_own_call(each) for each in below)


def _has_own_call(layer: Any) -> bool:
    flavor = flavor_of(layer)
    return flavor is None or type(layer).call not in {flavor.layer.call, flavor.model.call}


def _described(obj: Any) -> str:
    name = type(obj).__name__
    return name if is_optimizer(obj) else f"{name} {name_of(obj)!r}"


def _how_to_build(layer: Any, what: str) -> str:
    """The line that creates the variables of a model or layer."""
    if hasattr(layer, "set_vocabulary"):
        return "set its vocabulary before restoring: set_vocabulary(words, idf_weights)"
    if hasattr(layer, "get_encoded_features"):
        return "adapt it before restoring: feature_space.adapt(dataset)"
    return (
        f"call the {what} once on a batch before restoring: {what}(tf.zeros([1, ...])); or give "
        "its input spec under `build:` in the policy"
    )


def _theirs(path: str, left: list[Step], tree: _NameTree | None) -> str:
    """How many unused values belong to the object at ``path``, or may by their position."""
    certain = [step for step in left if step.target.startswith(path + "/")]
    possible = [step for step in left if tree and tree.beside(path, step.target)]
    for relation, found in (("for it", certain), ("that may belong to it", possible)):
        if found:
            return f"{_count(len(found))} {relation}, the first is '{found[0].source}'"
    return ""


def _count(values: int) -> str:
    return "1 value" if values == 1 else f"{values} values"


class _NameTree:
    """The restored names as a tree.

    An object without variables and an unused stored value may be the same thing under two names if
    their paths leave the tree at the same node: a model saved as ``net=`` and given as ``model=``,
    or a layer whose attribute was renamed.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._paths = {path for name in names for path in ancestors(name)}

    def beside(self, path: str, name: str) -> bool:
        """Whether the value of that name may belong to the object of that path."""
        branch = self._leaves_at(path)
        below = name.removeprefix(branch).strip("/")
        return path not in self._paths and branch == self._leaves_at(name) and "/" in below

    def _leaves_at(self, name: str) -> str:
        return next((path for path in ancestors(name) if path in self._paths), "")


def _has_weights(layer: Any, path: str) -> bool:
    """Whether its class may create weights; an activation's does not."""
    flavor = flavor_of(layer)
    default = getattr(flavor, "layer", type(layer)).build
    below = [layer, *layer._flatten_layers(include_self=False)]
    return "/" not in path or any(
        is_model(each) or type(each).build is not default for each in below
    )


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
