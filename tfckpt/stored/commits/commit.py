"""Commits, deletes and recovers checkpoints: one protocol for disks and object stores.

A checkpoint is its index beside its commit record, or the draft of it. A save writes each file
once, where it stays:

1. a *mark*, ``ckpt-12.tfckpt.mark``: it holds the name, and says that something is unfinished;
2. the data files, in another number than those of a checkpoint that is replaced;
3. the record as a *draft*, ``ckpt-12.tfckpt.draft``; from here on whoever finds the index can
   complete the save;
4. the index, which refers to the data: this is the commit;
5. the draft becomes ``ckpt-12.tfckpt.json``, and the mark goes.

Each file is synced when it is written, and the directory after 1, 3 and 4: nothing is assumed of
the order in which names reach the disk. A loss of power may bring a draft back, and take its mark.

In a deletion the record becomes the mark, which takes no space on a full disk. Every save, deletion
and move ends as what dead processes have begun does, by :func:`_end`: a draft that belongs to the
index in place becomes its record, data that no index refers to goes, and a sound index goes only if
the mark is its record, since others may have written under this name meanwhile.

On a disk, the writer has locked its mark. In a store nobody knows whether it is alive, so a
recovery first changes the mark, and a save looks at its mark after the commit: one of the two gives
way, and no checkpoint is removed whose save has returned.
"""

from __future__ import annotations

import contextlib
import os
import re
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from absl import logging

from tfckpt.errors import (
    CheckpointError,
    InUseError,
    NameTakenError,
    SaveError,
)
from tfckpt.stored.bundles.bundle import Bundle, data_path, index_path
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.record_file import DRAFT, MARK, PART, is_part, parse
from tfckpt.stored.commits.writer_lock import WriterLock, mutex, of_process
from tfckpt.stored.io import limits
from tfckpt.stored.io.files import (
    LOCAL,
    Files,
    LocalFiles,
    abandoned,
    content,
    join,
    stands_for,
)
from tfckpt.stored.io.locks import NotAFileError
from tfckpt.stored.io.state_file import STATE_FILE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from typing_extensions import Self

    from tfckpt.stored.commits.record_file import CommitRecord

QUARANTINE = "quarantine"
_MOVE = b"move "
_UNDONE = b"undone"
# The marks of this process, which stores do not lock; one that an interrupt drops is free again.
_held: weakref.WeakValueDictionary[str, Mark] = weakref.WeakValueDictionary()
of_process.append(_held)


class Mark:
    """The mark of a checkpoint, which this process holds until it is closed.

    Raises:
        BlockingIOError: another writer holds it.
        FileExistsError: it is to be ``new``, and is there.
        FileNotFoundError: it is not there.
    """

    def __init__(self, prefix: str, files: Files, new: bytes | None = None) -> None:
        self.prefix, self.files, self.path = prefix, files, prefix + MARK
        self.alone = False  # whether no file had this name when it was taken
        with mutex:
            if _held.setdefault(self.path, self) is not self:
                raise BlockingIOError(self.path)
        try:
            self._lock = files.lock(self.path, new)
            self.locked, now = self._lock.locked, self._now() if new is None else new
            if now is None:
                raise FileNotFoundError(self.path)
        except BaseException:
            del _held[self.path]
            raise
        self.content = now

    @cached_property
    def deletes(self) -> CommitRecord | None:
        """The record of the checkpoint that is deleted."""
        with contextlib.suppress(CheckpointError):  # it is a save
            return parse(self.content, self.path, self.prefix, head=True)
        return None

    @property
    def is_lost(self) -> bool:
        """Whether another process has treated it as left behind."""
        return not self.locked and self._now() != self.content

    @property
    def is_of_another(self) -> bool:
        """Whether another process has begun to write under this name."""
        return not self.locked and self._now() not in (None, _UNDONE, self.content)

    def _now(self) -> bytes | None:
        try:
            return content(self.path, self.files, limits.RECORD)
        except FileNotFoundError:
            return None
        except CheckpointError:  # too long: it is no mark of ours
            return b""

    def spoil(self) -> None:
        """Where no lock tells whether its writer is alive: the writer looks whether it is lost."""
        if not self.locked:
            self._lock.write(_UNDONE)
            self.content = _UNDONE

    def close(self) -> None:
        """Let others hold it."""
        if _held.get(self.path) is self:
            self._lock.close()
            del _held[self.path]

    def give_back(self) -> None:
        """Remove it, if it is still held: nothing was written under it."""
        if _held.get(self.path) is self:
            with self, contextlib.suppress(OSError):  # then the next one ends it
                _end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def begin(prefix: str, files: Files, *, replace: bool = False) -> Mark:
    """Take a name for a save; FileExistsError where another one has taken it."""
    parent = os.path.split(prefix)[0]
    files.makedirs(parent or ".")
    try:
        mark = Mark(prefix, files, b"" if files.renames else os.urandom(8).hex().encode())
    except BlockingIOError:
        raise FileExistsError(f"{prefix}{MARK}") from None
    try:
        files.fsync_dir(parent)  # no loss of power leaves files without it
        if not replace and files.exists(index_path(prefix)):
            raise FileExistsError(index_path(prefix))
    except BaseException:
        mark.give_back()
        raise
    return mark


def begin_named(prefix: str, files: Files) -> Mark:
    """Take a name for a save, and end what a dead process has begun with it."""
    with contextlib.suppress(FileNotFoundError):
        recover(prefix, files)
    try:
        return begin(prefix, files, replace=True)
    except FileExistsError:
        raise _in_use(prefix) from None


def _in_use(prefix: str) -> InUseError:
    message = f"{prefix}: another process or thread writes under this name"
    return InUseError(message, hint="choose another name, or wait for it")


@contextlib.contextmanager
def saving(prefix: str, files: Files = LOCAL, mark: Mark | None = None) -> Iterator[Saving]:
    """A save under this name: in the block data files are written, then it is committed.

    A block that raises leaves what was before. In a store, the name must be free.
    """
    with mark or begin_named(prefix, files) as held:  # 1.
        save = Saving(held)
        try:
            if not files.renames:
                _refuse_taken(prefix, files)
            _remove(prefix + PART, files)  # of others, such as a link: what is in it is moved
            yield save
        except BaseException as error:
            save.undo(error)
            raise
        with contextlib.suppress(OSError):  # it is committed; the next one ends the rest
            _end(held, save.written if held.alone else None)


class Saving:
    """A save whose data files the caller writes.

    What else it leaves in :data:`PART` belongs to the checkpoint, too.
    """

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._others: Sequence[str] = ()
        self._before: tuple[bytes, bytes] | None = None
        self._record: CommitRecord | None = None

    @property
    def taken(self) -> frozenset[int]:
        """The total numbers of data files of this name, which the new ones must not have."""
        parent, name = os.path.split(self._mark.prefix)
        if self._mark.alone:
            return frozenset()
        names = _beginning_with(name, parent, self._mark.files)
        return frozenset(filter(None, (record_file.shards_of(other, name) for other in names)))

    def files(self, num_shards: int) -> tuple[str, ...]:
        """All that was written: so many data files, and those of registered savers."""
        name = os.path.split(self._mark.prefix)[1]
        self._others = _others(self._mark.prefix, self._mark.files)
        data = [data_path(name, number, num_shards) for number in range(num_shards)]
        return tuple(sorted([*data, *self._others]))

    @property
    def written(self) -> tuple[str, ...]:
        """The names of what the save has written, besides index and record."""
        name = os.path.split(self._mark.prefix)[1]
        return (name + PART, *(self._record.files if self._record else ()))

    def commit(self, record: CommitRecord, index: bytes) -> None:
        """Commit the :meth:`files` of the record, which are on disk, with their index."""
        prefix, files = self._mark.prefix, self._mark.files
        parent = os.path.split(prefix)[0]
        self._before, self._record = _before(prefix, files), record
        record_file.write_draft(prefix, record, files)  # 3.
        for other in self._others:
            files.fsync_dir(parent)  # only the draft says that they belong to it
            files.rename(join(prefix + PART, other), join(parent, other))
        files.fsync_dir(parent)
        if not files.renames:  # another process may have written it meanwhile
            _refuse_taken(prefix, files, data=False)
        files.write_atomic(index_path(prefix), index)  # 4.
        files.fsync_dir(parent)  # the commit, since readers take the draft
        if record_file.index_digest(prefix, files) != record.index_sha256:
            raise _disturbed(prefix, "replaced its files")
        _publish(prefix, files)  # 5.
        if self._mark.is_lost:
            raise _disturbed(prefix, "treated its files as leftovers")

    def undo(self, error: BaseException) -> None:
        """End a save that has failed, whose index may be in place: what was is there again."""
        prefix, files = self._mark.prefix, self._mark.files
        try:
            if self._mark.is_of_another:
                return
            if self._record is not None:
                _withdraw(prefix, self._record, self._before, files)
            _end(self._mark)
        except OSError:
            raise SaveError(
                f"{prefix}: the checkpoint could not be written: {error}",
                hint="partial files could not be removed either; the next save into this directory "
                "completes the checkpoint if all of it was written, and removes it otherwise",
            ) from error


def _before(prefix: str, files: Files) -> tuple[bytes, bytes] | None:
    """Index and record of the checkpoint that is replaced, if one is."""
    path = record_file.path_of(prefix)
    if not files.renames or not files.exists(index_path(prefix)):
        return None
    return content(index_path(prefix), files), content(path, files) if files.exists(path) else b""


def _withdraw(
    prefix: str, record: CommitRecord, before: tuple[bytes, bytes] | None, files: Files
) -> None:
    """Take an index out of its place, if it is this record's."""
    path = record_file.path_of(prefix)
    if _digest(prefix, files) != record.index_sha256:
        return
    if before is None:
        if _is_recorded(record, prefix, files):
            _rename(path, prefix + DRAFT, files)
        _remove(index_path(prefix), files)
        if _is_recorded(record, prefix, files):  # a recovery has completed it meanwhile
            _remove(path, files)
        return
    index, recorded = before
    if not recorded:
        _remove(path, files)
    elif content(path, files) != recorded:  # it was committed, so commit the other again
        files.write_atomic(prefix + DRAFT, recorded)
        files.fsync_dir(os.path.split(prefix)[0])
    files.write_atomic(index_path(prefix), index)
    files.fsync_dir(os.path.split(prefix)[0])


def _is_recorded(record: CommitRecord, prefix: str, files: Files) -> bool:
    """Whether the record in place is that of the same index."""
    found = None
    with contextlib.suppress(CheckpointError):
        found = record_file.read_head(prefix, files)
    return found is not None and found.index_sha256 == record.index_sha256


def _disturbed(prefix: str, how: str) -> SaveError:
    message = f"{prefix}: not saved: another process {how} during the save"
    return SaveError(message, hint="let only one process save into a directory")


def _others(prefix: str, files: Files) -> list[str]:
    """The names of what registered savers wrote."""
    name, found = os.path.split(prefix)[1], list[str]()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found = [n for n in sorted(files.listdir(prefix + PART)) if n != f"{name}_temp"]
    for other in found:
        if not is_part(other, name):
            raise SaveError(
                f"{prefix}: a registered saver wrote {other!r} outside of the checkpoint",
                hint="its file names must start with the prefix that it receives",
            )
    return found


def delete(prefix: str, files: Files, names: Collection[str] | None = None) -> None:
    """Delete a committed checkpoint: its record, then its index, then its data.

    ``names`` are those in its directory that begin with its own, where they are known, so that a
    deletion of many lists the directory once.
    """
    recover(prefix, files)
    record, new = record_file.path_of(prefix), None
    try:
        if not files.renames:
            new = content(record, files)
        elif files.exists(prefix + MARK):  # it is being written
            return
        else:
            files.rename(record, prefix + MARK)
            files.fsync_dir(os.path.split(prefix)[0])
        mark = Mark(prefix, files, new)
    except (FileNotFoundError, FileExistsError, BlockingIOError):  # another one deletes it
        return
    with mark:
        _end(mark, names)


def recover(prefix: str, files: Files, *, mine: bool = True) -> None:
    """End what a dead process has begun with a checkpoint.

    ``mine`` is whether only this process writes under the name; else nothing is done where locks do
    not tell.
    """
    ended = files.renames and files.exists(prefix + DRAFT) and not files.exists(prefix + MARK)
    try:
        mark = Mark(prefix, files, b"" if ended else None)
    except (FileNotFoundError, FileExistsError, NotADirectoryError, BlockingIOError):
        return
    except NotAFileError:  # a link, or a directory
        _remove(prefix + MARK, files)
        return
    with mark:
        if not mark.locked and not mine:
            return
        if not mark.content.startswith(_MOVE) and not mark.deletes:
            mark.spoil()
        _end(mark)


def _end(mark: Mark, listed: Collection[str] | None = None) -> None:
    """Complete or undo what a mark stands for; the end of whatever succeeds, too."""
    prefix, files, draft = mark.prefix, mark.files, mark.deletes
    parent, path = os.path.split(prefix)[0], record_file.path_of(prefix)
    if mark.content.startswith(_MOVE):
        _move(mark)
    elif draft:
        if _is_recorded(draft, prefix, files):
            _remove(path, files)
        if _digest(prefix, files) == draft.index_sha256 or _used_shards(prefix, files) is None:
            _remove(index_path(prefix), files)
    else:
        draft = _complete(prefix, files)
    gone = _left_over(prefix, draft, listed, files)
    for other in sorted(gone):
        _remove(join(parent, other), files)
    if gone:
        files.fsync_dir(parent)  # no loss of power leaves any of it without the mark
    if not mark.locked:
        mark.close()  # Windows removes no open file
    _remove(mark.path, files)


def _complete(prefix: str, files: Files) -> CommitRecord | None:
    """Publish a draft, which is returned, if it belongs to the index in place."""
    draft = record_file.read_draft(prefix, files, head=True)
    if draft and draft.index_sha256 == _digest(prefix, files):
        logging.info("%s: completed an interrupted save", prefix)
        _publish(prefix, files)
    return draft


def _publish(prefix: str, files: Files) -> None:
    """Make the draft the record."""
    _rename(prefix + DRAFT, record_file.path_of(prefix), files)
    if not files.renames and not files.exists(index_path(prefix)):  # its writer has undone it
        _remove(record_file.path_of(prefix), files)


def _left_over(
    prefix: str, record: CommitRecord | None, listed: Collection[str] | None, files: Files
) -> set[str]:
    """The files of a checkpoint that are not in place, or that its index does not refer to."""
    parent, name = os.path.split(prefix)
    small = {index_path(name), record_file.path_of(name), name + DRAFT}
    if listed is None:
        names = _beginning_with(name, parent, files)
    else:  # some have changed since
        names = {other for other in small.union(listed) if files.exists(join(parent, other))}
    unfinished = {n for n in names if n in (name + DRAFT, name + PART) or stands_for(n) in small}
    return unfinished | _strays(prefix, names, record, files)


def _strays(prefix: str, names: set[str], record: CommitRecord | None, files: Files) -> set[str]:
    name = os.path.split(prefix)[1]
    counts = {other: record_file.shards_of(other, name) for other in names}
    data = {other: count for other, count in counts.items() if count is not None}
    if index_path(name) in names:
        if len({*data.values()}) < 2 or (used := _used_shards(prefix, files)) is None:
            return set()
        return {other for other in data if data[other] != used}
    if record_file.path_of(name) in names:  # the index was lost
        return set()
    return {*data, *(record.files if record else ())} & names


def _used_shards(prefix: str, files: Files) -> int | None:
    """The number of data files that the index refers to; None where it cannot be read."""
    with contextlib.suppress(CheckpointError), Bundle.open(prefix, files, whole=False) as bundle:
        return bundle.index.num_shards
    return None


def refuse_links(prefix: str, files: Files) -> None:
    """Raise SaveError where moving a checkpoint away would follow a link, or take one along."""
    parent = os.path.split(prefix)[0]
    names = record_file.parts(prefix, {*files.listdir(parent)}, files)
    for path in (join(parent, name) for name in (QUARANTINE, *names)):
        if _is_link(path):
            message = f"{path}: is a symbolic link; nothing was moved"
            raise SaveError(message, hint=f"remove it, or move {prefix} to another place by hand")


def _is_link(path: str) -> bool:
    return "://" not in path and Path(path).is_symlink()


def move_away(prefix: str, name: str, files: Files) -> str:
    """Move the files of a checkpoint into a new directory, and return its path.

    It counts as moved from the first change on, and recovery completes what is interrupted.
    """
    if files.exists(prefix + MARK):
        raise _in_use(prefix)
    what = _MOVE + os.fsencode(f"{_digest(prefix, files) or ''} {name}\n")
    files.write_atomic(prefix + MARK, what)  # never half of it: that would be a save
    files.fsync_dir(os.path.split(prefix)[0])
    with Mark(prefix, files) as mark:
        _end(mark)
    return join(join(os.path.split(prefix)[0], QUARANTINE), name)


def _move(mark: Mark) -> None:
    """Move what is left of a checkpoint to where its mark says; the record comes last."""
    prefix, files = mark.prefix, mark.files
    parent, name = os.path.split(prefix)
    digest, _, into = os.fsdecode(mark.content[len(_MOVE) :]).rstrip("\n").partition(" ")
    quarantine = join(parent, QUARANTINE)
    target = join(quarantine, os.path.split(into)[1] or name)
    if _is_link(quarantine) or _is_link(target):
        logging.warning("%s: is not moved away: there is a link in place of %s", prefix, target)
    elif (_digest(prefix, files) or digest) == digest:  # else the name has a new owner
        files.makedirs(target)
        for file in reversed(record_file.parts(prefix, {*files.listdir(parent)}, files)):
            files.rename(join(parent, file), join(target, file))
        files.fsync_dir(target)
        files.fsync_dir(parent)


def claim(directory: str, checkpoint_name: str | None, files: Files) -> tuple[int, list[str]]:
    """Lock a directory for writes by this process, and end what dead processes have begun.

    Where locks do not tell who is alive, only numbered checkpoints of that name are recovered.
    Returns the highest number recovered in an object store, otherwise 0, and the names in the
    directory. The writer there may still be alive, or its requests arrive late, so that number must
    not be used again.
    """
    files.makedirs(directory or ".")
    if isinstance(files, LocalFiles):  # other file systems have no locks
        WriterLock(directory or ".").acquire()
    numbered = re.compile(re.escape(checkpoint_name or "") + r"-([0-9]{1,18})")
    recovered = [0]
    names = files.listdir(directory)
    for name in (unfinished := _unfinished(names)):
        if name.endswith((MARK, DRAFT)):
            match = numbered.fullmatch(of := name.rpartition(".tfckpt.")[0])
            recovered += [int(match[1])] if match else []
            recover(join(directory, of), files, mine=match is not None)
        else:
            _remove(join(directory, name), files)
    names = files.listdir(directory) if unfinished else names
    return 0 if files.renames else max(recovered), names


def sweep(directory: str, files: Files) -> None:
    """:func:`claim` for a command that changes nothing else, if there is anything to recover."""
    if _unfinished(files.listdir(directory)):
        claim(directory, None, files)


def _unfinished(names: Collection[str]) -> list[str]:
    """Marks, drafts, and state files and marks that a dead process did not write to their ends."""
    half = [(name, abandoned(name) or "") for name in names if name.endswith(".tmp")]
    found = [name for name, of in half if of == STATE_FILE or of.endswith(MARK)]
    return found + [name for name in names if name.endswith((MARK, DRAFT))]


def _refuse_taken(prefix: str, files: Files, *, data: bool = True) -> None:
    """Raise SaveError where a store has a file of this checkpoint; ``data`` includes data files."""
    directory, name = os.path.split(prefix)
    own = {name, index_path(name), record_file.path_of(name)}
    for other in sorted(_beginning_with(name, directory, files)):
        if other in own or (data and record_file.shards_of(other, name) is not None):
            message = f"{prefix}: {other!r} already exists and is not overwritten"
            hint = "choose a name that does not exist yet; `save` finds one: no checkpoint is "
            hint += "replaced in an object store"
            raise NameTakenError(message, hint=hint)


def _digest(prefix: str, files: Files) -> str | None:
    """That of the index; None where it cannot be read."""
    with contextlib.suppress(CheckpointError):
        return record_file.index_digest(prefix, files)
    return None


def _beginning_with(name: str, directory: str, files: Files) -> set[str]:
    """The names in a directory that begin with that of a checkpoint, its own among them."""
    return {other for other in files.listdir(directory) if other.startswith(name)}


def _rename(source: str, target: str, files: Files) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process has done it
        files.rename(source, target)


def _remove(path: str, files: Files) -> None:
    with contextlib.suppress(FileNotFoundError):
        files.remove_tree(path)
