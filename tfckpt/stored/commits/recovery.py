"""Recovers from interrupted saves and deletions: each is completed or undone.

The staging directory of a save (:mod:`tfckpt.stored.commits.staging`) shows how far it got:
:func:`claim` completes a save whose index is in place and undoes all others. A deletion first
renames the record to ``ckpt-12.tfckpt.deleted``, so that an interrupted one is not taken for a
checkpoint of plain TensorFlow; it is completed too. File names alone prove nothing: a record is
moved only to the index that it belongs to, and no data file is removed that an index refers to.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING

from absl import logging

from tfckpt.errors import CheckpointError, CheckpointNotFoundError
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.record_file import DELETED
from tfckpt.stored.commits.writer_lock import lock_of
from tfckpt.stored.io.files import Files, LocalFiles, abandoned, content, join
from tfckpt.stored.paths.parts import is_part
from tfckpt.stored.paths.state_file import STATE_FILE
from tfckpt.stored.paths.wrong_paths import DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

BEFORE = ".before"
MARKER = "writer"
_recovery_lock = threading.Lock()
_DATA = re.compile(DATA)


def claim(directory: str, checkpoint_name: str, files: Files) -> int:
    """Lock a directory for saves by this process, and recover what a dead process left.

    Returns the highest number recovered in an object store, otherwise 0. The writer there may still
    be alive, or its requests arrive late, so that number must not be used again.

    Raises:
        InUseError: another process holds the lock.
        OSError: the directory cannot be created or written.
    """
    files.makedirs(directory or ".")
    if isinstance(files, LocalFiles):  # other file systems have no locks
        lock_of(directory or ".").acquire()
    numbered, recovered = re.compile(re.escape(checkpoint_name) + r"-([0-9]{1,18})"), [0]

    def ours(of: str) -> bool:
        match = numbered.fullmatch(of)
        recovered.extend([int(match[1])] if match else [])
        return match is not None

    with _recovery_lock:
        for name in files.listdir(directory):
            if abandoned(name) == STATE_FILE:
                remove_tree(join(directory, name), files)
            elif may_be_left(name):  # few names match
                resolve(name, directory, ours, files)
    return 0 if files.renames else max(recovered)


def delete(prefix: str, files: Files) -> None:
    """Delete a committed checkpoint, which stops being one with the first rename."""
    record = record_file.path_of(prefix)
    try:
        if files.renames:
            files.rename(record, prefix + DELETED)
        else:
            files.write_atomic(prefix + DELETED, content(record, files))
            files.remove(record)
    except FileNotFoundError:
        return  # another process is deleting it or has removed the record
    files.fsync_dir(os.path.split(prefix)[0])
    _delete_files(prefix, files)


def may_be_left(name: str) -> bool:
    """Whether a name is one that an unfinished save or deletion uses."""
    return name.endswith((DELETED, ".tmp"))


def resolve(name: str, directory: str, ours: Callable[[str], bool], files: Files) -> None:
    """Complete or undo the save or deletion that a file name belongs to, if it is ``ours``."""
    path = join(directory, name)
    if (of := abandoned(name)) and ours(of):
        _resolve_save(path, join(directory, of), files)
    elif name.endswith(DELETED) and ours(name.removesuffix(DELETED)):
        prefix = join(directory, name.removesuffix(DELETED))
        index = index_path(prefix)
        if not files.exists(index) or _is_of_index(path, prefix, files):
            logging.info("%s: completed an interrupted deletion", prefix)
            if not files.renames:
                remove_tree(record_file.path_of(prefix), files)
            _delete_files(prefix, files)
        else:  # another checkpoint has its number now
            remove_tree(path, files)


def _resolve_save(staged: str, prefix: str, files: Files) -> None:
    """Complete or undo the save of a staging directory."""
    parent, name = os.path.split(prefix)
    record = record_file.path_of(name)
    if not files.renames:
        _resolve_put(staged, prefix, files)
        return
    with contextlib.suppress(FileNotFoundError):
        inside = files.listdir(staged) if files.is_dir(staged) else []
        if record in inside:
            path = join(staged, record)
            if index_path(name) not in inside and _is_of_index(path, prefix, files):
                logging.info("%s: completed an interrupted save", prefix)
                # After a power loss, data files may still be staged.
                for part in (*(part for part in inside if is_part(part, name)), record):
                    files.rename(join(staged, part), join(parent, part))
                files.fsync_dir(parent)
                remove_strays(prefix, files)
            else:
                logging.info("%s: removed an interrupted save", prefix)
                remove_strays(prefix, files, {*_parts(path, prefix, files)} - {*inside})
    remove_tree(staged, files)


def _resolve_put(staged: str, prefix: str, files: Files) -> None:
    """Complete or undo a save in an object store, by names that are checked one by one."""
    path = join(staged, record_file.path_of(os.path.split(prefix)[1]))
    remove_tree(join(staged, MARKER), files)  # first, since its writer may be alive
    if _is_of_index(path, prefix, files):
        logging.info("%s: completed an interrupted save", prefix)
        files.write_atomic(record_file.path_of(prefix), content(path, files))
    remove_strays(prefix, files)
    remove_strays(prefix, files, _parts(path, prefix, files))
    remove_tree(staged, files)


def _is_of_index(record: str, prefix: str, files: Files) -> bool:
    try:
        head = record_file.read_head(record, prefix, files)
        return head is not None and head.index_sha256 == record_file.index_digest(prefix, files)
    except CheckpointError:
        return False


def _parts(record: str, prefix: str, files: Files) -> tuple[str, ...]:
    """The data files that a record lists; () where it cannot be read."""
    try:
        head = record_file.read_head(record, prefix, files)
    except CheckpointError:
        return ()
    return head.files if head else ()


def _delete_files(prefix: str, files: Files) -> None:
    """Remove the files of a checkpoint whose record has been renamed."""
    parent, name = os.path.split(prefix)
    names = {*files.listdir(parent)}
    own = {*_parts(prefix + DELETED, prefix, files), *(n for n in names if shards_of(n, name))}
    for file in (index_path(name), *sorted(own & names)):
        remove_tree(join(parent, file), files)
    files.fsync_dir(parent)
    remove_tree(prefix + DELETED, files)


def remove_strays(prefix: str, files: Files, of: Collection[str] | None = None) -> None:
    """Remove data files that the index in place does not refer to, at most those in ``of``."""
    parent, name = os.path.split(prefix)
    try:
        used = used_shards(prefix, files)
    except CheckpointError:
        return  # unknown which files those are
    for other in files.listdir(parent):
        shards = shards_of(other, name)
        stray = shards != used if shards else used is None and of is not None
        if stray and (shards if of is None else other in of):
            remove_tree(join(parent, other), files)


def used_shards(prefix: str, files: Files) -> int | None:
    """The number of data files in the index in place; None without an index.

    Raises:
        CheckpointError: the index cannot be read.
    """
    try:
        with Bundle.open(prefix, files, whole=False) as bundle:
            return bundle.index.header.num_shards
    except CheckpointNotFoundError:
        return None


def remove_tree(path: str, files: Files) -> None:
    with contextlib.suppress(FileNotFoundError):
        files.remove_tree(path)


def shards_of(file: str, name: str) -> int | None:
    """The number of data files of a checkpoint, from the name of one; None for other names."""
    match = _DATA.fullmatch(file.removeprefix(name)) if file.startswith(name) else None
    return int(match["shards"]) if match else None
