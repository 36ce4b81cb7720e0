"""``tfckpt.callbacks.resume()``: the callback for ``fit`` without a config."""

from __future__ import annotations

import functools
import inspect
import os
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tfckpt.calls import from_config
from tfckpt.core.similar import did_you_mean
from tfckpt.errors import PolicyError, Problem
from tfckpt.live.advice import PolicyCall
from tfckpt.live.arguments import (
    BY_POLICY,
    CallSignature,
    holds_object,
    instead_of,
    keys_and_objects,
    one_policy,
)
from tfckpt.manager.arguments import check_record
from tfckpt.policy import load_config, words
from tfckpt.policy.manager import KeepWhereMeasured
from tfckpt.policy.messages import show_value
from tfckpt.stored.commits.record_file import CommitRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfckpt.policy import Config, Policy

_F = TypeVar("_F", bound="Callable[..., Any]")

# Paths in the config that is made of the arguments.
_ARGUMENTS = {
    "manager.directory": "directory",
    "manager.save.every_steps": "save_freq",
    "manager.save.every_epochs": "every_n_epochs",
    "manager.save.on_signal": "on_signal",
    "manager.keep[0].latest": "max_to_keep",
    "manager.keep[1].best": "save_best",
    "manager.keep[1].monitor": "monitor",
    "manager.keep[1].mode": "mode",
    "manager.load_best_when_done": "load_best_when_done",
    "manager.enable_async": "enable_async",
    "manager.include": "include",
    "restore.policy": "policy",
}


class _Named(Protocol):
    """What TensorFlow and Keras save: so a type checker finds a misspelled argument."""

    @property
    def name(self) -> Any: ...


# Values that are no object to save.
_NO_OBJECTS = (str, int, float, os.PathLike, type(None), list, tuple, dict)


class _Default(str):
    """The default metric: without validation data, ``fit`` never measures it."""


_VAL_LOSS = _Default("val_loss")


def _explains_keywords(function: _F) -> _F:
    """Take keys of a policy as one, and make an unknown keyword an error that says what to write.

    A keyword that holds no object is unknown.
    """
    known = inspect.signature(function).parameters
    call = CallSignature(arguments=frozenset(known) - {"objects"} | BY_POLICY.arguments)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        keys, others = keys_and_objects({k: v for k, v in kwargs.items() if k not in known})
        for name, value in others.items():
            if holds_object(value) or not isinstance(value, _NO_OBJECTS) or value in ([], {}, ()):
                continue
            what = f"{function.__name__}() has no argument {name!r}"
            if name in words.RESUME:
                raise TypeError(f"{what}, which is an argument of Keras: {words.RESUME[name]}")
            raise TypeError(f"{what}; {instead_of(name, value, call) or did_you_mean(name, known)}")
        given = {name: value for name, value in kwargs.items() if name in known}
        if keys:
            given["policy"] = one_policy(given.get("policy"), keys)
        return function(*args, **given, **others)

    return checked  # type: ignore[return-value]


@_explains_keywords
def resume(
    model: Any,
    directory: str | os.PathLike[str],
    *,
    save_freq: str | int = "epoch",
    every_n_epochs: int = 1,
    monitor: str | None = _VAL_LOSS,
    mode: str = "auto",
    save_best: int = 1,
    max_to_keep: int | None = 3,
    load_best_when_done: bool = False,
    on_signal: Iterable[str] = (),
    enable_async: bool = False,
    include: str = "all",
    policy: Policy | Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    start_over: bool = False,
    verbose: int = 1,
    **objects: _Named,
) -> Any:
    """A callback for ``fit`` that saves, and resumes from the last save.

    Args:
        model: the one that ``fit`` trains, of Keras 3 or tf_keras.
        directory: of the checkpoints; created when training begins.
        save_freq: ``epoch``, or a number of batches: then it saves after each such number, and at
            the end of an epoch.
        every_n_epochs: how often it saves at the end of an epoch, besides the last.
        monitor: the metric that ``save_best`` compares; None for none. The default applies if
            ``fit`` has validation data.
        mode: ``min``, ``max``, or ``auto``: by the name of the metric, as far as it says.
        save_best: how many of the best checkpoints to keep besides the newest.
        max_to_keep: how many of the newest to keep; None keeps all.
        load_best_when_done: whether the model gets the weights of the best checkpoint when ``fit``
            is done, as by ``EarlyStopping(restore_best_weights=True)``.
        on_signal: signals that end the process after a save: ``["SIGTERM"]``.
        enable_async: whether files are written in the background.
        include: ``all``, or ``trainable``: what is frozen is written once, and shared.
        policy: keys of a policy for the restore: ``{"optimizer": {"hyperparameters": "config"}}``
            keeps the code's learning rate. They may be keywords, too:
            ``exclude=["model/head/**"]``. Without any, everything is restored.
        metadata: of each save: JSON values, which ``tfckpt inspect`` shows.
        start_over: restores nothing: training starts from the model's current values, and saves
            continue with the next number. What is there already stays.
        verbose: 0 prints nothing, 1 a line for the restore and for each save.
        objects: what else training changes, each saved by its keyword: ``teacher=teacher``.

    Raises:
        PolicyError: an argument is not valid.
        TypeError: an argument is missing or unknown.

    >>> import keras, numpy, tempfile, tfckpt.callbacks
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> model.compile("sgd", "mse")
    >>> callback = tfckpt.callbacks.resume(model, tempfile.mkdtemp() + "/run", verbose=0)
    >>> x, y = numpy.zeros((8, 4)), numpy.zeros((8, 2))
    >>> model.fit(x, y, epochs=2, callbacks=[callback], verbose=0).epoch
    [0, 1]
    """
    _check_order(model, directory)
    save = {"every_epochs": every_n_epochs, "on_signal": on_signal}
    if not isinstance(on_signal, str):
        save["on_signal"] = list(on_signal)
    if save_freq != "epoch":
        save["every_steps"] = save_freq
    keep: list[dict[str, Any]] = []
    if max_to_keep is not None:
        keep.append({"latest": max_to_keep})
        if monitor is not None and save_best:
            best = {"best": save_best, "monitor": str(monitor)}
            keep.append(best if mode == "auto" else {**best, "mode": mode})
    config = {
        "version": 1,
        "manager": {
            "directory": os.fspath(directory),
            "save": save,
            "keep": keep,
            "load_best_when_done": load_best_when_done,
            "enable_async": enable_async,
            "include": include,
        },
        "restore": "own" if policy is None else {"directory": "own", "policy": policy},
    }
    try:
        loaded = load_config(config)
    except PolicyError as error:
        raise _of_arguments(error, save_freq) from None
    if monitor is _VAL_LOSS:
        loaded = _where_measured(loaded)
    run = from_config(loaded, model=model, **objects)
    check_record(CommitRecord(metadata=metadata or {}))
    run.metadata = metadata
    run.call = PolicyCall(
        "tfckpt.callbacks.resume", ("model", repr(os.fspath(directory))), start_over=True
    )
    return run.callback(verbose, start_over=start_over)


def _where_measured(config: Config) -> Config:
    """The config, with ``best`` ignored until a checkpoint has the metric."""
    manager = config.manager
    assert manager is not None, "resume() writes a manager section"  # noqa: S101 (narrows the type)
    keep = tuple(
        KeepWhereMeasured(**rule.model_dump(exclude_none=True)) if rule.best else rule
        for rule in manager.keep
    )
    return config.model_copy(update={"manager": manager.model_copy(update={"keep": keep})})


def _check_order(model: Any, directory: Any) -> None:
    """Raise a TypeError if model and directory are swapped."""
    if isinstance(model, str | os.PathLike):
        found = show_value(os.fspath(model))
        raise TypeError(f"resume(model, directory): the model comes first, found {found}")
    if not isinstance(directory, str | os.PathLike):
        found = type(directory).__name__
        raise TypeError(f"resume(model, directory): the directory must be a path, found {found}")


def _of_arguments(error: PolicyError, save_freq: Any) -> PolicyError:
    """The error in terms of the arguments, from one about the config made of them."""
    problems = []
    for problem in error.problems:
        key, _, message = problem.message.partition(": ")
        path = next((path for path in _ARGUMENTS if key.startswith(path)), "")
        text = f"{_ARGUMENTS[path]}{key.removeprefix(path)}: {message}" if path else key
        if path == "manager.save.every_steps" and isinstance(save_freq, str):
            text = f"save_freq: expected 'epoch' or a number of batches, found {save_freq!r}"
        hint = problem.hint
        if path == "manager.include" and not hint:
            hint = "it says what a save writes; a restore has policy={'include': […]}"
        problems.append(Problem(text, hint=hint))
    return PolicyError("tfckpt.callbacks.resume", list(dict.fromkeys(problems)))
