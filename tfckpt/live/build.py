"""Keras objects that have no variables yet: built where it is known how, else refused.

TensorFlow would restore such an object later, when its variables appear; in Keras 3 that registers
a kernel twice and leaves one of them random, without a word (tf#82209).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import NotBuiltError
from tfckpt.live.inventory import is_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.live.inventory import Live
    from tfckpt.planning import Plan
    from tfckpt.records import Inventory


def build_models(objects: Mapping[str, Any], specs: Mapping[str, Any] | None) -> None:
    """Call each model once on zeros of the declared shape; sizes that vary are taken as 1.

    Args:
        objects: keyword → object, as given to the checkpoint.
        specs: keyword → input spec (``.shape``, ``.dtype``), or a list or mapping of them.

    Raises:
        NotBuiltError: a spec for something that is no model here, or a call that fails.
    """
    models = {keyword: obj for keyword, obj in objects.items() if is_model(obj)}
    for keyword, spec in (specs or {}).items():
        model = models.get(keyword)
        if model is None and len(models) == 1 and keyword == "model":
            (model,) = models.values()
        if model is None:
            raise NotBuiltError(
                f"build: {keyword!r} is none of the models here ({', '.join(models) or 'none'})"
            )
        try:
            model(_zeros(spec), training=False)
        except Exception as error:
            raise NotBuiltError(
                f"build: {keyword!r} cannot be called on zeros of the declared shape: {error}",
                hint="the spec is that of one batch, the batch size first: {shape: [null, 28, 28]}",
            ) from error


def _zeros(spec: Any) -> Any:
    if isinstance(spec, (list, tuple)):
        return [_zeros(each) for each in spec]
    if hasattr(spec, "shape"):
        return tf.zeros([1 if side is None else side for side in spec.shape], spec.dtype)
    return {name: _zeros(each) for name, each in spec.items()}


def build_optimizers(live: Live, stored: Inventory) -> bool:
    """Create the variables of optimizers whose state is stored; whether there was one to build."""
    built = False
    for path, optimizer in live.optimizers.items():
        wanted = any(e.of and name.startswith(path + "/") for name, e in stored.entries.items())
        has_slots = any(
            e.of and name.startswith(path + "/") for name, e in live.inventory.entries.items()
        )
        if wanted and not has_slots:
            built |= _build(optimizer, path, live)
    return built


def _build(optimizer: Any, path: str, live: Live) -> bool:
    owner = [m for m in live.models.values() if getattr(m, "optimizer", None) is optimizer]
    models = owner or list(live.models.values())
    if len(models) != 1 or not models[0].trainable_variables:
        return False
    variables = models[0].trainable_variables
    if hasattr(optimizer, "_create_all_weights"):  # tf_keras legacy
        optimizer._create_all_weights(variables)
    else:
        optimizer.build(variables)
    return True


def check_built(live: Live, plan: Plan) -> None:
    """Refuse where the checkpoint has values for something that has no variables yet.

    Raises:
        NotBuiltError: with the line of code that builds it.
    """
    for path, layer in live.unbuilt.items():
        waiting = [
            step.source
            for step in plan.steps
            if not step.name and step.source.startswith(path + "/")
        ]
        if waiting:
            what = "model" if is_model(layer) else "layer"
            raise NotBuiltError(
                f"{path} ({type(layer).__name__} {layer.name!r}) has no variables yet, and the "
                f"checkpoint has {len(waiting)} for it, {waiting[0]} the first",
                hint=f"call the {what} once on a batch before restoring: "
                f"{what}(tf.zeros([1, ...])); or give its input spec under `build:` in the policy",
            )
