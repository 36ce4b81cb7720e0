"""Chooses the number of the next save: one above all files, whose mark this process has created.

In an object store, a request that was given up may still arrive, so a number that was tried there
is not used again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.errors import SaveError
from tfckpt.stored.commits.commit import Mark, begin, begin_named, claim
from tfckpt.stored.commits.discovery import TORN, highest_number, listed
from tfckpt.stored.commits.record_file import MARK

if TYPE_CHECKING:
    from tfckpt.stored.io.files import Files

_lock = threading.Lock()
_tried: dict[str, int] = {}  # path up to the number → the last one, in stores


class SaveNumber(NamedTuple):
    """The number of one save; an empty one is for a file that has no number.

    The chief of several workers takes it, and the others hear of it.

    Attributes:
        value: the number in the checkpoint's name.
        counted: the value that ``save_counter`` gets.
        mark: that of the checkpoint, if this process writes it.
    """

    value: int = 0
    counted: int = 0
    mark: Mark | None = None

    def give_back(self) -> None:
        """The save has failed; if nothing was written, another one may have the number."""
        if self.mark is not None:
            self.mark.give_back()


def take_number(
    file_prefix: str, files: Files, counter: int, chosen: int | None = None
) -> SaveNumber:
    """Lock the directory, end what dead processes have begun, and reserve the next number.

    ``counter`` is ``save_counter`` before the save, ``chosen`` a number to use instead.
    """
    directory, name = os.path.split(file_prefix)
    if chosen is not None:
        last, names = claim(directory, name, files)
        found = (one.number for one in listed(directory, names, name) if one.state != TORN)
        last = max(last, next(found, None) or 0)
        last = max(last, highest_number(names, name, MARK))  # of running saves
        if chosen < last:
            raise SaveError(
                f"{file_prefix}-{chosen}: not saved: {name}-{last} exists and would be restored "
                f"before {name}-{chosen}",
                hint=f"delete {name}-{last}, or use another directory",
            )
        return SaveNumber(chosen, counter + 1, begin_named(f"{file_prefix}-{chosen}", files))
    with _lock:  # a thread sees the mark of each that came before it, or the checkpoint
        last, names = claim(directory, name, files)
        last = max(counter, last, _tried.get(file_prefix, 0), highest_number(names, name))
        while True:
            last += 1
            if not files.renames:
                _tried[file_prefix] = last
            with contextlib.suppress(FileExistsError):  # another process has just taken it
                mark = begin(f"{file_prefix}-{last}", files)
                mark.alone = files.renames
                return SaveNumber(last, last, mark)
