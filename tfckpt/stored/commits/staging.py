"""Stages a save in a directory of its own and moves it into place when it is complete.

``ckpt-12.1a2b3c4d.tmp/`` receives the data, the index and the commit record. Once they are synced
and read back, the data files are renamed into place, then the index, then the record. Readers see
the old checkpoint until the index moves, and the new one from then on, never a half of one. That
holds also where ``write`` replaces a checkpoint of the same name, since the new data files have a
different number of shards in their names.

A writer that dies leaves the directory behind; :mod:`tfckpt.stored.commits.recovery` completes or
undoes its save.

An object store has no renames, and no checkpoint there is replaced. Data files are written to their
final path. Index and record are staged and then written again to their final path, the record last.
Until then nothing vouches for the data, and a marker in the staging directory shows that the save
is running. There are no locks either: a recovery removes the marker before it looks for a record,
and a save checks its marker after the record is in place. So one of the two gives way, and no
checkpoint is removed whose save has returned.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError, SaveError
from tfckpt.stored.bundles.bundle import Bundle, data_path, index_path
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.recovery import (
    BEFORE,
    MARKER,
    MARKER_CONTENT,
    TAKEN,
    recover,
    remove_strays,
    remove_tree,
    shards_of,
    used_shards,
)
from tfckpt.stored.io.files import Files, content, join, temporary
from tfckpt.stored.io.shared_directory import writing
from tfckpt.stored.paths.parts import is_part

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def staged(prefix: str, files: Files) -> Iterator[Staging]:
    """A staging directory for a checkpoint; on failure nothing is left of it."""
    parent, name = os.path.split(prefix)
    files.makedirs(parent or ".")
    names = recover(prefix, files)
    counts = {shards for other in names if (shards := shards_of(other, name))}
    with writing(parent), temporary(prefix) as directory:
        staging = Staging(prefix, directory, frozenset(counts), files)
        done_with = True
        try:
            files.makedirs(directory)
            if not files.renames:
                files.write_atomic(join(directory, MARKER), MARKER_CONTENT)
            yield staging
        except BaseException as error:
            done_with = False  # in case of a second interrupt
            done_with = staging.undo()
            if not done_with:
                raise SaveError(
                    f"{prefix}: the checkpoint could not be written: {error}",
                    hint="partial files could not be removed either; the next save into this "
                    "directory cleans them up",
                ) from error
            raise
        finally:
            if done_with:  # otherwise recovery needs its content
                with contextlib.suppress(OSError):  # and where this fails, recovery goes on with it
                    staging.clean_up()


class Staging:
    """A save that is not in place yet.

    Attributes:
        prefix: final prefix of the checkpoint.
        inner: prefix in the staging directory.
        data: prefix of the data files: ``inner``, or ``prefix`` where files cannot be renamed.
        shard_counts: numbers of shards already used by files under the prefix.
    """

    def __init__(
        self, prefix: str, directory: str, shard_counts: frozenset[int], files: Files
    ) -> None:
        self.prefix = prefix
        self._parent, self._name = os.path.split(prefix)
        self._directory = directory
        self.inner = join(directory, self._name)
        self.data = self.inner if files.renames else prefix
        self.shard_counts = shard_counts
        self._files = files
        self._moved: list[str] = []
        self._replaced = False

    def files(self) -> tuple[str, ...]:
        """The staged files but index and record: data files, and what registered savers wrote."""
        others = {index_path(self._name), record_file.path_of(self._name), f"{self._name}_temp"}
        found = {*self._files.listdir(self._directory)} - others
        if not self._files.renames:
            found -= {MARKER, TAKEN}
            shards = used_shards(self.inner, self._files) or 0
            found |= {data_path(self._name, shard, shards) for shard in range(shards)}
        names = sorted(name for name in found if not name.endswith(BEFORE))
        for name in names:
            if not is_part(name, self._name):
                raise SaveError(
                    f"{self.prefix}: a registered saver wrote {name!r} outside of the checkpoint",
                    hint="its file names must start with the prefix that it receives",
                )
        return tuple(names)

    def publish(self) -> None:
        """Move everything into place; on return it is on disk."""
        files, names = self._files, self.files()
        if not files.renames:  # data files are in place already
            if not files.exists(join(self._directory, MARKER)):
                raise self._disturbed("treated its files as leftovers")
            names = tuple(n for n in names if files.exists(join(self._directory, n)))
        index, record = index_path(self._name), record_file.path_of(self._name)
        for name in (index, record) if files.renames else ():
            self._keep(name)
        # The staging directory was synced with the record; this syncs its name.
        files.fsync_dir(self._parent)
        for name in names:
            self._move(name)
        files.fsync_dir(self._parent)  # no loss of power leaves the index without its data
        self._move(index)
        files.fsync_dir(self._parent)
        self._move(record)
        files.fsync_dir(self._parent)
        if not files.renames:
            self._look_back()
        self._moved.clear()  # committed: a later failure must not undo it
        self._replaced = bool(self.shard_counts)

    def clean_up(self) -> None:
        """Remove the data of a checkpoint that was replaced, then the staging directory."""
        if self._replaced:
            remove_strays(self.prefix, self._files)
        remove_tree(self._directory, self._files)

    def _keep(self, name: str) -> None:
        """Copy a file that will be replaced, in case the save fails between two renames."""
        path = join(self._parent, name)
        if self._files.exists(path):
            data = content(path, self._files)
            self._files.write_atomic(join(self._directory, name + BEFORE), data)

    def _move(self, name: str) -> None:
        self._moved.append(name)
        source, target = join(self._directory, name), join(self._parent, name)
        if self._files.renames or shards_of(name, self._name):
            self._files.rename(source, target)
        else:
            self._files.write_atomic(target, content(source, self._files))

    def _look_back(self) -> None:
        """Raise SaveError where another process changed the files, as no lock prevents it."""
        files, wrong = self._files, ""
        try:
            record = record_file.path_of(self._name)
            ours = content(join(self._directory, record), files)
            if content(join(self._parent, record), files) != ours:
                self._moved.clear()  # not this save's files, so do not undo them
                wrong = "wrote a checkpoint of the same name"
            elif not files.exists(join(self._directory, MARKER)):
                wrong = "treated its files as leftovers"
            else:
                with Bundle.open(self.prefix, files) as bundle:
                    if bundle.missing_files or bundle.digest != self._digest():
                        wrong = "replaced or removed its files"
        except (FileNotFoundError, CheckpointError) as error:
            wrong = f"replaced or removed its files ({error})"
        if wrong:
            raise self._disturbed(wrong)

    def _disturbed(self, how: str) -> SaveError:
        message = f"{self.prefix}: not saved: another process {how} during the save"
        return SaveError(message, hint="let only one process save into a directory")

    def _digest(self) -> str:
        return record_file.index_digest(self.inner, self._files)

    def _take_back(self, record: str) -> None:
        """Stage the record again: from here on, recovery can end what is undone in part."""
        staged = join(self._directory, record)
        if not self._files.exists(staged):  # else it has not been moved
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(join(self._parent, record), staged)

    def undo(self) -> bool:
        """Move everything back, unless all of it is in place; whether that succeeded."""
        files = self._files
        record = record_file.path_of(self._name)
        names = self._moved[::-1]
        if not files.renames and record in names:
            names.append(record)  # a recovery may complete the save at the same time
        try:
            for name in names:
                path, before = join(self._parent, name), join(self._directory, name + BEFORE)
                if files.renames and name == record:
                    self._take_back(record)
                if files.renames and files.exists(before):
                    files.rename(before, path)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        files.remove(path)
            if not files.renames:
                remove_strays(self.prefix, files)
        except OSError:
            return False
        return True
