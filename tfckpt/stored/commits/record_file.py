"""The commit record, the file that marks a checkpoint as committed by tfckpt.

``ckpt-12.tfckpt.json`` is moved into place last, so where it exists everything else is on disk. It
holds what the index cannot: canonical names and roles, step, epoch, metrics. It also holds the
digest of its index, so that it never vouches for the files of another save: where another program
has written over them since, there is no record. Where a writer died between index and record, the
record is read from the staging directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from typing import TYPE_CHECKING

from tfckpt.core.gc_pause import gc_paused
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.commits.record import CommitRecord, parse, render
from tfckpt.stored.io.files import LOCAL, Files, content, join, reading, stands_for

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = ".tfckpt.json"
# The suffix of a record while its checkpoint is being deleted.
DELETED = ".tfckpt.deleted"
# Of a file that names the directory into which a checkpoint is being moved.
MOVED = ".tfckpt.moved"
# A million values, at about 200 bytes each.
MAX_BYTES = 1 << 28


def path_of(prefix: str) -> str:
    """The path of the record of a checkpoint.

    >>> path_of("run/ckpt-12")
    'run/ckpt-12.tfckpt.json'
    """
    return prefix + SUFFIX


def index_digest(prefix: str, files: Files = LOCAL) -> str:
    """SHA-256 of the index file, in hexadecimal."""
    path = f"{prefix}.index"
    with reading(path):
        try:
            return hashlib.sha256(content(path, files, MAX_BYTES)).hexdigest()
        except FileNotFoundError:
            raise DamagedCheckpointError("the index is missing", path=path) from None


def write(prefix: str, record: CommitRecord, files: Files = LOCAL) -> None:
    """Commit a checkpoint: on return the record is on disk, after an exception there is none."""
    with gc_paused():
        text = render(record)
    files.write_atomic(path_of(prefix), text)


def read(prefix: str, files: Files = LOCAL, digest: str | None = None) -> CommitRecord | None:
    """The record of a checkpoint, or None where it has none, or one of other files.

    ``digest`` is that of the index, read from disk if None. The inventory's ``source`` is this
    prefix, wherever the checkpoint was written.
    """
    record = _read(path_of(prefix), prefix, files)
    for candidate in itertools.chain((record,), _staged(prefix, files)):
        if candidate is not None:
            digest = digest or index_digest(prefix, files)
            if candidate.index_sha256 == digest:
                return candidate
    return None


def names_of(prefix: str, files: Files = LOCAL) -> dict[str, str]:
    """Key → name, from the record; empty where it is missing or damaged."""
    with contextlib.suppress(CheckpointError):
        if (record := read(prefix, files)) is not None:
            return {entry.key: entry.name for entry in record.inventory.entries.values()}
    return {}


def read_head(path: str, prefix: str, files: Files = LOCAL) -> CommitRecord | None:
    """The record without its values, which is cheap to read; None where there is none."""
    return _read(path, prefix, files, head=True)


def _read(path: str, prefix: str, files: Files, *, head: bool = False) -> CommitRecord | None:
    with reading(path):
        try:
            data = content(path, files, MAX_BYTES)
        except FileNotFoundError:
            return None
    return parse(data, path, prefix, head=head)


def _staged(prefix: str, files: Files) -> Iterator[CommitRecord | None]:
    """Records in staging directories, whose writer died or is just about to move them."""
    directory, name = os.path.split(prefix)
    with contextlib.suppress(OSError):
        for other in files.listdir(directory):
            if stands_for(other) == name:
                yield _read(path_of(join(join(directory, other), name)), prefix, files)
