"""`tfckpt plan`: what restoring by a config would do to a model that a script builds.

The objects come from the user's own code, by ``module:callable``, since nothing else knows how to
build them. What that code prints goes to standard error, so that ``--json`` stays JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

import tfckpt
from tfckpt.cli.command import Given, Misuse
from tfckpt.cli.objects import load_objects
from tfckpt.policy.messages import short

if TYPE_CHECKING:
    from collections.abc import Mapping


def run(given: Given) -> int:
    """Show a plan, and lock it on request; 1 where it would be refused."""
    config = given.one("a config file")
    if (target := given.text("model")) is None:
        raise Misuse("plan needs --model MODULE:CALLABLE, which returns the model to restore into")
    with contextlib.redirect_stdout(sys.stderr):
        objects = load_objects(target)
        try:
            plan = tfckpt.plan(config, **objects)
        except ValueError as error:
            unfit = [] if isinstance(error, tfckpt.TfckptError) else _unfit(objects)
            if not unfit:
                raise
            raise Misuse(
                f"--model {target} returned {', '.join(unfit)}: expected the model, or a "
                "dict of keyword objects"
            ) from None
        if (lock := given.text("lock")) is not None:
            plan = dataclasses.replace(plan, drift=())  # what an older lock said is over
            if plan.ok:
                _write(plan.lock(), lock)
    if given.json:
        print(json.dumps(plan.to_json(), indent=2))
    else:
        _print(plan)
    return 0 if plan.ok else 1


def _write(content: str, lock: str) -> None:
    from tfckpt.live.remote import files_of

    try:
        files_of(lock).write_atomic(lock, content.encode())
    except OSError as error:
        raise tfckpt.TfckptError(f"{lock}: the lock cannot be written: {error}") from None


def _unfit(objects: Mapping[str, Any]) -> list[str]:
    """What no checkpoint takes, as it is shown."""
    from tfckpt.live.variables import Trackable

    return [
        f"{name} = {short(repr(obj))}"
        for name, obj in objects.items()
        if not isinstance(obj, (Trackable, list, tuple, dict))
    ]


def _print(plan: tfckpt.Plan) -> None:
    from tfckpt.cli import tables

    if not tables.for_a_person():
        print(plan)
        return
    from rich.console import Console
    from rich.text import Text

    from tfckpt.planning.report import verdict
    from tfckpt.planning.text import printable

    console = Console(highlight=False)
    console.print(Text(verdict(plan), style="bold green" if plan.ok else "bold red"))
    if plan.training and plan.ok:
        console.print(Text(plan.training))
    for problem in plan.faults:
        text = problem.show(plan.file or f"policy {plan.policy}")
        console.print(Text("\n".join(map(printable, text.split("\n")))))
    console.print(tables.rich_table(plan))
