"""Keras objects that have no variables yet: built where it is known how, else refused.

TensorFlow would restore such an object later, when its variables appear; in Keras 3 that registers
a kernel twice and leaves one of them random, without a word (tf#82209).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import NotBuiltError
from tfckpt.live.inventory import is_model
from tfckpt.live.variables import raw
from tfckpt.records import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfckpt.live.inventory import Live
    from tfckpt.planning import Plan, Step
    from tfckpt.records import Inventory


def build_models(objects: Mapping[str, Any], specs: Mapping[str, Any] | None) -> None:
    """Call each unbuilt model once on zeros of the declared shape; sizes that vary are taken as 1.

    One that is built is not called: a call may change its state, a stateful RNN's for one.

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
        if all(layer.built for layer in model._flatten_layers()):
            continue
        try:
            with model.distribute_strategy.scope():
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


def build_optimizers(live: Live, stored: Sequence[Inventory]) -> bool:
    """Create the variables of optimizers whose state is stored; whether there was one to build.

    The variables are those that Keras would train: of the model that was compiled with the
    optimizer, else of the models that the stored slots belong to, else the slots' own variables.
    """
    built = False
    for path, optimizer in live.optimizers.items():
        owners = list(dict.fromkeys(name for one in stored for name in _owners(path, one)))
        if owners and not _is_built(optimizer) and not _owners(path, live.inventory):
            variables = _to_train(optimizer, owners, live)
            if variables:
                build_for(optimizer, variables)
                built = True
    return built


def build_compiled(model: Any) -> None:
    """Create the variables of the optimizer of a model, as Keras would in the first step.

    A ``train_step`` of one's own may use other optimizers, as that of a GAN: Keras compiles the
    model with one all the same, which never comes to have variables.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not model.built or _is_built(optimizer):
        return
    if type(model).train_step.__module__.partition(".")[0] in ("keras", "tf_keras"):
        build_for(optimizer, list(model.trainable_variables))


def build_for(optimizer: Any, variables: list[Any]) -> None:
    """Create an optimizer's variables, in any flavour, under the strategy of the model's."""
    with strategy_of(variables).scope():
        if hasattr(optimizer, "_create_all_weights"):  # tf_keras legacy
            optimizer._create_all_weights(variables)
        else:
            optimizer.build(variables)


def strategy_of(variables: list[Any]) -> Any:
    """The tf.distribute.Strategy that variables were created under."""
    known = (getattr(raw(variable), "distribute_strategy", None) for variable in variables)
    return next(filter(None, known), None) or tf.distribute.get_strategy()


def _owners(path: str, inventory: Inventory) -> list[str]:
    """The names of the variables that an optimizer has slots for."""
    prefix = path + "/"
    slots = (e.of for name, e in inventory.entries.items() if e.of and name.startswith(prefix))
    return list(dict.fromkeys(slots))


def _is_built(optimizer: Any) -> bool:
    # tf_keras's legacy optimizers keep no such mark, and may be built any number of times.
    return bool(getattr(optimizer, "built", False) or getattr(optimizer, "_built", False))


def _to_train(optimizer: Any, owners: list[str], live: Live) -> list[Any]:
    models = [m for m in live.models.values() if getattr(m, "optimizer", None) is optimizer]
    if not models:
        first = dict.fromkeys(name.partition("/")[0] for name in owners)
        models = [live.models[component] for component in first if component in live.models]
    if models:
        return [variable for model in models for variable in model.trainable_variables]
    return [live.variables[name] for name in owners if name in live.variables]


def check_built(live: Live, plan: Plan) -> None:
    """Refuse where the checkpoint has values for something that has no variables yet.

    Raises:
        NotBuiltError: with the line of code that builds it.
    """
    for path, layer in live.unbuilt.items():
        waiting = [
            step.source
            for step in plan.steps
            if not step.name and _meant(step).startswith(path + "/")
        ]
        if waiting:
            what = "model" if is_model(layer) else "layer"
            raise NotBuiltError(
                f"{path} ({type(layer).__name__} {layer.name!r}) has no variables yet, and the "
                f"checkpoint has {len(waiting)} for it, {waiting[0]} the first",
                hint=f"call the {what} once on a batch before restoring: "
                f"{what}(tf.zeros([1, ...])); or give its input spec under `build:` in the policy",
            )
    for path, optimizer in live.optimizers.items():
        if _is_built(optimizer) or _owners(path, live.inventory):
            continue
        waiting = [
            step.source
            for step in plan.steps
            if not step.name
            and step.entry.role is Role.SLOT
            and _meant(step).startswith(path + "/")
        ]
        if waiting:
            legacy = hasattr(optimizer, "_create_all_weights")
            how = "take a step" if legacy else "call optimizer.build(model.trainable_variables)"
            raise NotBuiltError(
                f"{path} ({type(optimizer).__name__}) has no variables yet, and the checkpoint has "
                f"{len(waiting)} for it, {waiting[0]} the first",
                hint=f"{how} before restoring; or give the model it trains to the checkpoint, too",
            )


def _meant(step: Step) -> str:
    """The live name that a stored value was meant for; a rename rule may have given it."""
    return step.target or step.source
