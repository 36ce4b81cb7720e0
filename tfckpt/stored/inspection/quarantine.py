"""A damaged checkpoint out of the way: its files are moved, and nothing is deleted.

They go into a directory of their own, ``quarantine/ckpt-7``, the record first: what is left where
one is interrupted is no committed checkpoint, and goes into another one the next time.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.commits.writer_lock import lock_of
from tfckpt.stored.inspection.listing import parts
from tfckpt.stored.io.files import LocalFiles, join

if TYPE_CHECKING:
    from tfckpt.stored.io.files import Files

DIRECTORY = "quarantine"


def quarantine(path: str, files: Files) -> str:
    """Move a checkpoint away.

    Args:
        path: of the checkpoint; its other files are those that have it before their own suffix.
        files: where it is.

    Returns:
        The directory that its files are in now.

    Raises:
        InUseError: another process saves into the directory.
        OSError: it cannot be written.
    """
    if not files.exists(index_path(path)):
        path = path.rstrip(
            "/"
        )  # a directory; of an index, what is behind the last / may be nothing
    parent, name = os.path.split(path)
    if isinstance(files, LocalFiles):
        lock_of(parent or ".").acquire()
    names = parts(path, set(files.listdir(parent)), files)
    target = _fresh(join(join(parent, DIRECTORY), name or "unnamed"), files)
    files.makedirs(target)
    for one in names:
        files.rename(join(parent, one), join(target, one))
    files.fsync_dir(target)
    files.fsync_dir(parent)
    return target


def _fresh(path: str, files: Files) -> str:
    names = itertools.chain((path,), (f"{path}~{number}" for number in itertools.count(2)))
    return next(name for name in names if not files.exists(name))
