"""Recovers from interrupted saves, deletions and moves: each is completed or undone.

The staging directory of a save (:mod:`tfckpt.stored.commits.staging`) shows how far it got: a save
whose index is in place is completed, all others are undone. A deletion first renames the record to
``ckpt-12.tfckpt.deleted``, so that an interrupted one is not taken for a checkpoint of plain
TensorFlow; a move into quarantine first writes ``ckpt-12.tfckpt.moved``. Both are completed. File
names alone prove nothing: a record is moved only to the index that it belongs to, and no data file
is removed that an index refers to.

Commands and saves begin with :func:`claim`, so that each sweeps what any other has left.
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
from tfckpt.stored.commits.record_file import DELETED, MOVED
from tfckpt.stored.commits.writer_lock import lock_of
from tfckpt.stored.io.files import (
    LOCAL,
    Files,
    LocalFiles,
    abandoned,
    content,
    join,
    stands_for,
)
from tfckpt.stored.io.shared_directory import alone, writing
from tfckpt.stored.paths.parts import is_part
from tfckpt.stored.paths.state_file import STATE_FILE
from tfckpt.stored.paths.wrong_paths import DATA

if TYPE_CHECKING:
    from collections.abc import Collection

BEFORE = ".before"
MARKER = "writer"
MARKER_CONTENT = (
    b"a save that is running, or was killed\n"  # not every store copies an empty object
)
TAKEN = "taken"
QUARANTINE = "quarantine"
_MAX_BYTES = 1 << 12  # of a file with the name of a directory
_recovery_lock = threading.Lock()
_DATA = re.compile(DATA)
# The end of a single file's name, unlike that of a staging directory.
_FILE = re.compile(r"\.tfckpt\.(json|deleted|moved|new|probe)\Z")


def claim(directory: str, checkpoint_name: str | None, files: Files) -> int:
    """Lock a directory for writes by this process, and recover what dead processes left.

    Without a lock, only the numbered checkpoints of that name can be recovered. Returns the highest
    number recovered in an object store, otherwise 0. The writer there may still be alive, or its
    requests arrive late, so that number must not be used again.
    """
    files.makedirs(directory or ".")
    if isinstance(files, LocalFiles):  # other file systems have no locks
        lock_of(directory or ".").acquire()
    numbered = re.compile(re.escape(checkpoint_name or "") + r"-([0-9]{1,18})")
    left = {name: of for name in files.listdir(directory) if (of := _left_of(name)) is not None}
    others, recovered = [], [0]
    with _recovery_lock:
        for name, of in left.items():  # few names match
            if match := numbered.fullmatch(of):
                recovered.append(int(match[1]))
            if match or of == STATE_FILE:
                _resolve(name, of, directory, files)
            else:
                others.append(name)
        if others:
            with alone(directory) as unused:
                for name in others if unused else ():
                    if not name.endswith(".tmp") or _is_ours(join(directory, name), files):
                        _resolve(name, left[name], directory, files)
    return 0 if files.renames else max(recovered)


def sweep(directory: str, files: Files) -> None:
    """:func:`claim` for a command that changes nothing else, if there is anything to recover."""
    if any(_left_of(name) is not None for name in files.listdir(directory)):
        claim(directory, None, files)


def recover(prefix: str, files: Files) -> list[str]:
    """Complete or undo what was begun with one checkpoint; the names in its directory then."""
    parent, name = os.path.split(prefix)
    names = files.listdir(parent)
    if left := [other for other in names if other.startswith(name) and _left_of(other) == name]:
        for other in left:
            _resolve(other, name, parent, files)
        names = files.listdir(parent)
    return names


def delete(prefix: str, files: Files) -> None:
    """Delete a committed checkpoint, which stops being one with the first rename."""
    record, parent = record_file.path_of(prefix), os.path.split(prefix)[0]
    with writing(parent):  # else another thread may complete the deletion
        try:
            if files.renames:
                files.rename(record, prefix + DELETED)
            else:
                files.write_atomic(prefix + DELETED, content(record, files))
                files.remove(record)
        except FileNotFoundError:
            return  # another process is deleting it or has removed the record
        files.fsync_dir(parent)
        _delete_files(prefix, files)


def move_away(prefix: str, name: str, files: Files) -> str:
    """Move the files of a checkpoint into a new directory, and return its path.

    It counts as moved from the first change on, and recovery completes what is interrupted.
    """
    digest = ""
    with contextlib.suppress(CheckpointError):
        digest = record_file.index_digest(prefix, files)
    with writing(os.path.split(prefix)[0]):
        files.write_atomic(prefix + MOVED, os.fsencode(f"{digest}\n{name}"))
        return _move_files(prefix, files)


def _move_files(prefix: str, files: Files) -> str:
    """Move what is left of a checkpoint to where its mark says; the record comes last."""
    parent, name = os.path.split(prefix)
    digest, _, into = os.fsdecode(content(prefix + MOVED, files, _MAX_BYTES)).partition("\n")
    target = join(join(parent, QUARANTINE), os.path.split(into)[1] or name)
    begun = not files.exists(index_path(prefix))
    if begun or record_file.index_digest(prefix, files) == digest:  # else the name has a new owner
        files.makedirs(target)
        for file in reversed(parts(prefix, {*files.listdir(parent)}, files)):
            files.rename(join(parent, file), join(target, file))
        files.fsync_dir(target)
    files.fsync_dir(parent)
    remove_tree(prefix + MOVED, files)
    return target


def parts(prefix: str, names: set[str], files: Files = LOCAL) -> list[str]:
    """The file names of a checkpoint, in the listing ``names``: record, index, then the others."""
    name = os.path.split(prefix)[1]
    first = [record_file.path_of(name), index_path(name), *([name] if name else [])]
    rest = {file for file in names if shards_of(file, name) is not None}
    rest |= names & {*_parts(record_file.path_of(prefix), prefix, files)}
    return [*(file for file in first if file in names), *sorted(rest - {*first})]


def _left_of(name: str) -> str | None:
    """What an unfinished save, deletion or move has left this name of; None for other names."""
    for suffix in (DELETED, MOVED):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    of = abandoned(name) if name.endswith(".tmp") else None
    return of and _FILE.sub("", of)


def _is_ours(path: str, files: Files) -> bool:
    """Whether a temporary name that may be of any program is of tfckpt."""
    of = stands_for(os.path.split(path)[1]) or ""
    if _FILE.search(of):
        return True
    return files.is_dir(path) and all(name.startswith(of) for name in files.listdir(path))


def _resolve(name: str, of: str, directory: str, files: Files) -> None:
    """Complete or undo the save, deletion or move of a checkpoint that has left a file name."""
    path, prefix = join(directory, name), join(directory, of)
    if name.endswith(MOVED):
        try:
            _move_files(prefix, files)
        except (OSError, ValueError, CheckpointError) as error:  # the next one tries again
            logging.warning("%s: could not be moved to %s: %s", prefix, QUARANTINE, error)
    elif name.endswith(".tmp"):
        if of == STATE_FILE or _FILE.search(stands_for(name) or ""):
            remove_tree(path, files)
        else:
            _resolve_save(path, prefix, files)
    elif not files.exists(index_path(prefix)) or _is_of_index(path, prefix, files):
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
        elif index_path(name) + BEFORE in inside and _is_of_index(
            record_file.path_of(prefix), prefix, files
        ):
            remove_strays(prefix, files)  # committed; of what it replaces, data files may be left
    remove_tree(staged, files)


def _resolve_put(staged: str, prefix: str, files: Files) -> None:
    """Complete or undo a save in an object store, by names that are checked one by one."""
    path = join(staged, record_file.path_of(os.path.split(prefix)[1]))
    # The marker alone may be what shows a kill of this recovery that there is data to remove.
    files.write_atomic(join(staged, TAKEN), MARKER_CONTENT)
    remove_tree(join(staged, MARKER), files)  # first, since its writer may be alive
    if _is_of_index(path, prefix, files):
        logging.info("%s: completed an interrupted save", prefix)
        files.write_atomic(record_file.path_of(prefix), content(path, files))
        if not files.exists(index_path(prefix)):  # its writer is alive, and has undone it meanwhile
            remove_tree(record_file.path_of(prefix), files)
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
    """The number of data files in the index in place; None without an index."""
    try:
        with Bundle.open(prefix, files, whole=False) as bundle:
            return bundle.index.num_shards
    except CheckpointNotFoundError:
        return None


def remove_tree(path: str, files: Files) -> None:
    with contextlib.suppress(FileNotFoundError):
        files.remove_tree(path)


def shards_of(file: str, name: str) -> int | None:
    """The number of data files of a checkpoint, from the name of one; None for other names."""
    match = _DATA.fullmatch(file.removeprefix(name)) if file.startswith(name) else None
    return int(match["shards"]) if match else None
