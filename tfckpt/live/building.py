"""Builds Keras objects that have no variables yet, or refuses them.

TensorFlow would restore such an object later, when its variables are created; in Keras 3 that
registers a kernel twice and silently leaves one of them random (tf#82209).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.inventory import Role
from tfckpt.errors import NotBuiltError
from tfckpt.live.flavors import flavor_of, has_named_slots, is_optimizer, name_of
from tfckpt.live.inventory import is_model
from tfckpt.live.optimizers import is_built
from tfckpt.live.private import fit
from tfckpt.live.private.building import has_own_build
from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.live.rebuild import ancestors, trainables
from tfckpt.planning import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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


def trainable_now(model: Any, live: Live) -> list[Any]:
    """The trainable variables of a model, unless it is not built and may make more."""
    if model.built:
        return list(model.trainable_variables)
    if _may_make(model, live):
        return []
    return [each for layer in with_layers_below(model) for each in trainables(layer)]


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
        if not is_built(optimizer, path, live) and (theirs := _theirs(path, slots, None)):
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
