"""Find the checkpoint that a path names; for a directory, the newest readable one.

This is the choice that a restore makes. Newer checkpoints that cannot be read are listed with the
reason. If none can be read, that is an error, distinct from the one for an empty directory.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.errors import CheckpointError, CheckpointNotFoundError, DamagedCheckpointError
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.explain import what_is
from tfckpt.stored.io.files import files_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfckpt.core.inventory import Root
    from tfckpt.stored.commits.discovery import CheckpointInfo
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint


class FoundCheckpoint(NamedTuple):
    """An open checkpoint; for a directory also all its checkpoints, and why some were rejected."""

    checkpoint: StoredCheckpoint
    candidates: list[CheckpointInfo]
    rejected: dict[str, str]


def path_of(source: str | os.PathLike[str] | None) -> str:
    """The path as text."""
    if source is None:
        hint = "tf.train.latest_checkpoint returns None if it finds no checkpoint"
        raise CheckpointNotFoundError("None was given as the path", hint=hint)
    return os.fspath(source)


def find(
    path: str, roots: Mapping[str, Root] | None = None, bases: Collection[str] = ()
) -> FoundCheckpoint:
    """Open the checkpoint that a path names; ``roots`` and ``bases`` as for ``open_checkpoint``."""
    found, files = checkpoints_in(path), files_of(path)
    if not found:
        return FoundCheckpoint(open_checkpoint(path, roots=roots, bases=bases, files=files), [], {})
    rejected: dict[str, str] = {}
    for candidate in found:
        try:
            opened = open_checkpoint(candidate.prefix, roots=roots, bases=bases, files=files)
        except CheckpointError as error:  # noqa: PERF203 (the next one may be readable)
            rejected[candidate.prefix] = str(error)
        else:
            return FoundCheckpoint(opened, found, rejected)
    reasons = "\n  ".join(rejected.values())
    count = f"none of its {len(rejected)} checkpoints can be read"
    raise DamagedCheckpointError(f"{count}\n  {reasons}", path=path)


def checkpoints_in(path: str) -> list[CheckpointInfo]:
    """The numbered checkpoints of a directory, newest first; empty for the path of a checkpoint."""
    if is_checkpoint(path):
        return []
    from tfckpt.stored.commits.discovery import candidates

    return candidates(path, None, files_of(path))


def is_checkpoint(path: str) -> bool:
    """Whether the path is that of a checkpoint, not of a directory of checkpoints."""
    return not what_is(path, files_of(path)).directory
