"""The weights of the best checkpoint: loaded when a training is done, written for inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.errors import SaveError
from tfckpt.live.inventory import collect, is_model
from tfckpt.policy import Config
from tfckpt.stored.commits.new_file import new_file_by_name
from tfckpt.stored.io.files import LOCAL, join
from tfckpt.training.resumption import restore_from

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    report, _ = restore_from(found, models)
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
        try:
            with new_file_by_name(path, _SUFFIX, replaces=True) as unfinished:
                model.save_weights(unfinished)
        except (OSError, SaveError) as error:
            logging.warning("%s is not written: %s", path, error)


def _models(objects: Mapping[str, Any]) -> dict[str, Any]:
    return {keyword: obj for keyword, obj in objects.items() if is_model(obj)}
