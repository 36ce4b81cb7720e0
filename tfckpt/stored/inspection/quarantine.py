"""Moves the files of a damaged checkpoint away, without deleting any.

They go into a directory of their own, ``quarantine/ckpt-7``, the record first. An interrupted move
leaves no committed checkpoint behind; the next call moves the rest into another directory.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfckpt.core.text import free_name
from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.commits.writer_lock import lock_of
from tfckpt.stored.inspection.listing import parts
from tfckpt.stored.io.files import LocalFiles, join

if TYPE_CHECKING:
    from tfckpt.stored.io.files import Files

DIRECTORY = "quarantine"


def quarantine(path: str, files: Files) -> str:
    """Move the files of a checkpoint into a new directory, and return its path.

    Raises:
        InUseError: another process saves into the directory.
        OSError: the directory cannot be written.
    """
    if not files.exists(index_path(path)):
        path = path.rstrip("/")  # a directory; the name of an index may be empty after the last /
    parent, name = os.path.split(path)
    if isinstance(files, LocalFiles):
        lock_of(parent or ".").acquire()
    names = parts(path, set(files.listdir(parent)), files)
    target = free_name(join(join(parent, DIRECTORY), name or "unnamed"), files.exists)
    files.makedirs(target)
    for file in names:
        files.rename(join(parent, file), join(target, file))
    files.fsync_dir(target)
    files.fsync_dir(parent)
    return target
