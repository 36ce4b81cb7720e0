"""`tfckpt adopt`: commit records for checkpoints that plain TensorFlow wrote."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.json_document import show_json
from tfckpt.cli.output.progress import progress
from tfckpt.core.text import one_line, printable, size
from tfckpt.errors import CheckpointError, CheckpointNotFoundError
from tfckpt.manager.adoption import adopt
from tfckpt.stored.commits.writer_lock import lock_of
from tfckpt.stored.inspection.listing import listing
from tfckpt.stored.io.files import LOCAL

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.stored.commits.record import CommitRecord
    from tfckpt.stored.inspection.listing import ListedCheckpoint


def run(arguments: Arguments) -> int:
    """Adopt all that have no record; 1 where one cannot be."""
    directory = arguments.single("a directory of checkpoints")
    if not LOCAL.exists(directory):
        raise CheckpointNotFoundError("there is no such directory", path=directory)
    lock_of(directory).acquire()
    found = [one for one in listing(directory) if one.head is None]
    adopted: list[tuple[ListedCheckpoint, CommitRecord]] = []
    refused: list[tuple[ListedCheckpoint, str]] = []
    for one in reversed(found):
        if one.problem:
            refused.append((one, one.problem))
            continue
        try:
            with progress(one.prefix) as advance:
                adopted.append((one, adopt(one, advance)))
        except CheckpointError as error:
            refused.append((one, str(error)))
    if arguments.json:
        show_json(_document(directory, adopted, refused))
    else:
        _print(adopted)
    for one, reason in refused:
        print(f"tfckpt: {printable(one.prefix)}: not adopted: {one_line(reason)}", file=sys.stderr)
    return 1 if refused else 0


def _print(adopted: list[tuple[ListedCheckpoint, CommitRecord]]) -> None:
    for one, record in adopted:
        step = "" if record.step is None else f", step {record.step:,}"
        many = f"{len(record.inventory.entries):,} values, {size(one.nbytes)}{step}"
        print(f"adopted {printable(one.prefix)} ({many})")
    if not adopted:
        print("nothing to adopt")
    else:
        print("\nRules of what to keep hold for them from now on.")


def _document(
    directory: str,
    adopted: list[tuple[ListedCheckpoint, CommitRecord]],
    refused: list[tuple[ListedCheckpoint, str]],
) -> dict[str, Any]:
    return {
        "version": 1,
        "directory": directory,
        "adopted": [
            {"path": one.prefix, "step": record.step, "finite": record.finite}
            for one, record in adopted
        ],
        "refused": [{"path": one.prefix, "reason": reason} for one, reason in refused],
    }
