"""What a save records of its moment, and which step it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfckpt.errors import TfckptError
from tfckpt.live.flavors import is_optimizer
from tfckpt.live.inventory import is_model
from tfckpt.live.variables import as_int

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Moment(NamedTuple):
    """What a record says of the moment of a save."""

    epoch: Any
    metrics: Mapping[str, float] | None
    training: Callable[[], tuple[dict[str, Any], Any]]
    metadata: Mapping[str, Any] | None = None
    probe: Any = None


def scalars(logs: Any) -> dict[str, float]:
    """The scalar metrics; ``keep: best`` cannot compare those per class."""
    return {name: value for name, value in (logs or {}).items() if not np.ndim(value)}


def step_of(objects: Mapping[str, Any]) -> int | None:
    """The value of ``step`` if passed, else the iterations of the first optimizer in use.

    A model whose ``train_step`` has its own optimizers is compiled with one that never steps.
    """
    if (counter := objects.get("step")) is not None:
        return as_int(counter)
    counts = (as_int(one.iterations) for one in optimizers_of(objects))
    if (first := next(counts, None)) is None:
        return None
    return first or next(filter(None, counts), 0)


def optimizers_of(objects: Mapping[str, Any]) -> list[Any]:
    """The optimizers among objects, of compiled models, and on attributes of models."""
    compiled = (getattr(obj, "optimizer", None) for obj in objects.values())
    of_models = (each for obj in objects.values() if is_model(obj) for each in vars(obj).values())
    candidates = (*objects.values(), *compiled, *filter(is_optimizer, of_models))
    return [one for one in candidates if hasattr(one, "iterations")]


def check_step(counter: Any) -> None:
    """Raise a TfckptError if ``step`` does not hold an integer."""
    try:
        as_int(counter)
    except (TypeError, ValueError, OverflowError) as error:
        raise TfckptError(
            f"`step` must hold the number of the training step: {error}",
            hint="pass an object that holds something else by another keyword",
        ) from None
