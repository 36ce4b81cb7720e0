"""The number of the next save: above all that files have, and that this process is about to use.

Two managers of one directory may save at the same time, in two threads or in the background; the
files of the first may not be there yet when the second asks.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from tfckpt.stored.discover import highest_number

if TYPE_CHECKING:
    from tfckpt.stored.files import Files

_lock = threading.Lock()
_taken: dict[tuple[str, str], set[int]] = {}


def take(file_prefix: str, above: int, files: Files) -> int:
    """The next number, which nobody else in this process gets until it is given back.

    Args:
        file_prefix: ``<directory>/<checkpoint_name>``.
        above: what it is to be above besides, as the save counter knows.
        files: where the directory is.
    """
    directory, name = os.path.split(file_prefix)
    with _lock:
        taken = _taken.setdefault(_key(file_prefix), set())
        number = max(above, highest_number(directory, name, files), *taken) + 1
        taken.add(number)
    return number


def give_back(file_prefix: str, number: int) -> None:
    """The save is over: its files tell its number, or it left none."""
    with _lock:
        _taken[_key(file_prefix)].discard(number)


def _key(file_prefix: str) -> tuple[str, str]:
    directory, name = os.path.split(file_prefix)
    return directory if "://" in directory else os.path.realpath(directory), name
