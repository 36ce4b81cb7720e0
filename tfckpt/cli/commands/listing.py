"""`tfckpt list`: list the checkpoints of a directory, and what retention rules would delete."""

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
from tfckpt.manager.retention import SavedCheckpoint, ranked
from tfckpt.stored.inspection.listing import listing
from tfckpt.stored.paths.lookalikes import Audience, look

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.manager.retention import Decision
    from tfckpt.stored.inspection.listing import ListedCheckpoint

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def run(arguments: Arguments) -> int:
    """List a directory; returns 1 if any checkpoint in it is damaged or torn."""
    directory = arguments.single("a directory of checkpoints")
    files, found = files_of(directory), []
    with contextlib.suppress(CheckpointNotFoundError):  # the path is a file
        found = listing(directory, files)
    if not found:
        nothing = look(directory, files)
        raise CheckpointNotFoundError(
            f"no checkpoint in {directory}", hint="\n  ".join(nothing.lines(Audience.COMMAND))
        )
    decision = _decision(arguments, directory, found)
    if arguments.json:
        show_json(_document(directory, found, decision))
    else:
        show_listing(found, decision)
    return 1 if any(checkpoint.problem for checkpoint in found) else 0


def _decision(
    arguments: Arguments, directory: str, found: list[ListedCheckpoint]
) -> Decision | None:
    if arguments.text("config") is None and not arguments.texts("keep"):
        return None
    from tfckpt.cli.arguments.retention_flags import rules_of
    from tfckpt.cli.commands.prune import decide_for  # imports pydantic

    return decide_for(directory, found, rules_of(arguments), arguments.text("checkpoint_name"))[1]


def show_listing(found: list[ListedCheckpoint], decision: Decision | None) -> None:
    """Print a line for each checkpoint, in the order of `found`."""
    from tfckpt.cli.output.tables import show

    now, best = time.time(), _best(found)
    rows = [
        (
            os.path.split(checkpoint.prefix)[1],
            ""
            if checkpoint.head is None or checkpoint.head.step is None
            else f"{checkpoint.head.step:,}",
            age(now - checkpoint.time),
            size(checkpoint.nbytes),
            checkpoint.state,
            _notes(checkpoint, decision, best),
        )
        for checkpoint in found
    ]
    show(("checkpoint", "step", "age", "size", "state", "notes"), rows, 1, 2, 3, wraps=True)


def _best(found: list[ListedCheckpoint]) -> tuple[str, str]:
    """The path of the best checkpoint by the rule of the newest that has one, and the metric."""
    heads = {one.prefix: one.head for one in found if one.head is not None}
    best_by = next((head.best_by for head in heads.values() if head.best_by), None)
    if best_by is None:
        return "", ""
    saved = [
        SavedCheckpoint(prefix, head.number, head.time, head.step, head.metrics, head.finite)
        for prefix, head in heads.items()
    ]
    metric, mode = best_by
    best = ranked(saved, 1, metric, greatest=mode == "max")
    return (best[0].prefix if best else ""), metric


def _notes(checkpoint: ListedCheckpoint, decision: Decision | None, best: tuple[str, str]) -> str:
    parent = os.path.split(checkpoint.prefix)[0]
    notes = [one_line(checkpoint.problem.replace(f"{parent}/", ""))] if checkpoint.problem else []
    if checkpoint.prefix == best[0]:
        notes.append(f"the best by {best[1]}")
    if decision is not None:
        if checkpoint.prefix in decision.delete:
            notes.append("no rule keeps it: would be deleted")
        else:
            notes.extend(decision.kept.get(checkpoint.prefix, ()))
    if checkpoint.head is not None:
        notes.extend(f"{name} {value:g}" for name, value in checkpoint.head.metrics.items())
        notes.extend(["has NaN or infinite values"] * (checkpoint.head.finite is False))
    return ", ".join(notes)


def age(seconds: float) -> str:
    """A time span in the largest unit of which it has at least two.

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
    best = _best(found)[0]
    return {
        "version": 1,
        "directory": directory,
        "checkpoints": [
            {
                "path": checkpoint.prefix,
                "number": checkpoint.number,
                "state": checkpoint.state,
                "time": datetime.datetime.fromtimestamp(
                    checkpoint.time, datetime.timezone.utc
                ).isoformat(),
                "step": checkpoint.head.step if checkpoint.head else None,
                "epoch": checkpoint.head.epoch if checkpoint.head else None,
                "metrics": dict(checkpoint.head.metrics) if checkpoint.head else {},
                "metadata": dict(checkpoint.head.metadata) if checkpoint.head else {},
                "best": checkpoint.prefix == best,
                "finite": checkpoint.head.finite if checkpoint.head else None,
                "nbytes": checkpoint.nbytes,
                "problem": checkpoint.problem or None,
                "kept": None
                if decision is None
                else list(decision.kept.get(checkpoint.prefix, ())),
                "delete": None if decision is None else checkpoint.prefix in decision.delete,
            }
            for checkpoint in found
        ],
    }
