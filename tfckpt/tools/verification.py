"""``tfckpt.verify``: every checksum of a checkpoint, or of all in a directory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointNotFoundError
from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.inspection.verification import Fault, Verdict
from tfckpt.stored.inspection.verification import verify as verify_one
from tfckpt.tools.find_checkpoint import checkpoints_in, files_of, is_checkpoint, path_of
from tfckpt.tools.inspection import silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.stored.commits.discovery import Candidate
    from tfckpt.tools.inspection import Progress


def verify(
    source: str | os.PathLike[str], *, quarantine: bool = False, progress: Progress = silent
) -> tuple[Verdict, ...]:
    """Check every checksum, as ``tfckpt verify`` does. Does not import TensorFlow.

    Damage is no error here, but a verdict that is not ``ok``, with all its ``faults``.

    Args:
        source: the path of a checkpoint, or a directory, of which all are checked.
        quarantine: whether to move damaged ones into the subdirectory ``quarantine``.
        progress: as for :func:`tfckpt.inspect`.

    Returns:
        A verdict for each checkpoint, the newest first.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        InUseError: a damaged one cannot be moved, since another process saves into its directory.
        OSError: it cannot be moved for another reason.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> path = tfckpt.Checkpoint(model=model).save(tempfile.mkdtemp() + "/ckpt")
    >>> [verdict.ok for verdict in tfckpt.verify(path)]
    [True]
    """
    return tuple(verdicts(path_of(source), quarantine=quarantine, progress=progress))


def verdicts(
    path: str, *, quarantine: bool = False, progress: Progress = silent
) -> Iterator[Verdict]:
    """The same, each verdict as soon as it is known."""
    files = files_of(path)
    if quarantine:
        from tfckpt.stored.commits.commit import sweep

        directory = os.path.split(path)[0] if is_checkpoint(path) else path
        with contextlib.suppress(OSError):  # an error only where a checkpoint is to be moved
            sweep(directory, files)
    for verdict in _verdicts(path, progress):
        if quarantine and verdict.faults and verdict.damaged:
            from tfckpt.stored.inspection import quarantine as moving

            yield dataclasses.replace(verdict, moved_to=moving.quarantine(verdict.path, files))
        else:
            yield verdict


def _verdicts(path: str, progress: Progress) -> Iterator[Verdict]:
    files, found = files_of(path), checkpoints_in(path)
    paths = [one.prefix for one in found]
    if not is_checkpoint(path):
        from tfckpt.stored.inspection.listing import without_number

        paths += without_number(path, files)
    by_prefix = {one.prefix: one for one in found}
    for number, one in enumerate(paths or [path]):
        if one in by_prefix and (fault := _missing_index(by_prefix[one])):
            yield fault
            continue
        position = f"{number + 1}/{len(paths)} " if len(paths) > 1 else ""
        try:
            with progress(f"{position}{one}") as advance:
                verdict = verify_one(one, files, advance)
        except CheckpointNotFoundError:
            if one not in by_prefix:
                raise
            continue  # it was deleted meanwhile
        if verdict.ok or one not in by_prefix or files.exists(index_path(one)):
            yield verdict


def _missing_index(candidate: Candidate) -> Verdict | None:
    """The verdict on a checkpoint that has no index, which needs no reading."""
    from tfckpt.stored.commits.discovery import CheckpointKind

    if candidate.kind not in (CheckpointKind.TORN, CheckpointKind.DAMAGED):
        return None
    message = "the index is missing: it was deleted, not copied, or never written"
    fault = Fault(f"{candidate.prefix}.index", "", message)
    return Verdict(candidate.prefix, "", 0, 0, (fault,))
