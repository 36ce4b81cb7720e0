"""The model that ``fit`` trains beside the objects that the run was given: the same, or related.

A wrapper around the run's models, or a model that shares layers with one, is trained through other
eyes: its weights are the run's. What it alone has is in no checkpoint, which is said. A model that
shares nothing with the run is a mistake, and refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.errors import TfckptError
from tfckpt.live.distribution.agreement import strategy_without_fit
from tfckpt.live.objects.collect import collect
from tfckpt.live.variables.variables import is_variable, raw

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_trained(model: Any, objects: Mapping[str, Any]) -> None:
    """Raise where nothing of a model is the run's.

    Raises:
        TfckptError: the run would save and restore something else than what is trained.
    """
    if any(obj is model for obj in objects.values()):
        return
    run, its = collect(objects), collect({"model": model})
    held = _identities(run.variables) | {id(layer) for layer in run.unbuilt.values()}
    entries = its.inventory.entries
    weights = {n: v for n, v in its.variables.items() if entries[n].role is Role.WEIGHT}
    if held.isdisjoint(_identities(weights) | {id(layer) for layer in model._flatten_layers()}):
        raise TfckptError(
            f"`fit` trains {model.name!r}, which shares no weights with the objects of the run "
            f"({', '.join(objects) or 'nothing'})",
            hint="pass the trained model to the run",
        )


def check_fit(objects: Mapping[str, Any]) -> None:
    """Raise where there is no ``fit`` for the callback, before Keras says so in its own words.

    Raises:
        TfckptError: what to do in its place.
    """
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
    """The variables that a model has by now and the run does not know of."""
    if any(obj is model for obj in objects.values()):
        return []
    held = _identities(collect(objects).variables)
    its = collect({"model": model}).variables.values()
    return [raw(each) for each in its if is_variable(each) and id(raw(each)) not in held]


def _identities(variables: Mapping[str, Any]) -> set[int]:
    return {id(raw(each)) for each in variables.values() if is_variable(each)}
