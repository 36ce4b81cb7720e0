"""A save is made in a directory of its own, and moves into place when it is whole.

``ckpt-12.1a2b3c4d.tmp/`` takes the data, the index and the commit record. Once all of it is on disk
and was read back, the data files are renamed into place, then the index, then the record. Until
the index moves, readers see what was there before; from then on, the new checkpoint. There is no
moment at which they see half of one, even where ``write`` replaces a checkpoint of the same name,
since the data files of the new one go by another number of shards.

A writer that dies leaves that directory behind, and what is in it says how far the save had come:
:func:`claim` completes one whose index is in place, and undoes all others. A deletion begins by
renaming the record to ``ckpt-12.tfckpt.deleted``, so that one cut short is not taken for a
checkpoint of somebody else's; it is finished there, too. Such names prove nothing by themselves:
a record is moved only to the index that it is of, and no data file goes that an index refers to.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING

from absl import logging

from tfckpt.errors import CheckpointError, CheckpointNotFoundError, SaveError
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.commits import commit
from tfckpt.stored.commits.lock import lock_of
from tfckpt.stored.commits.record import is_part
from tfckpt.stored.commits.state_file import STATE_FILE
from tfckpt.stored.files import Files, LocalFiles, abandoned, join, temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

DELETED = ".tfckpt.deleted"
_BEFORE = ".before"
_tidying = threading.Lock()
_SHARDS = re.compile(r"\.data-[0-9]{5}-of-([0-9]{5})")


@contextlib.contextmanager
def staged(prefix: str, files: Files) -> Iterator[Staging]:
    """A place to make a checkpoint in; nothing is left of it where anything fails inside.

    Raises:
        OSError: the directory cannot be made or written.
    """
    parent, name = os.path.split(prefix)
    files.makedirs(parent or ".")
    for other in files.listdir(parent):
        _settle(other, parent, lambda of: of == name, files)
    counts = {shards for other in files.listdir(parent) if (shards := _shards(other, name))}
    with temporary(prefix) as directory:
        staging = Staging(prefix, directory, frozenset(counts), files)
        done_with = True
        try:
            files.makedirs(directory)
            yield staging
        except BaseException as error:
            done_with = False  # should a second interrupt come
            done_with = staging.undo()
            if not done_with:
                raise SaveError(
                    f"{prefix}: the checkpoint could not be written: {error}",
                    hint="nor could what is there of it be removed; the next save here completes "
                    "or removes it",
                ) from error
            raise
        finally:
            if done_with:  # else the next writer needs what is in it
                with contextlib.suppress(OSError):
                    files.remove_tree(directory)


class Staging:
    """A save that is not in place yet.

    Attributes:
        prefix: where the checkpoint is to be.
        inner: the prefix under which it is made.
        shard_counts: numbers of shards that are taken, by what stands under the prefix already.
    """

    def __init__(
        self, prefix: str, directory: str, shard_counts: frozenset[int], files: Files
    ) -> None:
        self.prefix = prefix
        self._parent, self._name = os.path.split(prefix)
        self._directory = directory
        self.inner = join(directory, self._name)
        self.shard_counts = shard_counts
        self._files = files
        self._moved: list[str] = []

    def files(self) -> tuple[str, ...]:
        """The names in it but those of index and record: the data, and what savers wrote.

        Raises:
            SaveError: a registered saver wrote a file that cannot be told to be the checkpoint's.
        """
        others = {index_path(self._name), commit.path_of(self._name), f"{self._name}_temp"}
        names = sorted({*self._files.listdir(self._directory)} - others)
        for name in names:
            if not is_part(name, self._name) and not name.endswith(_BEFORE):
                raise SaveError(
                    f"{self.prefix}: a registered saver wrote {name!r}, which would be lost",
                    hint="its names are to begin with the prefix it is given",
                )
        return tuple(name for name in names if not name.endswith(_BEFORE))

    def publish(self) -> None:
        """Move everything into place; when this returns, it is there, on disk."""
        files, names = self._files, self.files()
        index, record = index_path(self._name), commit.path_of(self._name)
        for name in (index, record):
            self._keep(name)
        for name in (*names, index):
            files.fsync(join(self._directory, name))
        # The directory itself was synced with the record, which came last; here is its own name.
        files.fsync_dir(self._parent)
        for name in names:
            self._move(name)
        if self.shard_counts:  # the index that is replaced must not go before the data is there
            files.fsync_dir(self._parent)
        self._move(index)
        files.fsync_dir(self._parent)
        self._move(record)
        files.fsync_dir(self._parent)
        self._moved.clear()  # it is committed, and stays whatever fails now
        with contextlib.suppress(OSError):  # the next save under this name tries again
            _remove_strays(self.prefix, files)

    def _keep(self, name: str) -> None:
        """Copy a file that will be replaced, for a save that fails between two renames."""
        path = join(self._parent, name)
        if self._files.exists(path):
            handle = self._files.open_read(path)
            try:
                data = handle.pread(0, handle.size)
            finally:
                handle.close()
            self._files.write_atomic(join(self._directory, name + _BEFORE), data)

    def _move(self, name: str) -> None:
        self._moved.append(name)
        self._files.rename(join(self._directory, name), join(self._parent, name))

    def undo(self) -> bool:
        """Take back what has been moved, unless all of it has; whether that was possible."""
        files = self._files
        try:
            for name in reversed(self._moved):
                path, before = join(self._parent, name), join(self._directory, name + _BEFORE)
                if files.exists(before):
                    files.rename(before, path)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        files.remove(path)
        except OSError:
            return False
        return True


def claim(directory: str, checkpoint_name: str, files: Files) -> None:
    """Be the only process that saves into a directory, and tidy what a dead one left there.

    Raises:
        InUseError: another process is.
        OSError: the directory cannot be made or written.
    """
    files.makedirs(directory or ".")
    if isinstance(files, LocalFiles):  # elsewhere there are no locks
        lock_of(directory or ".").acquire()
    numbered = re.compile(re.escape(checkpoint_name) + r"-[0-9]{1,18}")
    with _tidying:
        for name in files.listdir(directory):
            if abandoned(name) == STATE_FILE:
                _remove_tree(join(directory, name), files)
            elif name.endswith((DELETED, ".tmp")):  # few of many do
                _settle(name, directory, lambda of: numbered.fullmatch(of) is not None, files)


def delete(prefix: str, files: Files) -> None:
    """Delete a committed checkpoint: from the first rename on, it is none."""
    try:
        files.rename(commit.path_of(prefix), prefix + DELETED)
    except FileNotFoundError:
        return  # somebody else is at it, or took the record away: it is not ours any more
    files.fsync_dir(os.path.split(prefix)[0])
    _delete_files(prefix, files)


def _settle(name: str, directory: str, ours: Callable[[str], bool], files: Files) -> None:
    """Finish or undo what the name of a file says that a dead writer has begun."""
    path = join(directory, name)
    if (of := abandoned(name)) and ours(of):
        _settle_save(path, join(directory, of), files)
    elif name.endswith(DELETED) and ours(name.removesuffix(DELETED)):
        prefix = join(directory, name.removesuffix(DELETED))
        index = index_path(prefix)
        if not files.exists(index) or _is_of_index(path, prefix, files):
            logging.info("%s: its deletion is finished", prefix)
            _delete_files(prefix, files)
        else:  # another checkpoint has got its number
            _remove_tree(path, files)


def _settle_save(staged: str, prefix: str, files: Files) -> None:
    """Finish or undo one save, found by the directory it left."""
    parent, name = os.path.split(prefix)
    record = commit.path_of(name)
    with contextlib.suppress(FileNotFoundError):
        inside = files.listdir(staged) if files.is_dir(staged) else []
        if record in inside:
            path = join(staged, record)
            if index_path(name) not in inside and _is_of_index(path, prefix, files):
                logging.info("%s: its commit is completed", prefix)
                # After a loss of power, data may be there still.
                for part in (*(part for part in inside if is_part(part, name)), record):
                    files.rename(join(staged, part), join(parent, part))
                files.fsync_dir(parent)
                _remove_strays(prefix, files)
            else:
                logging.info("%s: the save that was cut short is undone", prefix)
                _remove_strays(prefix, files, {*_parts(path, prefix, files)} - {*inside})
    _remove_tree(staged, files)


def _is_of_index(record: str, prefix: str, files: Files) -> bool:
    try:
        found = commit.read_head(record, prefix, files)
        return found is not None and found.index_sha256 == commit.index_digest(prefix, files)
    except CheckpointError:
        return False


def _parts(record: str, prefix: str, files: Files) -> tuple[str, ...]:
    """The files of a checkpoint as a record names them; none where it cannot be read."""
    try:
        found = commit.read_head(record, prefix, files)
    except CheckpointError:
        return ()
    return found.files if found else ()


def _delete_files(prefix: str, files: Files) -> None:
    """What a deletion removes once the record has its other name."""
    parent, name = os.path.split(prefix)
    names = {*files.listdir(parent)}
    own = {*_parts(prefix + DELETED, prefix, files), *(n for n in names if _shards(n, name))}
    for file in (index_path(name), *sorted(own & names)):
        _remove_tree(join(parent, file), files)
    files.fsync_dir(parent)
    _remove_tree(prefix + DELETED, files)


def _remove_strays(prefix: str, files: Files, of: Collection[str] | None = None) -> None:
    """Remove the data files under a prefix that the index in place does not refer to.

    Args:
        prefix: of the checkpoint.
        files: where it is.
        of: no others than these.
    """
    parent, name = os.path.split(prefix)
    used = None
    try:
        with Bundle.open(prefix, files) as bundle:
            used = bundle.index.header.num_shards
    except CheckpointNotFoundError:
        pass
    except CheckpointError:
        return  # nobody can say which they are
    for other in files.listdir(parent):
        shards = _shards(other, name)
        stray = shards != used if shards else used is None and of is not None
        if stray and (shards if of is None else other in of):
            _remove_tree(join(parent, other), files)


def _remove_tree(path: str, files: Files) -> None:
    with contextlib.suppress(FileNotFoundError):
        files.remove_tree(path)


def _shards(file: str, name: str) -> int | None:
    """How many data files a checkpoint has, by the name of one of them."""
    match = _SHARDS.fullmatch(file.removeprefix(name)) if file.startswith(name) else None
    return int(match[1]) if match else None
