"""The number of the next save: above all that files have, and that this process is about to use.

Two managers of one directory may save at the same time, in two threads or in the background; the
files of the first may not be there yet when the second asks. In an object store, a request that was
given up may still arrive: there a number that was tried is not tried again.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.discovery import highest_number

if TYPE_CHECKING:
    from tfckpt.stored.io.files import Files

_lock = threading.Lock()
_taken: dict[tuple[str, str], set[int]] = {}


class Number:
    """A number that nobody else in this process gets until it is given back.

    Args:
        file_prefix: ``<directory>/<checkpoint_name>``.
        above: what it is to be above besides: the save counter, and :func:`last_in_order`.
        files: where the directory is.
        chosen: one that the save goes by instead, which others are to be above, too.
    """

    def __init__(
        self, file_prefix: str, above: int, files: Files, chosen: int | None = None
    ) -> None:
        directory, name = os.path.split(file_prefix)
        place = directory if "://" in directory else os.path.realpath(directory)
        with _lock:
            self._others = _taken.setdefault((place, name), set())
            highest = highest_number(directory, name, files)
            self.value = max(above, highest, *self._others) + 1
            if not files.renames:
                self._others.clear()
            self._held = {self.value} if chosen is None else {self.value, chosen}
            self._others |= self._held
            self._for_good = not files.renames

    def give_back(self) -> None:
        """The save is over: its files tell its number, or it left none."""
        with _lock:
            if not self._for_good:
                self._others -= self._held


def last_in_order(file_prefix: str, files: Files) -> int:
    """The number that stood before the highest one in place, where that was given by hand.

    Else its own, or 0 where there is no record.
    """
    directory, name = os.path.split(file_prefix)
    prefix = f"{file_prefix}-{highest_number(directory, name, files)}"
    try:
        head = record_file.read_head(record_file.path_of(prefix), prefix, files)
    except CheckpointError:
        return 0
    return head.order[0] if head else 0
