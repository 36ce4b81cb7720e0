"""Compares the model that ``fit`` trains with the objects of the run.

It may be a wrapper around the run's models, or share layers with one: its weights are then the
run's. Variables that only it has are not saved, which is reported. A model that shares nothing with
the run is refused.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.errors import TfckptError
from tfckpt.live.distribution.workers import strategy_without_fit
from tfckpt.live.objects.collect import collect, is_model
from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.live.variables.flavors import is_optimizer
from tfckpt.live.variables.variables import is_variable, raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def check_trained(model: Any, objects: Mapping[str, Any]) -> None:
    """Raise a TfckptError if a model shares nothing with the run."""
    if any(obj is model for obj in objects.values()):
        return
    run, its = collect(objects), collect({"model": model})
    held = _identities(run.variables) | {id(layer) for layer in run.unbuilt.values()}
    entries = its.inventory.entries
    weights = {n: v for n, v in its.variables.items() if entries[n].role is Role.WEIGHT}
    if held.isdisjoint(_identities(weights) | {id(layer) for layer in with_layers_below(model)}):
        raise TfckptError(
            f"`fit` trains {model.name!r}, which shares no weights with the objects of the run "
            f"({', '.join(objects) or 'nothing'})",
            hint="pass the trained model to the run",
        )


def check_fit(objects: Mapping[str, Any]) -> None:
    """Raise a TfckptError with an alternative if ``fit`` does not work under a strategy."""
    for obj in objects.values():
        strategy, keras3 = strategy_without_fit(obj)
        if strategy and keras3:
            raise TfckptError(
                f"Keras 3 has no `fit` under {strategy} (keras#20585)",
                hint="train in a custom loop, with `run.restore()` before it and "
                "`run.save_if_due()` after each step, or use tf_keras, whose `fit` works there",
            )
        if strategy:
            raise TfckptError(
                f"tf_keras's `fit` does not support batch-level callbacks under {strategy}",
                hint="call `run.restore()` before `fit`, and pass it initial_epoch=run.epoch and "
                "callbacks=[LambdaCallback(on_epoch_end="
                "lambda epoch, _: run.save(epoch=epoch + 1))]",
            )


def own_variables(model: Any, objects: Mapping[str, Any]) -> list[Any]:
    """The current variables of a model that are not in the objects of the run."""
    if any(obj is model for obj in objects.values()):
        return []
    held = _identities(collect(objects).variables)
    its = collect({"model": model}).variables.values()
    return [raw(each) for each in its if is_variable(each) and id(raw(each)) not in held]


def not_saved(model: Any, objects: Mapping[str, Any], callbacks: Iterable[Any]) -> Iterator[str]:
    """What callbacks, the loss and the schedule hold directly, and no object of the run has."""
    holders = {type(each).__name__: each for each in callbacks}
    holders |= {"the loss": getattr(model, "loss", None)}
    holders |= {"the schedule": getattr(getattr(model, "optimizer", None), "_learning_rate", None)}
    known = {**objects, "the trained model": model}
    for name, holder in holders.items():
        closure = inspect.isfunction(holder)
        held = inspect.getclosurevars(holder).nonlocals if closure else _attributes(holder)
        for each, value in held.items():
            saved = value is model or (is_variable(value) and holder in callbacks)
            kept = is_model(value) or is_optimizer(value) or is_variable(value)
            if kept and not saved and own_variables(value, known):
                word = each.strip("_")
                yield (
                    f"{each} of {name} is not saved: if training changes it, pass it by keyword: "
                    f"resume(model, directory, {word}={word})"
                )


def _attributes(holder: Any) -> Mapping[str, Any]:
    return {} if is_variable(holder) else getattr(holder, "__dict__", {})


def _identities(variables: Mapping[str, Any]) -> set[int]:
    return {id(raw(each)) for each in variables.values() if is_variable(each)}
