"""`tfckpt list`: list the checkpoints of a directory, and what retention rules would delete."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import usage_errors
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.core.tables import GAP
from tfckpt.core.text import one_line, size
from tfckpt.tools.listing import list_checkpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.policy import Keep
    from tfckpt.stored.inspection.listing import ListedCheckpoint

_NOTES = 20  # columns that are left for them
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def run(arguments: Arguments) -> int:
    """List a directory; returns 1 if any checkpoint in it is damaged or torn."""
    directory = arguments.single("a directory of checkpoints")
    name = arguments.text("checkpoint_name")
    with usage_errors(arguments):
        found = list_checkpoints(directory, keep=keep_rules(arguments), checkpoint_name=name)
    if arguments.json:
        rows = [checkpoint.to_json() for checkpoint in found]
        show_json({"version": 1, "directory": directory, "checkpoints": rows})
    else:
        show_listing(found)
    return 1 if any(checkpoint.problem for checkpoint in found) else 0


def keep_rules(arguments: Arguments) -> Sequence[Keep]:
    """The rules of --keep or --config; () without either."""
    if arguments.text("config") is None and not arguments.texts("keep"):
        return ()
    from tfckpt.cli.arguments.retention_flags import rules_of  # imports pydantic

    return rules_of(arguments)


def show_listing(found: Sequence[ListedCheckpoint]) -> None:
    """Print a line for each checkpoint, in the order of `found`."""
    from tfckpt.cli.output.tables import columns, show

    now = time.time()
    rows = [
        (
            os.path.split(checkpoint.prefix)[1],
            ""
            if checkpoint.head is None or checkpoint.head.step is None
            else f"{checkpoint.head.step:,}",
            age(now - checkpoint.time),
            size(checkpoint.nbytes),
            checkpoint.state,
        )
        for checkpoint in found
    ]
    title = ("checkpoint", "step", "age", "size", "state")
    widths = [max(map(len, column)) for column in zip(title, *rows, strict=True)]
    metrics = _fitting(found, columns() - sum(widths) - len(GAP) * len(widths) - _NOTES)
    table = [
        (*row, *(_metric(checkpoint, name) for name in metrics), _notes(checkpoint, metrics))
        for row, checkpoint in zip(rows, found, strict=True)
    ]
    right = (1, 2, 3, *range(len(title), len(title) + len(metrics)))
    show((*title, *metrics, "notes"), table, *right, wraps=True)


def _fitting(found: Sequence[ListedCheckpoint], width: int) -> list[str]:
    """The metrics that have room for a column each; that of the best first."""
    best = [checkpoint.best_by for checkpoint in found if checkpoint.best_by]
    heads = [checkpoint.head for checkpoint in found if checkpoint.head is not None]
    names = dict.fromkeys([*best, *(name for head in heads for name in head.metrics)])
    fitting = []
    for name in names:
        cells = (name, *(_metric(checkpoint, name) for checkpoint in found))
        needed = max(map(len, cells)) + len(GAP)
        if needed <= width:
            fitting.append(name)
            width -= needed
    return fitting


def _metric(checkpoint: ListedCheckpoint, name: str) -> str:
    found = checkpoint.head.metrics.get(name) if checkpoint.head is not None else None
    return "" if found is None else f"{found:g}"


def _notes(checkpoint: ListedCheckpoint, shown: Sequence[str]) -> str:
    """What there is to say, and the metrics that have no column."""
    parent = os.path.split(checkpoint.prefix)[0]
    notes = [one_line(checkpoint.problem.replace(f"{parent}/", ""))] if checkpoint.problem else []
    if checkpoint.best_by:
        notes.append(f"the best by {checkpoint.best_by}")
    if checkpoint.delete:
        notes.append("no rule keeps it: would be deleted")
    else:
        notes.extend(checkpoint.kept or ())
    if checkpoint.head is not None:
        others = (name for name in checkpoint.head.metrics if name not in shown)
        notes.extend(f"{name} {_metric(checkpoint, name)}" for name in others)
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
