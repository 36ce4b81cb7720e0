"""Builds the models that a policy gives an input spec for, or that a `fit` gives its data."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import NotBuiltError
from tfckpt.live.flavors import flavor_of
from tfckpt.live.inventory import is_model
from tfckpt.live.private import fit
from tfckpt.live.private.either_keras import with_layers_below

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


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
