"""Which checkpoint a path means: itself, or of a directory the newest that can be read.

Those that were passed over are named with what is wrong with them; so a command answers what a
restore would find there. A directory in which none can be read is an error, and not the same one
as an empty directory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.text import printable
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.io.files import LOCAL, join
from tfckpt.stored.open import open_checkpoint
from tfckpt.stored.paths.wrong_paths import SAVED_MODELS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfckpt.core.inventory import Root
    from tfckpt.stored.commits.discovery import Candidate
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint
    from tfckpt.stored.io.files import Files


class FoundCheckpoint(NamedTuple):
    """An open checkpoint; of a directory all that it holds, and why some could not be read."""

    checkpoint: StoredCheckpoint
    candidates: list[Candidate]
    rejected: dict[str, str]


def find(
    path: str, roots: Mapping[str, Root] | None = None, bases: Collection[str] = ()
) -> FoundCheckpoint:
    """Open what a path means; ``roots`` and ``bases`` as for ``open_checkpoint``.

    Raises:
        CheckpointError: there is none, or none that can be read.
    """
    choices, files = all_in(path), files_of(path)
    if not choices:
        return FoundCheckpoint(open_checkpoint(path, roots=roots, bases=bases, files=files), [], {})
    rejected: dict[str, str] = {}
    for choice in choices:
        try:
            opened = open_checkpoint(choice.prefix, roots=roots, bases=bases, files=files)
        except CheckpointError as error:  # noqa: PERF203 (the next one may be sound)
            rejected[choice.prefix] = str(error)
        else:
            return FoundCheckpoint(opened, choices, rejected)
    reasons = "\n  ".join(rejected.values())
    many = f"none of its {len(rejected)} checkpoints can be read"
    raise DamagedCheckpointError(f"{many}\n  {reasons}", path=path)


def all_in(path: str) -> list[Candidate]:
    """The numbered checkpoints of a directory, newest first; none where it is a checkpoint."""
    if is_one(path):
        return []
    from tfckpt.stored.commits.discovery import candidates

    return candidates(path, None, files_of(path))


def is_one(path: str) -> bool:
    """Whether it is the path of a checkpoint, and not of a directory of them."""
    files = files_of(path)
    there = files.is_dir(path) if "://" in path else Path(path).is_dir()  # or a link to one
    if files.exists(f"{path}.index") or not there:
        return True
    return any(files.exists(join(path, name)) for name in SAVED_MODELS)


def files_of(path: str) -> Files:
    """Where a path is: only what is remote needs TensorFlow."""
    if "://" not in path:
        return LOCAL
    from tfckpt.live.io import remote_files

    return remote_files.files_of(path)


def passed_over(found: FoundCheckpoint) -> None:
    """Say on standard error which newer checkpoints could not be read."""
    for reason in found.rejected.values():
        text = "\n".join(map(printable, reason.split("\n")))
        print(f"tfckpt: passed over: {text}", file=sys.stderr)
    if found.rejected:
        print(f"tfckpt: this is of {printable(found.checkpoint.prefix)}", file=sys.stderr)
