"""A damaged checkpoint out of the way: its files are moved, and nothing is deleted.

They go into a directory of their own, ``quarantine/ckpt-7``, the record first: what is left where
one is interrupted is no committed checkpoint, and goes into another one the next time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError
from tfckpt.stored import commit
from tfckpt.stored.bundle import index_path
from tfckpt.stored.files import LocalFiles, join
from tfckpt.stored.lock import lock_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.stored.files import Files

_SHARD = re.compile(r"\.data-[0-9]{5}-of-[0-9]{5}")
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
    parent, name = os.path.split(path.rstrip("/"))
    if isinstance(files, LocalFiles):
        lock_of(parent or ".").acquire()
    first = commit.path_of(name), index_path(name)
    there = set(files.listdir(parent))
    names = [one for one in (*first, name) if one in there]
    names += sorted(there & {*_recorded(path, files), *_data(name, there)})
    target = _fresh(join(join(parent, DIRECTORY), name), files)
    files.makedirs(target)
    for one in names:
        files.rename(join(parent, one), join(target, one))
    files.fsync_dir(target)
    files.fsync_dir(parent)
    return target


def _data(name: str, there: Iterable[str]) -> list[str]:
    return [one for one in there if one.startswith(name) and _SHARD.fullmatch(one[len(name) :])]


def _recorded(path: str, files: Files) -> tuple[str, ...]:
    """What registered savers wrote, as far as the record tells."""
    with contextlib.suppress(CheckpointError):
        if (record := commit.read_head(commit.path_of(path), path, files)) is not None:
            return record.files
    return ()


def _fresh(path: str, files: Files) -> str:
    names = itertools.chain((path,), (f"{path}~{number}" for number in itertools.count(2)))
    return next(name for name in names if not files.exists(name))
