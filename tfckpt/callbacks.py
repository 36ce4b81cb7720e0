"""The callback without a config: one line for a ``fit`` that can be killed at any moment."""

from __future__ import annotations

import functools
import inspect
import os
from typing import TYPE_CHECKING, Any, TypeVar

from tfckpt.calls import from_config
from tfckpt.errors import PolicyError, Problem
from tfckpt.policy import load_config
from tfckpt.policy.manager import KeepWhereMeasured
from tfckpt.policy.messages import did_you_mean, show_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfckpt.policy import Config, Policy

_F = TypeVar("_F", bound="Callable[..., Any]")

# Arguments of ModelCheckpoint and BackupAndRestore, and what stands for them.
_OF_KERAS = {
    "backup_dir": "the directory is the second argument",
    "best": "`save_best=2` keeps the two best besides the newest",
    "delete_checkpoint": "`max_to_keep` says how many checkpoints are kept",
    "filepath": "the directory is the second argument; checkpoints in it are numbered",
    "initial_value_threshold": "`save_best` says how many are kept besides the newest",
    "period": "`save_freq` is 'epoch' or a number of batches; to save every few epochs, use a "
    "config with `manager: {save: {every_epochs: 2}}` and `run.callback()`",
    "save_before_preemption": "`on_signal=['SIGTERM']` saves before the process ends",
    "save_best_only": "`save_best=1` keeps the best besides the newest, which a restart needs",
    "save_weights_only": "a restart also needs the optimizer; `tfckpt rewrite --drop_optimizer` "
    "makes a copy without it",
}
# What the config that is made of the arguments calls them.
_ARGUMENTS = {
    "manager.directory": "directory",
    "manager.save.every_steps": "save_freq",
    "manager.save.on_signal": "on_signal",
    "manager.keep[0].latest": "max_to_keep",
    "manager.keep[1].best": "save_best",
    "manager.keep[1].monitor": "monitor",
    "manager.keep[1].mode": "mode",
    "manager.enable_async": "enable_async",
    "restore.directory": "directory",
    "restore.policy": "policy",
}


class _Default(str):
    """A metric that nobody asked for: without validation data, ``fit`` never measures it."""


_VAL_LOSS = _Default("val_loss")


def _explains_keywords(function: _F) -> _F:
    """A keyword that the function does not have is an error that says which one is meant."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() - known.keys():
            what = f"{function.__name__}() has no argument {name!r}"
            if name in _OF_KERAS:
                raise TypeError(f"{what}, which is an argument of Keras: {_OF_KERAS[name]}")
            raise TypeError(f"{what}; {did_you_mean(name, known)}")
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


@_explains_keywords
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
    policy: Policy | Mapping[str, Any] | None = None,
    start_over: bool = False,
    verbose: int = 1,
) -> Any:
    """A callback for ``fit`` that saves, and goes on where the last save was.

    Args:
        model: the one that ``fit`` trains, of either flavour.
        directory: of the checkpoints; made when training begins.
        save_freq: ``epoch``, or a number of batches: then it saves after so many, and at the end of
            each epoch.
        monitor: the metric that ``save_best`` compares; None for none. The default counts where
            ``fit`` has validation data.
        mode: ``min``, ``max``, or ``auto``: as in Keras, by the name of the metric.
        save_best: how many of the best checkpoints are kept besides.
        max_to_keep: how many of the newest are kept; None keeps all.
        on_signal: signals that end the process after a save: ``["SIGTERM"]``.
        enable_async: whether files are written in the background.
        policy: what the restore may change, in the keys of a policy:
            ``{"optimizer": {"hyperparameters": "config"}}`` keeps the code's learning rate. Without
            it, all of the checkpoint comes back.
        start_over: restores nothing: training begins with the values that the model has, and saves
            go on with the next number.
        verbose: 0 is silent, 1 says a line for the restore and for each save.

    Raises:
        PolicyError: an argument is not what it can be.
        TypeError: an argument is missing, or there is none of that name.

    >>> import keras, numpy, tempfile, tfckpt.callbacks
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> model.compile("sgd", "mse")
    >>> callback = tfckpt.callbacks.resume(model, tempfile.mkdtemp() + "/run", verbose=0)
    >>> x, y = numpy.zeros((8, 4)), numpy.zeros((8, 2))
    >>> model.fit(x, y, epochs=2, callbacks=[callback], verbose=0).epoch
    [0, 1]
    """
    _check_places(model, directory)
    save: dict[str, Any] = {"every_epochs": 1, "on_signal": on_signal}
    if not isinstance(on_signal, str):
        save["on_signal"] = list(on_signal)
    if save_freq != "epoch":
        save["every_steps"] = save_freq
    keep: list[dict[str, Any]] = []
    if max_to_keep is not None:
        keep.append({"latest": max_to_keep})
        if monitor is not None and save_best:
            name = str(monitor)
            keep.append({"best": save_best, "monitor": name, "mode": _mode(mode, name)})
    where = os.fspath(directory)
    config = {
        "version": 1,
        "manager": {"directory": where, "save": save, "keep": keep, "enable_async": enable_async},
        "restore": {
            "directory": where,
            "if_none": "initialize",
            **({} if policy is None else {"policy": policy}),
        },
    }
    try:
        loaded = load_config(config)
    except PolicyError as error:
        raise _of_arguments(error, save_freq) from None
    if monitor is _VAL_LOSS:
        loaded = _where_measured(loaded)
    return from_config(loaded, model=model).callback(verbose, start_over=start_over)


def _where_measured(config: Config) -> Config:
    """The config, whose ``best`` keeps nothing until a checkpoint has the metric."""
    manager = config.manager
    assert manager is not None, "it was made of the arguments"  # noqa: S101 (narrows the type)
    keep = tuple(
        KeepWhereMeasured(**rule.model_dump(exclude_none=True)) if rule.best else rule
        for rule in manager.keep
    )
    return config.model_copy(update={"manager": manager.model_copy(update={"keep": keep})})


def _check_places(model: Any, directory: Any) -> None:
    """Raise where model and directory have changed places.

    Raises:
        TypeError: it says which comes first.
    """
    if isinstance(model, str | os.PathLike):
        found = show_value(os.fspath(model))
        raise TypeError(f"resume(model, directory): the model comes first, found {found}")
    if not isinstance(directory, str | os.PathLike):
        found = type(directory).__name__
        raise TypeError(f"resume(model, directory): the directory must be a path, found {found}")


def _of_arguments(error: PolicyError, save_freq: Any) -> PolicyError:
    """The error about a config that nobody has written, in terms of the arguments."""
    problems = []
    for problem in error.problems:
        place, _, message = problem.message.partition(": ")
        path = next((path for path in _ARGUMENTS if place.startswith(path)), "")
        told = f"{_ARGUMENTS[path]}{place.removeprefix(path)}: {message}" if path else place
        if path == "manager.save.every_steps" and isinstance(save_freq, str):
            told = f"save_freq: expected 'epoch' or a number of batches, found {save_freq!r}"
        problems.append(Problem(told, hint=problem.hint))
    return PolicyError("tfckpt.callbacks.resume", list(dict.fromkeys(problems)))


def _mode(mode: str, monitor: str) -> str:
    """What Keras's ModelCheckpoint takes ``auto`` for (keras/src/callbacks/model_checkpoint.py)."""
    if mode != "auto":
        return mode
    return (
        "max" if "acc" in monitor or "auc" in monitor or monitor.startswith("fmeasure") else "min"
    )
