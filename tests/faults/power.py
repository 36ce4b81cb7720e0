"""A loss of power, as a file system may answer it that keeps no more than it promised.

Promised is what was fsynced: a file's content at that time, and a directory's entries at that time.
Of all else, any part may be there afterwards: a name that was made, renamed or deleted since the
directory was fsynced, as it was or as it is; a file that was not fsynced, whole, cut off, full of
zeros or empty. A rename is one step and is promised once the directory of the new name is fsynced.

The process runs as always. Around every call of the file system interface, and around every fsync,
what has changed is seen by comparing the directory with what it was, so that TensorFlow's own files
are seen, too; and each time, directories are made as a loss of power might leave them.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faults.injection import Seam

from tfckpt.stored.io.files import LocalFiles

if TYPE_CHECKING:
    import random

Key = tuple[int, str]  # inode of a directory, name in it
Change = dict[Key, "int | None"]  # what a name leads to from now on


@dataclasses.dataclass(frozen=True)
class Loss:
    """A directory as a loss of power left it, the journal of that time, and where it struck."""

    root: str
    journal: str
    place: str


class Power:
    """Records what was made durable below one directory, and cuts the power.

    Args:
        root: the directory; what is in it at first is durable.
        journal: of the process.
        work: where the directories after a loss are made.
        rng: chooses what survives.
        times: losses at each place.
        share: of the places at which the power is cut.
    """

    def __init__(
        self, root: str, journal: str, work: str, rng: random.Random, times: int, share: float
    ) -> None:
        self.losses: list[Loss] = []
        self._root, self._journal, self._work = root, journal, Path(work)
        self._rng, self._times, self._share = rng, times, share
        self._descriptors: dict[int, int] = {}  # held open: no inode is used twice
        self._synced: dict[int, bytes] = {}
        self._directories: set[int] = set()
        self._pending: list[Change] = []
        self._originals: list[tuple[Any, str, Any]] = []
        self._lock = threading.Lock()  # several threads may write, and wait for the disk
        self._now = self._scan()
        self._durable = dict(self._now)
        for inode in set(self._now.values()) - self._directories:
            self._synced[inode] = self._content(inode)

    def start(self) -> None:
        for name in Seam.CALLS:
            self._patch(LocalFiles, name)
        self._patch(os, "fsync")

    def stop(self) -> None:
        self._cut("the end")
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _patch(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            about = "" if owner is os else Path(arguments[1]).name
            place = f"{owner.__name__}.{name} {about}"
            with self._lock:
                self._cut(f"before {place}")
            result = original(*arguments, **keywords)
            with self._lock:
                if owner is os:
                    self._made_durable(os.fstat(arguments[0]))
                self._cut(f"after {place}")
            return result

        setattr(owner, name, call)
        self._originals.append((owner, name, original))

    def _made_durable(self, status: os.stat_result) -> None:
        self._observe()
        inode = status.st_ino
        if not stat.S_ISDIR(status.st_mode):
            if inode in self._descriptors:
                self._synced[inode] = self._content(inode)
            return
        rest = []
        for change in self._pending:
            made = [key for key, target in change.items() if target is not None]
            if any(directory == inode for directory, _ in made or change):
                _apply(self._durable, change)
                for older in rest:  # of the same names: this one came later
                    for key in change:
                        older.pop(key, None)
            else:
                rest.append(change)
        self._pending = rest

    def _scan(self) -> dict[Key, int]:
        found: dict[Key, int] = {}
        waiting = [self._root]
        while waiting:
            directory = waiting.pop()
            above = Path(directory).stat().st_ino
            for entry in os.scandir(directory):
                inode = entry.inode()
                found[above, entry.name] = inode
                if inode not in self._descriptors:
                    self._descriptors[inode] = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
                if entry.is_dir(follow_symlinks=False):
                    self._directories.add(inode)
                    waiting.append(entry.path)
        return found

    def _observe(self) -> None:
        """Whatever has changed since the last time is not durable yet."""
        before, now = self._now, self._scan()
        gone = {inode: key for key, inode in before.items() if now.get(key) != inode}
        for key, inode in now.items():
            if before.get(key) != inode:
                moved_from = gone.pop(inode, None)
                change: Change = {key: inode}
                if moved_from is not None and moved_from not in now:
                    change[moved_from] = None
                self._pending.append(change)
        self._pending += [{key: None} for key in gone.values() if key not in now]
        self._now = now

    def _content(self, inode: int) -> bytes:
        descriptor = self._descriptors[inode]
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def _cut(self, place: str) -> None:
        self._observe()
        if self._rng.random() >= self._share and place != "the end":
            return
        for _ in range(self._times):
            root = self._work / str(len(self.losses))
            journal = f"{root}.journal"
            self._rebuild(root)
            shutil.copy(self._journal, journal)
            self.losses.append(Loss(str(root), journal, place))

    def _rebuild(self, root: Path) -> None:
        entries = dict(self._durable)
        pending = self._pending
        how = self._rng.choice(("none", "all", "first", "any"))
        if how == "first":
            pending = pending[: self._rng.randint(0, len(pending))]
        for change in pending:
            if how in ("all", "first") or (how == "any" and self._rng.random() < 0.5):
                _apply(entries, change)
        places = {Path(self._root).stat().st_ino: root}
        root.mkdir()
        waiting = list(places)
        while waiting:
            above = waiting.pop()
            for (directory, name), inode in entries.items():
                if directory != above:
                    continue
                path = places[above] / name
                if inode in self._directories:
                    path.mkdir()
                    places[inode] = path
                    waiting.append(inode)
                else:
                    path.write_bytes(self._survives(inode))

    def _survives(self, inode: int) -> bytes:
        content, synced = self._content(inode), self._synced.get(inode)
        if content == synced:
            return content
        cut_off = content[: self._rng.randint(0, len(content))]
        return self._rng.choice((content, cut_off, bytes(len(content)), synced or b""))


def _apply(entries: dict[Key, int], change: Change) -> None:
    for key, inode in change.items():
        if inode is None:
            entries.pop(key, None)
        else:
            entries[key] = inode
