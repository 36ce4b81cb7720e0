"""`tfckpt adopt`: write commit records for checkpoints of plain TensorFlow."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.json_document import show_json
from tfckpt.cli.output.progress import progress
from tfckpt.core.text import one_line, printable, size
from tfckpt.errors import CheckpointError, CheckpointNotFoundError
from tfckpt.manager.adoption import adopt
from tfckpt.stored.commits.recovery import claim
from tfckpt.stored.inspection.listing import listing
from tfckpt.stored.io.files import LOCAL

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.stored.commits.record import CommitRecord
    from tfckpt.stored.inspection.listing import ListedCheckpoint


def run(arguments: Arguments) -> int:
    """Adopt all checkpoints without a record; returns 1 if one could not be adopted."""
    directory = arguments.single("a directory of checkpoints")
    if not LOCAL.exists(directory):
        raise CheckpointNotFoundError("the directory does not exist", path=directory)
    claim(directory, None, LOCAL)
    unrecorded = [checkpoint for checkpoint in listing(directory) if checkpoint.head is None]
    adopted: list[tuple[ListedCheckpoint, CommitRecord]] = []
    refused: list[tuple[ListedCheckpoint, str]] = []
    for checkpoint in reversed(unrecorded):
        if checkpoint.problem:
            refused.append((checkpoint, checkpoint.problem))
            continue
        try:
            with progress(checkpoint.prefix) as advance:
                adopted.append((checkpoint, adopt(checkpoint, advance)))
        except CheckpointError as error:
            refused.append((checkpoint, str(error)))
    if arguments.json:
        show_json(_document(directory, adopted, refused))
    else:
        _print(adopted)
    for checkpoint, reason in refused:
        print(
            f"tfckpt: {printable(checkpoint.prefix)}: not adopted: {one_line(reason)}",
            file=sys.stderr,
        )
    return 1 if refused else 0


def _print(adopted: list[tuple[ListedCheckpoint, CommitRecord]]) -> None:
    for checkpoint, record in adopted:
        step = "" if record.step is None else f", step {record.step:,}"
        summary = f"{len(record.inventory.entries):,} values, {size(checkpoint.nbytes)}{step}"
        print(f"adopted {printable(checkpoint.prefix)} ({summary})")
    if not adopted:
        print("nothing to adopt")
    else:
        print("\nFrom now on, retention rules apply to them.")


def _document(
    directory: str,
    adopted: list[tuple[ListedCheckpoint, CommitRecord]],
    refused: list[tuple[ListedCheckpoint, str]],
) -> dict[str, Any]:
    return {
        "version": 1,
        "directory": directory,
        "adopted": [
            {"path": checkpoint.prefix, "step": record.step, "finite": record.finite}
            for checkpoint, record in adopted
        ],
        "refused": [
            {"path": checkpoint.prefix, "reason": reason} for checkpoint, reason in refused
        ],
    }
