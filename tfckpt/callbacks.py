"""The callback without a config: one line for a ``fit`` that can be killed at any moment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tfckpt.calls import from_config
from tfckpt.policy.saving import Keep, KeepWhereMeasured

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Default(str):
    """A metric that nobody asked for: without validation data, ``fit`` never measures it."""


_VAL_LOSS = _Default("val_loss")


def resume(
    model: Any,
    directory: str | os.PathLike[str],
    *,
    save_freq: str | int = "epoch",
    monitor: str | None = _VAL_LOSS,
    mode: str = "auto",
    save_best: int = 1,
    max_to_keep: int | None = 3,
    on_signal: Iterable[str] = (),
    enable_async: bool = False,
    verbose: int = 1,
) -> Any:
    """A callback for ``fit`` that saves, and goes on where the last save was.

    Args:
        model: the one that ``fit`` trains, of either flavour.
        directory: of the checkpoints; made with the first save.
        save_freq: ``epoch``, or a number of batches: then it saves after so many, and at the end of
            each epoch.
        monitor: the metric that ``save_best`` compares; None for none. The default counts where
            ``fit`` has validation data.
        mode: ``min``, ``max``, or ``auto``: as in Keras, by the name of the metric.
        save_best: how many of the best checkpoints are kept besides.
        max_to_keep: how many of the newest are kept; None keeps all.
        on_signal: signals that end the process after a save: ``["SIGTERM"]``.
        enable_async: whether files are written in the background.
        verbose: 0 is silent, 1 says a line for the restore and for each save.

    Raises:
        PolicyError: an argument is not what it can be.

    >>> import keras, numpy, tempfile, tfckpt.callbacks
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> model.compile("sgd", "mse")
    >>> callback = tfckpt.callbacks.resume(model, tempfile.mkdtemp() + "/run", verbose=0)
    >>> x, y = numpy.zeros((8, 4)), numpy.zeros((8, 2))
    >>> model.fit(x, y, epochs=2, callbacks=[callback], verbose=0).epoch
    [0, 1]
    """
    save: dict[str, Any] = {"every_epochs": 1, "on_signal": list(on_signal)}
    if save_freq != "epoch":
        save["every_steps"] = save_freq
    keep: list[dict[str, Any] | Keep] = []
    if max_to_keep is not None:
        keep.append({"latest": max_to_keep})
        if monitor is not None and save_best:
            best: Any = {"best": save_best, "monitor": str(monitor), "mode": _mode(mode, monitor)}
            keep.append(KeepWhereMeasured(**best) if monitor is _VAL_LOSS else best)
    where = os.fspath(directory)
    config = {
        "version": 1,
        "manager": {"directory": where, "save": save, "keep": keep, "enable_async": enable_async},
        "restore": {"directory": where, "if_none": "initialize"},
    }
    return from_config(config, model=model).callback(verbose)


def _mode(mode: str, monitor: str) -> str:
    """What Keras's ModelCheckpoint takes ``auto`` for (keras/src/callbacks/model_checkpoint.py)."""
    if mode != "auto":
        return mode
    return (
        "max" if "acc" in monitor or "auc" in monitor or monitor.startswith("fmeasure") else "min"
    )
