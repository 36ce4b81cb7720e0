"""Chooses the number of the next save: higher than all files, and unused in this process.

Two managers of one directory may save at the same time, in two threads or in the background, before
the files of the first one exist. In an object store, a request that was given up may still arrive,
so a number that was tried there is not used again.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from tfckpt.errors import CheckpointError
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.discovery import highest_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from tfckpt.stored.io.files import Files

_lock = threading.Lock()
_taken: dict[tuple[str, str], set[int]] = {}


class Ticket:
    """The number of one save: taken before the save begins, then kept or given back.

    The chief of several workers takes it; the others make theirs from its :attr:`numbers`. As a
    context manager it is given back if the body raises. An empty one is for a file that has no
    number.

    Attributes:
        value: the number in the checkpoint's name.
        counted: the value that ``save_counter`` gets.
    """

    def __init__(self, value: int = 0, counted: int = 0) -> None:
        self.value, self.counted = value, counted
        self._held: set[int] = set()
        self._taken: set[int] = set()
        self._advances: list[tuple[Callable[[Any], object], Any, Any]] = []

    @classmethod
    def take(
        cls, file_prefix: str, above: int, files: Files, chosen: int | None = None, counter: int = 0
    ) -> Ticket:
        """Reserve a number in this process.

        Args:
            file_prefix: ``<directory>/<checkpoint_name>``.
            above: a lower bound: the save counter or :func:`last_in_order`.
            files: the file system.
            chosen: the number that the save uses instead; the next one is reserved too.
            counter: the save counter, which a chosen number advances by one.
        """
        directory, name = os.path.split(file_prefix)
        real_directory = directory if "://" in directory else os.path.realpath(directory)
        with _lock:
            others = _taken.setdefault((real_directory, name), set())
            value = max(above, highest_number(directory, name, files), *others) + 1
            if not files.renames:
                others.clear()
            ticket = cls(value, value) if chosen is None else cls(chosen, counter + 1)
            held = {value, ticket.value}
            others |= held
            if files.renames:  # else the numbers are held for good
                ticket._held, ticket._taken = held, others
        return ticket

    @property
    def numbers(self) -> list[int]:
        """What the other workers need."""
        return [self.value, self.counted]

    def advances(self, assign: Callable[[Any], object], before: Any, after: Any) -> None:
        """Add a counter, which is ``after`` from :meth:`begin` on, and ``before`` if it fails."""
        self._advances.append((assign, before, after))

    def begin(self) -> None:
        """Advance the counters, which are saved too."""
        for assign, _, after in self._advances:
            assign(after)

    def keep(self) -> None:
        """The checkpoint is committed: its files hold the number from now on."""
        with _lock:
            self._taken -= self._held

    def give_back(self) -> None:
        """The save failed and has left no files."""
        self.keep()
        for assign, before, _ in self._advances:
            assign(before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.give_back()


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
