"""The weights of the best checkpoint: loaded when a training is done, written for inference."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.core.inventory import Role
from tfckpt.core.text import listed
from tfckpt.errors import SaveError, TfckptError
from tfckpt.live.inventory import collect, is_model
from tfckpt.live.variables import is_variable, on_host, parts, raw
from tfckpt.planning.ema import SLOT
from tfckpt.policy import Config
from tfckpt.stored.commits.new_file import new_file_by_name
from tfckpt.stored.io.files import LOCAL, join
from tfckpt.training.moment import optimizers_of
from tfckpt.training.restore_by_config import restore_by_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.manager.checkpoint_manager import CheckpointManager
    from tfckpt.policy import Manager

_SUFFIX = ".weights.h5"


def load_best(
    config: Manager, manager: CheckpointManager, objects: Mapping[str, Any]
) -> tuple[str, str]:
    """Restore the weights of the models from the best checkpoint of a run, and nothing else.

    Returns:
        What was restored, and a warning if nothing was; one of them is "".
    """
    monitor, mode = manager._files.monitored
    if manager.best is None:
        return "", (
            f"load_best_when_done: no checkpoint in {config.directory} has the metric {monitor!r}; "
            "the model keeps the weights that it has"
        )
    models = _models(objects)
    roots = collect(models).roots
    policy = {
        "name": "load_best_when_done",
        "api": "read",
        "include": [f"{roots[keyword].component}/**" for keyword in models],
    }
    ranked = manager._files.best(monitor, mode)
    sources = [{"path": o.prefix, "policy": policy, "on_damaged": "next"} for o in ranked]
    found = Config.model_validate({"version": 1, "restore": {"first_of": sources}})
    report = restore_by_config(found, models).report
    epoch = "" if report.epoch is None else f" of epoch {report.epoch}"
    measured = f"{monitor} {report.metrics[monitor]:g}{epoch}"
    return f"loaded the weights of the best checkpoint, {report.path}: {measured}", ""


def export_weights(
    config: Manager,
    manager: CheckpointManager,
    objects: Mapping[str, Any],
    metrics: Mapping[str, float],
) -> None:
    """Let Keras write the weights of the models, as ``manager.export`` says, before a save.

    So a process that is killed between the two leaves the weights that it would save next.
    """
    which = config.export.weights_h5
    if which is None or (which == "best" and not manager._files.is_best(metrics)):
        return
    models = _models(objects)
    LOCAL.makedirs(config.directory)
    for keyword, model in models.items():
        of = "" if len(models) == 1 else f".{keyword}"
        path = join(config.directory, f"{which}{of}{_SUFFIX}")
        averaged = _averaged(config.export.ema, objects)
        try:
            with new_file_by_name(path, _SUFFIX, replaces=True) as unfinished, averaged:
                model.save_weights(unfinished)
        except (OSError, SaveError) as error:
            logging.warning("%s is not written: %s", path, error)


def check_averages(ema: str, objects: Mapping[str, Any]) -> None:
    """Raise a TfckptError if moving averages are to be exported, but nothing keeps them."""
    if ema == "ignore" or any(map(_keeps_averages, optimizers_of(objects))):
        return
    raise TfckptError(
        f"export: ema: {ema}, but no optimizer keeps moving averages of the weights",
        hint="create the optimizer with use_ema=True, or remove `ema` from `export`",
    )


def check_swaps(ema: str, callbacks: Iterable[Any]) -> None:
    """Raise a TfckptError if a callback exchanges weights and averages before a save."""
    swaps = (one for one in callbacks if type(one).__name__ == "SwapEMAWeights")
    if ema != "ignore" and any(one.swap_on_epoch for one in swaps):
        raise TfckptError(
            f"export: ema: {ema}, but SwapEMAWeights(swap_on_epoch=True) exchanges the weights and "
            "their averages before they are exported",
            hint="remove `ema` from `export`: at the end of an epoch the model has the averages",
        )


def _keeps_averages(optimizer: Any) -> bool:
    return bool(getattr(getattr(optimizer, "inner_optimizer", optimizer), "use_ema", False))


@contextlib.contextmanager
def _averaged(ema: str, objects: Mapping[str, Any]) -> Iterator[None]:
    """Within the body, weights have the values of their moving averages."""
    if ema == "ignore":
        yield
        return
    live = collect(objects)
    entries = live.inventory.entries.values()
    averages = {each.of: each.name for each in entries if each.slot == SLOT}
    weights = [each.name for each in entries if each.role is Role.WEIGHT]
    if ema == "only" and (absent := [name for name in weights if name not in averages]):
        raise TfckptError(
            f"export: ema: only, but these weights have no moving average: {listed(absent)}",
            hint="write `ema: prefer`, which exports such weights as they are",
        )
    pairs = [(live.variables[of], live.variables[name]) for of, name in averages.items()]
    kept = _values_of([weight for weight, _ in pairs])
    means = _values_of([average for _, average in pairs])
    try:
        for (weight, _), (_, mean) in zip(kept, means, strict=True):
            weight.assign(mean)
        yield
    finally:
        for weight, value in kept:
            weight.assign(value)


def _values_of(variables: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Each variable with a copy of its value in host memory, since a model may fill the GPU."""
    held = (part for each in variables if is_variable(each) for part in parts(raw(each)))
    return [(part, on_host(part.read_value())) for part in held]


def _models(objects: Mapping[str, Any]) -> dict[str, Any]:
    return {keyword: obj for keyword, obj in objects.items() if is_model(obj)}
