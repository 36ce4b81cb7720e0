"""`tfckpt list`: the checkpoints of a directory, and what the rules would delete of them."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.find_checkpoint import files_of
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.core.text import one_line, size
from tfckpt.errors import CheckpointNotFoundError
from tfckpt.stored.inspection.listing import listing
from tfckpt.stored.paths.lookalikes import For, look

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.manager.retention import Decision
    from tfckpt.stored.inspection.listing import ListedCheckpoint

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def run(arguments: Arguments) -> int:
    """List a directory; 1 where any checkpoint in it is damaged or torn."""
    directory = arguments.single("a directory of checkpoints")
    files, found = files_of(directory), []
    with contextlib.suppress(CheckpointNotFoundError):  # it is a file
        found = listing(directory, files)
    if not found:
        nothing = look(directory, files)
        raise CheckpointNotFoundError(
            f"no checkpoint in {directory}", hint="\n  ".join(nothing.lines(For.COMMAND))
        )
    decision = _decision(arguments, directory, found)
    if arguments.json:
        show_json(_document(directory, found, decision))
    else:
        show_listing(found, decision)
    return 1 if any(one.problem for one in found) else 0


def _decision(
    arguments: Arguments, directory: str, found: list[ListedCheckpoint]
) -> Decision | None:
    if arguments.text("config") is None and not arguments.texts("keep"):
        return None
    from tfckpt.cli.arguments.retention_flags import rules_of
    from tfckpt.cli.commands.prune import decide_for  # with pydantic, which the rules need

    return decide_for(directory, found, rules_of(arguments), arguments.text("checkpoint_name"))[1]


def show_listing(found: list[ListedCheckpoint], decision: Decision | None) -> None:
    """Print a line for each checkpoint, the newest first."""
    from tfckpt.cli.output.tables import show

    now = time.time()
    rows = [
        (
            os.path.split(one.prefix)[1],
            "" if one.head is None or one.head.step is None else f"{one.head.step:,}",
            age(now - one.time),
            size(one.nbytes),
            one.state,
            _notes(one, decision),
        )
        for one in found
    ]
    show(("checkpoint", "step", "age", "size", "state", "notes"), rows, 1, 2, 3, wraps=True)


def _notes(one: ListedCheckpoint, decision: Decision | None) -> str:
    parent = os.path.split(one.prefix)[0]
    notes = [one_line(one.problem.replace(f"{parent}/", ""))] if one.problem else []
    if decision is not None:
        if one.prefix in decision.delete:
            notes.append("no rule keeps it: would be deleted")
        else:
            notes.extend(decision.kept.get(one.prefix, ()))
    if one.head is not None:
        notes.extend(f"{name} {value:g}" for name, value in one.head.metrics.items())
        notes.extend(["not all numbers finite"] * (one.head.finite is False))
    return ", ".join(notes)


def age(seconds: float) -> str:
    """How long ago, in the largest unit of which there are two.

    >>> age(1), age(3600), age(90000), age(3e6)
    ('1 s', '60 min', '25 h', '34 d')
    """
    for length, unit in _UNITS:
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"


def _document(
    directory: str, found: list[ListedCheckpoint], decision: Decision | None
) -> dict[str, Any]:
    return {
        "version": 1,
        "directory": directory,
        "checkpoints": [
            {
                "path": one.prefix,
                "number": one.number,
                "state": one.state,
                "time": datetime.datetime.fromtimestamp(
                    one.time, datetime.timezone.utc
                ).isoformat(),
                "step": one.head.step if one.head else None,
                "epoch": one.head.epoch if one.head else None,
                "metrics": dict(one.head.metrics) if one.head else {},
                "finite": one.head.finite if one.head else None,
                "nbytes": one.nbytes,
                "problem": one.problem or None,
                "kept": None if decision is None else list(decision.kept.get(one.prefix, ())),
                "delete": None if decision is None else one.prefix in decision.delete,
            }
            for one in found
        ],
    }
