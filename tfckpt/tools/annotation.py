"""``tfckpt.annotate``: what an evaluation found later becomes part of a checkpoint's record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.errors import CheckpointNotFoundError, UnsupportedCheckpointError
from tfckpt.manager.arguments import checked_metrics
from tfckpt.stored.commits.commit import begin_named
from tfckpt.stored.commits.record_file import MAX_BYTES, path_of, with_metrics
from tfckpt.stored.io.files import absolute, content, files_of, reading
from tfckpt.tools import find_checkpoint

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tfckpt.stored.io.files import Files


def annotate(path: str | os.PathLike[str], *, metrics: Mapping[str, Any]) -> None:
    """Add metrics to a checkpoint, as if its save had been given them.

    ``best``, ``keep: best`` and ``tfckpt list`` see them, also in a training that runs meanwhile
    (in an object store, from its next start on). A metric that is there already gets the new value.
    The record is exchanged in one step: who is killed leaves the old one, or the new one.

    Args:
        path: of a checkpoint, not of a directory.
        metrics: name → number.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        DamagedCheckpointError: its record cannot be read.
        InUseError: it is being written or deleted.
        SaveError: a metric is not a number.
        UnsupportedCheckpointError: it has no commit record, since another program wrote it.

    >>> import tempfile, tensorflow as tf, tfckpt
    >>> keep = [{"best": 1, "monitor": "score", "mode": "max"}]
    >>> checkpoint = tfckpt.Checkpoint(step=tf.Variable(0))
    >>> manager = tfckpt.CheckpointManager(checkpoint, tempfile.mkdtemp(), None, keep=keep)
    >>> first, second = manager.save(), manager.save()
    >>> tfckpt.annotate(first, metrics={"score": 0.75})
    >>> manager.best == first
    True
    """
    found = checked_metrics(metrics)
    prefix = absolute(find_checkpoint.path_of(path))
    files = files_of(prefix)
    if not find_checkpoint.is_checkpoint(prefix):
        hint = "pass the path of one of its checkpoints: ckpt-12"
        raise CheckpointNotFoundError("is a directory, not a checkpoint", path=prefix, hint=hint)
    if not files.exists(path_of(prefix)):
        if not files.exists(f"{prefix}.index"):
            raise CheckpointNotFoundError("there is no checkpoint of this name", path=prefix)
        message = "has no commit record, which holds the metrics: another program wrote it"
        raise UnsupportedCheckpointError(message, path=prefix)
    add_metrics(prefix, found, files)


def add_metrics(prefix: str, metrics: Mapping[str, float], files: Files) -> None:
    """Exchange a record by one with further metrics."""
    path, mark = path_of(prefix), begin_named(prefix, files)
    try:
        with reading(path):
            data = content(path, files, MAX_BYTES)
        files.write_atomic(path, with_metrics(data, metrics, path, prefix))
    finally:
        mark.give_back()
