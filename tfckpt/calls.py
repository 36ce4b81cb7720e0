"""``from_config``, ``restore``, ``plan``, ``suggest`` and ``inventory``.

``restore`` and ``plan`` take a config, or the path of a checkpoint with a policy, since the first
thing that people write is ``restore("runs/digits/ckpt-18", model=model)``. What exists at a path
decides what it is: a checkpoint, a directory of them, or a text file, which is a config. Keywords
that are keys of a policy and hold no object make up the policy; all others are objects.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tfckpt.errors import ARGUMENTS, CheckpointNotFoundError, PolicyError, Problem, TfckptError
from tfckpt.live.advice import PolicyCall, adding_call
from tfckpt.live.arguments import (
    BY_CONFIG,
    BY_POLICY,
    OBJECTS,
    check_arguments,
    holds_object,
    keys_and_objects,
    one_policy,
)
from tfckpt.live.checkpoint import Checkpoint
from tfckpt.live.inventory import collect
from tfckpt.live.private.tensorflow import naming_what_is_gone
from tfckpt.live.restore import RestoreSource
from tfckpt.policy import STRICT, Config, Policy, Restore, Source, load_config, load_policy
from tfckpt.policy.load import has_config_name
from tfckpt.policy.messages import show_value
from tfckpt.run import Run
from tfckpt.stored.commits.discovery import listed
from tfckpt.stored.io.explain import What, not_found, shown, what_is
from tfckpt.stored.io.files import LOCAL, absolute, files_of
from tfckpt.training.resumption import plan_from, restore_from, warn_of
from tfckpt.training.saves import check_step

if TYPE_CHECKING:
    from tfckpt.core.inventory import Inventory
    from tfckpt.planning import Plan, RestoreReport
    from tfckpt.planning.suggested import Suggestion

ConfigSource: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | Config"


def from_config(config: ConfigSource, model: Any = None, /, **objects: Any) -> Run:
    """Make a run: a config, with the objects that it saves and restores.

    Args:
        config: a YAML file, its content as a mapping, or a ``Config``.
        model: the same as ``model=``.
        **objects: by keyword, as for :class:`tfckpt.Checkpoint`.

    Raises:
        PolicyError: all errors of the config, each with its line.
        TfckptError: no object was passed, or ``step`` is not an integer.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> config = {"version": 1, "manager": {"directory": tempfile.mkdtemp()}}
    >>> run = tfckpt.from_config(config, model)
    >>> run.save(metrics={"val_loss": 0.5})[-6:]
    'ckpt-1'
    """
    path, meant = _meaning_of(config)
    if path is not None and meant is not None:
        hint = (
            f"to restore from it once, call `tfckpt.restore({path!r}, model=model)`; a config says "
            "`restore: {path: …}` or `restore: {directory: …}`"
        )
        what = "is a directory" if meant.directory else "is a checkpoint"
        raise PolicyError(path, [Problem(f"{what}, not a config", hint=hint)])
    call = "from_config(config, model=model)"
    return Run(_loaded(call, config), _objects(call, model, objects))


@naming_what_is_gone
def restore(
    source: ConfigSource,
    model: Any = None,
    /,
    *,
    policy: Policy | Mapping[str, Any] | None = None,
    select: str | int | None = None,
    **objects: Any,
) -> RestoreReport:
    """Restore live objects once, completely or not at all.

    Args:
        source: the path of a checkpoint; a directory of checkpoints, of which the newest readable
            one is used; or a config, as for :func:`from_config`.
        model: the same as ``model=``.
        policy: what may be restored of a checkpoint; without one, everything must match. A config
            has its own policies.
        select: which checkpoint of a directory, as in a config: ``latest``, which is the default,
            ``best`` by the metric that the run was saved by, or a number.
        **objects: by keyword, as for :class:`tfckpt.Checkpoint`. Keys of a policy may be keywords,
            too, in place of ``policy``: ``include=["model/**"]``.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        DamagedCheckpointError: there is one, but it cannot be read.
        NotBuiltError: a model has no variables yet.
        PolicyError: the config or the policy is not valid.
        RefusedError: the plan has errors; the message says what to do.
        TfckptError: no object was passed.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> path = tfckpt.Checkpoint(model=model).save(tempfile.mkdtemp() + "/ckpt")
    >>> report = tfckpt.restore(path, model, exclude=["model/out/bias"])
    >>> [step.name for step in report.plan.assignments]
    ['model/out/kernel']
    """
    given = _arguments("restore", source, model, objects, policy=policy, select=select)
    with adding_call(given.call):
        report, _ = restore_from(given.source, given.objects, given.counter)
    warn_of(report)
    return report


@naming_what_is_gone
def plan(
    source: ConfigSource,
    model: Any = None,
    /,
    *,
    policy: Policy | Mapping[str, Any] | None = None,
    select: str | int | None = None,
    **objects: Any,
) -> Plan:
    """The plan that :func:`restore` would carry out; assigns nothing."""
    given = _arguments("plan", source, model, objects, policy=policy, select=select)
    return plan_from(given.source, given.objects, given.counter)


def suggest(
    source: ConfigSource,
    model: Any = None,
    /,
    *,
    policy: Policy | Mapping[str, Any] | None = None,
    select: str | int | None = None,
    **objects: Any,
) -> Suggestion | None:
    """What makes a refused restore possible, with the fewest lines of policy; assigns nothing.

    Takes the arguments of :func:`restore`. Its ``policy`` restores what is certain to be the same;
    it is None where a person must first make one of its ``choices``. The suggestion is None if
    :func:`restore` is not refused, or if the checkpoint seems to be one of another model.

    >>> import keras, tempfile, tfckpt
    >>> old, new = (
    ...     keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name=name)])
    ...     for name in ("out", "classes")
    ... )
    >>> path = tfckpt.Checkpoint(model=old).save(tempfile.mkdtemp() + "/ckpt")
    >>> print(tfckpt.suggest(path, new))
    this policy restores 2 of 2 values:
    <BLANKLINE>
        rename: [{checkpoint: "model/out/**", model: "model/classes/**"}]
    """
    return plan(source, model, policy=policy, select=select, **objects).suggestion


@naming_what_is_gone
def inventory(model: Any = None, /, **objects: Any) -> Inventory:
    """The canonical names of live objects, as policies and reports use them.

    Raises:
        ValueError: an argument is not trackable.

    >>> import keras, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> list(tfckpt.inventory(model).entries)
    ['model/out/bias', 'model/out/kernel']
    """
    objects = _with_model(model, objects)
    check_arguments(None, objects, OBJECTS)
    return collect(objects).inventory


def _loaded(call: str, config: ConfigSource) -> Config:
    if holds_object(config):
        problem = Problem(f"the first argument is a {type(config).__name__}", hint=f"write {call}")
        raise PolicyError(ARGUMENTS, [problem])
    return load_config(config)


def _objects(call: str, model: Any, objects: Mapping[str, Any]) -> dict[str, Any]:
    if not (combined := _with_model(model, objects)):
        raise TfckptError("no model was given", hint=f"write {call}")
    return combined


class _Arguments(NamedTuple):
    """What ``restore`` and ``plan`` make of theirs; ``call`` is how a policy would be passed."""

    source: Config | RestoreSource
    objects: Mapping[str, Any]
    counter: Any = None
    call: PolicyCall | None = None


def _arguments(
    name: str,
    source: ConfigSource | None,
    model: Any,
    objects: dict[str, Any],
    **given: Any,
) -> _Arguments:
    """``given`` are ``policy`` and ``select``, which a config has in itself."""
    if source is None:
        hint = "tf.train.latest_checkpoint returns None if it finds no checkpoint"
        raise CheckpointNotFoundError("None was given as the source", hint=hint)
    call = f"{name}(source, model=model)"
    path, meant = _meaning_of(source)
    keys, objects = keys_and_objects(objects)
    if path is not None and meant is not None:
        policy = _policy(one_policy(given["policy"], keys))
        found = _source_at(path, meant, policy, given["select"])
        objects = _objects(call, model, objects)
        check_arguments(None, objects, BY_POLICY)
        return _Arguments(found, objects, call=PolicyCall.of(path, objects, None))
    if path is not None and not has_config_name(path) and not LOCAL.exists(path):
        message = f"there is neither a checkpoint nor a config file {absolute(path)}"
        raise CheckpointNotFoundError(message, hint=not_found(path, LOCAL).hint)
    if own := [*(key for key, value in given.items() if value is not None), *keys]:
        what = " and ".join(f"`{key}`" for key in own)
        hint = "write it into the config, or pass the path of a checkpoint as the source"
        message = f"a config has its own policies, but {what} was passed as well"
        raise PolicyError(ARGUMENTS, [Problem(message, hint=hint)])
    config, objects = _loaded(call, source), _objects(call, model, objects)
    check_arguments(None, objects, BY_CONFIG)
    if "step" in objects:
        check_step(objects["step"])
    return _Arguments(config, objects, Checkpoint(**objects).save_counter)


def _meaning_of(source: object) -> tuple[str | None, What | None]:
    """The path, if it is one; and what it is, if that is a checkpoint or a directory, no config."""
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    what = None if path is None or has_config_name(path) else what_is(path, files_of(path))
    return path, what if what and (what.checkpoint or what.directory) else None


def _source_at(path: str, meant: What, policy: Policy, select: Any) -> Config | RestoreSource:
    """A checkpoint, or the config that restores one of a directory."""
    if meant.directory:
        selected = {} if select is None else {"select": select}
        name = _checkpoint_name(path, meant.names)
        source = Source(directory=path, checkpoint_name=name, policy=policy, **selected)
        return Config(version=1, restore=Restore(first_of=(source,)))
    if select is not None:
        hint = "leave `select` out, or pass the directory"
        problem = Problem(f"`select` is for a directory, but {path} is a checkpoint", hint=hint)
        raise PolicyError(ARGUMENTS, [problem])
    return RestoreSource(meant.checkpoint, policy)


def _checkpoint_name(directory: str, names: Collection[str]) -> str:
    """The common name of all checkpoints of a directory with these files."""
    newest: dict[str, str] = {}
    for one in listed(directory, names, None):
        newest.setdefault(os.path.split(one.prefix)[1].rpartition("-")[0], one.prefix)
    if not newest:
        hint = not_found(directory, files_of(directory)).hint
        raise CheckpointNotFoundError("there is no checkpoint in it", path=directory, hint=hint)
    if len(newest) > 1:
        message = f"has checkpoints of several names, {shown(sorted(newest))}"
        hint = f"pass one of them instead: {' or '.join(map(repr, newest.values()))}"
        raise CheckpointNotFoundError(message, path=directory, hint=hint)
    return next(iter(newest))


def _policy(policy: object) -> Policy:
    if policy is None:
        return STRICT
    if not isinstance(policy, Policy | Mapping):
        message = f"policy: expected a Policy or a mapping, found {show_value(policy)}"
        hint = "a named policy can be used only in the config that defines it"
        raise PolicyError(ARGUMENTS, [Problem(message, hint=hint)])
    return load_policy(policy, called=ARGUMENTS)


def _with_model(model: Any, objects: Mapping[str, Any]) -> dict[str, Any]:
    if model is None:
        return dict(objects)
    if "model" in objects:
        raise TypeError("two models were given, one as a positional argument and one as `model=`")
    return {"model": model, **objects}
