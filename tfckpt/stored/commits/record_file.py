"""The commit record, the file that marks a checkpoint as committed by tfckpt.

``ckpt-12.tfckpt.json`` is there last, so where it exists everything else is on disk. It
holds what the index cannot: canonical names and roles, step, epoch, metrics. It also holds the
digest of its index, so that it never vouches for the files of another save: where another program
has written over them since, there is no record. Where a writer died between index and record, the
record is its draft.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re

from tfckpt.core.gc_pause import gc_paused
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.commits.record import CommitRecord, parse, render
from tfckpt.stored.io.files import LOCAL, Files, content, reading
from tfckpt.stored.paths.wrong_paths import DATA

SUFFIX = ".tfckpt.json"
# Of what says that something is unfinished: :mod:`tfckpt.stored.commits.commit`.
MARK = ".tfckpt.mark"
# Of a record that is not in place yet, or not any more.
DRAFT = ".tfckpt.draft"
# Of a directory or a file with what is not in place yet.
PART = ".tfckpt.part"
# A million values, at about 200 bytes each.
MAX_BYTES = 1 << 28
_DATA = re.compile(DATA)


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


def write_draft(prefix: str, record: CommitRecord, files: Files = LOCAL) -> None:
    """Write the record of a checkpoint that is not committed yet."""
    with gc_paused():
        text = render(record)
    files.write_atomic(prefix + DRAFT, text)


def read(prefix: str, files: Files = LOCAL, digest: str | None = None) -> CommitRecord | None:
    """The record of a checkpoint, or None where it has none, or one of other files.

    ``digest`` is that of the index, read from disk if None. The inventory's ``source`` is this
    prefix, wherever the checkpoint was written.
    """
    for path in (path_of(prefix), prefix + DRAFT, path_of(prefix)):  # a draft becomes the record
        record = _read(path, prefix, files) if path != prefix + DRAFT else _draft(prefix, files)
        if record is not None:
            digest = digest or index_digest(prefix, files)
            if record.index_sha256 == digest:
                return record
    return None


def _draft(prefix: str, files: Files) -> CommitRecord | None:
    with contextlib.suppress(CheckpointError):  # it may be half written
        return _read(prefix + DRAFT, prefix, files)
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


def parts(prefix: str, names: set[str], files: Files = LOCAL) -> list[str]:
    """The file names of a checkpoint, in the listing ``names``: record, index, then the others."""
    name = os.path.split(prefix)[1]
    first = [path_of(name), f"{name}.index", *([name] if name else [])]
    rest = {file for file in names if shards_of(file, name) is not None}
    with contextlib.suppress(CheckpointError):
        if head := read_head(path_of(prefix), prefix, files):
            rest |= names & {*head.files}
    return [*(file for file in first if file in names), *sorted(rest - {*first})]


def shards_of(file: str, name: str) -> int | None:
    """The number of data files of a checkpoint, from the name of one; None for other names."""
    match = _DATA.fullmatch(file.removeprefix(name)) if file.startswith(name) else None
    return int(match["shards"]) if match else None
