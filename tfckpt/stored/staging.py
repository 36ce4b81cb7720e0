"""A save is made in a directory of its own, and moves into place when it is whole.

``ckpt-12.1a2b3c4d.tmp/`` takes the data, the index and the commit record. Once all of it is on disk
and was read back, the data files are renamed into place, then the index, then the record. Until
the index moves, readers see what was there before; from then on, the new checkpoint. There is no
moment at which they see half of one, even where ``write`` replaces a checkpoint of the same name,
since the data files of the new one go by another number of shards.

A writer that dies leaves that directory behind, and what is in it says how far the save had come:
:func:`claim` completes one whose index is in place, and undoes all others. A deletion begins by
renaming the record to ``ckpt-12.tfckpt.deleted``, so that one cut short is not taken for a
checkpoint of somebody else's; it is finished there, too.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

from absl import logging

from tfckpt.errors import CheckpointError
from tfckpt.stored import commit
from tfckpt.stored.bundle import index_path
from tfckpt.stored.files import Files, LocalFiles, abandoned, join, temporary
from tfckpt.stored.lock import lock_of
from tfckpt.stored.record import is_part
from tfckpt.stored.state_file import STATE_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DELETED = ".tfckpt.deleted"
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
        try:
            files.makedirs(directory)
            yield staging
        except BaseException:
            staging.undo()
            raise
        finally:
            with contextlib.suppress(OSError):  # what stays is settled by the next writer
                if files.exists(directory):
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
        self._before: dict[str, bytes] = {}

    def files(self) -> tuple[str, ...]:
        """The names in it but those of index and record: the data, and what savers wrote."""
        names = self._files.listdir(self._directory)
        return tuple(sorted(name for name in names if is_part(name, self._name)))

    def publish(self) -> None:
        """Move everything into place; when this returns, it is there, on disk."""
        files, names = self._files, self.files()
        index, record = index_path(self._name), commit.path_of(self._name)
        for name in (index, record):
            self._remember(join(self._parent, name))
        for name in (*names, index):
            files.fsync(join(self._directory, name))
        # The directory itself was synced with the record, which came last; here is its own name.
        files.fsync_dir(self._parent)
        for name in (*names, index):
            self._move(name)
        files.fsync_dir(self._parent)
        self._move(record)
        files.fsync_dir(self._parent)
        self._moved.clear()  # it is committed, and stays whatever fails now
        for name in _replaced(self.prefix, names, files):
            with contextlib.suppress(OSError):  # the next save under this name tries again
                files.remove(join(self._parent, name))

    def _move(self, name: str) -> None:
        target = join(self._parent, name)
        self._moved.append(target)
        self._files.rename(join(self._directory, name), target)

    def _remember(self, path: str) -> None:
        """Keep what a file of that name holds, for a save that fails between two renames."""
        if self._files.exists(path):
            handle = self._files.open_read(path)
            try:
                self._before[path] = handle.pread(0, handle.size)
            finally:
                handle.close()

    def undo(self) -> None:
        """Take back what has been moved, unless all of it has."""
        for path in reversed(self._moved):
            with contextlib.suppress(OSError):
                if path in self._before:
                    self._files.write_atomic(path, self._before[path])
                else:
                    self._files.remove(path)


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
    for name in files.listdir(directory):
        if abandoned(name) == STATE_FILE:
            files.remove(join(directory, name))
        elif name.endswith((DELETED, ".tmp")):  # few of many do
            _settle(name, directory, lambda of: numbered.fullmatch(of) is not None, files)


def delete(prefix: str, files: Files) -> None:
    """Delete a checkpoint: from the first rename on, it is none."""
    with contextlib.suppress(FileNotFoundError):
        files.rename(commit.path_of(prefix), prefix + DELETED)
        files.fsync_dir(os.path.split(prefix)[0])
    _delete_files(prefix, files)


def _settle(name: str, directory: str, ours: Callable[[str], bool], files: Files) -> None:
    """Finish or undo what the name of a file says that a dead writer has begun."""
    if (of := abandoned(name)) and ours(of):
        _settle_save(join(directory, name), join(directory, of), files)
    elif name.endswith(DELETED) and ours(name.removesuffix(DELETED)):
        prefix = join(directory, name.removesuffix(DELETED))
        logging.info("%s: its deletion is finished", prefix)
        _delete_files(prefix, files)


def _settle_save(staged: str, prefix: str, files: Files) -> None:
    """Finish or undo one save, found by the directory it left."""
    parent, name = os.path.split(prefix)
    index, record = index_path(name), commit.path_of(name)
    inside = files.listdir(staged)
    if record in inside:
        names = _parts(join(staged, record), prefix, files)
        if index not in inside:
            logging.info("%s: its commit is completed", prefix)
            files.rename(join(staged, record), join(parent, record))
            files.fsync_dir(parent)
            for other in _replaced(prefix, names, files):
                files.remove(join(parent, other))
        else:
            logging.info("%s: the save that was cut short is undone", prefix)
            for other in set(names) - set(inside):
                with contextlib.suppress(FileNotFoundError):
                    files.remove(join(parent, other))
    files.remove_tree(staged)


def _parts(record: str, prefix: str, files: Files) -> tuple[str, ...]:
    """The files of a checkpoint as a record names them; none where it cannot be read."""
    try:
        found = commit.read_head(record, prefix, files)
    except CheckpointError:
        return ()
    return found.files if found else ()


def _delete_files(prefix: str, files: Files) -> None:
    parent, name = os.path.split(prefix)
    names = files.listdir(parent)
    own = {*_parts(prefix + DELETED, prefix, files), *(n for n in names if _shards(n, name))}
    for file in (index_path(name), *sorted(own), name + DELETED):
        if file in names:
            files.remove(join(parent, file))


def _replaced(prefix: str, names: tuple[str, ...], files: Files) -> Iterator[str]:
    """Data files of that prefix that belong to the checkpoint that stood there before."""
    parent, name = os.path.split(prefix)
    for other in files.listdir(parent):
        if _shards(other, name) and other not in names:
            yield other


def _shards(file: str, name: str) -> int | None:
    """How many data files a checkpoint has, by the name of one of them."""
    match = _SHARDS.fullmatch(file.removeprefix(name)) if file.startswith(name) else None
    return int(match[1]) if match else None
