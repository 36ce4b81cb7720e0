"""Chooses the number of the next save: higher than all files, and unused in this process.

Two managers of one directory may save at the same time, in two threads or in the background, before
the files of the first one exist. In an object store, a request that was given up may still arrive,
so a number that was tried there is not used again.
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
    """A number reserved in this process until it is given back.

    Args:
        file_prefix: ``<directory>/<checkpoint_name>``.
        above: a lower bound: the save counter or :func:`last_in_order`.
        files: the file system.
        chosen: the number that the save uses instead; it is reserved too.
    """

    def __init__(
        self, file_prefix: str, above: int, files: Files, chosen: int | None = None
    ) -> None:
        directory, name = os.path.split(file_prefix)
        real_directory = directory if "://" in directory else os.path.realpath(directory)
        with _lock:
            self._others = _taken.setdefault((real_directory, name), set())
            highest = highest_number(directory, name, files)
            self.value = max(above, highest, *self._others) + 1
            if not files.renames:
                self._others.clear()
            self._held = {self.value} if chosen is None else {self.value, chosen}
            self._others |= self._held
            self._for_good = not files.renames

    def give_back(self) -> None:
        """Release the number after the save, which has written files or left none."""
        with _lock:
            if not self._for_good:
                self._others -= self._held


def last_in_order(file_prefix: str, files: Files) -> int:
    """The number that preceded the highest one, where that one was chosen by the user.

    Otherwise the highest number itself, or 0 without a record.
    """
    directory, name = os.path.split(file_prefix)
    prefix = f"{file_prefix}-{highest_number(directory, name, files)}"
    try:
        head = record_file.read_head(record_file.path_of(prefix), prefix, files)
    except CheckpointError:
        return 0
    return head.order[0] if head else 0
