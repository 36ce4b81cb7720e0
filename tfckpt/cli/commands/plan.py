"""`tfckpt plan`: show what a restore would do to a model that a script builds.

The user's own code builds the objects. What it prints goes to standard error, so that ``--json``
stays valid JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import tfckpt
from tfckpt.cli.arguments.command import Arguments, UsageError
from tfckpt.cli.arguments.load_model import load_objects
from tfckpt.core.text import printable
from tfckpt.planning import Severity
from tfckpt.policy.load import CONFIGS
from tfckpt.policy.messages import short

if TYPE_CHECKING:
    from collections.abc import Mapping

_STYLES = {
    Severity.ERROR: "bold red",
    Severity.WARN: "yellow",
    Severity.NOTE: "cyan",
    Severity.OK: "green",
}


def run(arguments: Arguments) -> int:
    """Print a plan; returns 1 if it is refused, unless --write has written a policy for it."""
    source = arguments.single("a config, a checkpoint or a directory")
    if (target := arguments.text("model")) is None:
        raise UsageError("plan needs --model MODULE:CALLABLE, which returns the model")
    if (file := arguments.text("write")) is not None and source.endswith(CONFIGS):
        raise UsageError(f"--write needs a checkpoint, not a config: add the lines to {source}")
    written = False
    with contextlib.redirect_stdout(sys.stderr):
        plan = plan_for(source, target)
        if (lock := arguments.text("lock")) is not None:
            plan = dataclasses.replace(plan, drift=())  # an older lock is replaced
            if plan.ok:
                print(_write_lock(plan, lock))
        if file is not None:
            written = _write_config(file, source, plan)
    if arguments.json:
        print(json.dumps(plan.to_json(), indent=2))
    else:
        _print(plan)
    return 0 if plan.ok or written else 1


def plan_for(source: str, target: str) -> tfckpt.Plan:
    """The plan of a config or a checkpoint for what ``--model`` names."""
    objects = load_objects(target)
    try:
        return tfckpt.plan(source, **objects)
    except ValueError as error:
        ours = isinstance(error, tfckpt.TfckptError)
        about_objects = not ours or isinstance(error, tfckpt.UntrackedError)
        if not (untrackable := _untrackable(objects) if about_objects else []):
            raise
        raise UsageError(
            f"--model {target} returned {', '.join(untrackable)}; it must return the model, "
            "or a dict of objects by name"
        ) from None


def _write_lock(plan: tfckpt.Plan, lock: str) -> str:
    """Write the lock of a plan; returns what has become of an older one."""
    from tfckpt.live.io.remote_files import files_of
    from tfckpt.live.restoring.lock_file import read_lock
    from tfckpt.planning.lock import drift

    old, new = read_lock(lock), plan.lock()
    found = () if old in {None, new} else drift(plan, old, lock)
    try:
        files_of(lock).write_atomic(lock, new.encode())
    except OSError as error:
        raise tfckpt.TfckptError(f"{lock}: cannot write the lock: {error}") from None
    changes = [f"  {problem.message.removeprefix(f'lock {lock}: ')}" for problem in found]
    wrote = "replaces a lock that differed:" if changes else "written"
    values = f"{len(plan.steps):,} value{'s' * (len(plan.steps) != 1)}"
    return "\n".join([f"lock {lock}: {values}, {wrote}", *changes])


def _write_config(file: str, source: str, plan: tfckpt.Plan) -> bool:
    """Write a config that restores a checkpoint by the suggested policy; whether there is one."""
    import yaml

    policy = plan.suggestion.policy if plan.suggestion is not None else None
    if policy is None:
        reason = "is needed" if plan.ok else "was found that would restore it"
        print(f"{printable(file)}: not written: no policy {reason}")
        return False
    kind = "directory" if os.path.isdir(source) else "path"  # noqa: PTH112  as it was typed
    keys = policy.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"name"})
    keys = {"api": "read", **keys}  # a run has a save counter, which this plan had not
    restore = {kind: source.replace("$", "$$"), "policy": "suggested"}
    config = {"version": 1, "restore": restore, "policies": {"suggested": keys}}
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
    try:
        with open(file, "x", encoding="utf-8") as stream:  # noqa: PTH123  as it was typed
            stream.write(text)
    except FileExistsError:
        raise tfckpt.TfckptError(f"{file} already exists; choose another name") from None
    except OSError as error:
        raise tfckpt.TfckptError(f"{file}: cannot write the config: {error}") from None
    print(f"{printable(file)}: written")
    return True


def _untrackable(objects: Mapping[str, Any]) -> list[str]:
    """The objects that a checkpoint cannot contain, as ``name = value``."""
    from tfckpt.live.private.tensorflow import Trackable

    return [
        f"{name} = {short(repr(obj))}"
        for name, obj in objects.items()
        if not isinstance(obj, (Trackable, list, tuple, dict))
    ]


def _print(plan: tfckpt.Plan) -> None:
    from tfckpt.cli.output import tables

    if not tables.is_terminal():
        print(plan)
        return
    from rich.console import Console
    from rich.text import Text

    from tfckpt.planning.report import rows

    console = Console(highlight=False, soft_wrap=True)
    for row in rows(plan, plan.suggestion):
        text = Text(row.text)
        if row.severity is not None:
            first = len(row.text) - len(row.text.lstrip())
            text.stylize(_STYLES[row.severity], first, first + len(row.text.split(maxsplit=1)[0]))
        console.print(text)
    if plan.suggestion is not None:
        console.print(Text(f"\n{plan.suggestion}"))
