"""Chooses the number of the next save: higher than all files, and unused in this process.

Two managers of one directory may save at the same time, in two threads or in the background, before
the files of the first one exist. In an object store, a request that was given up may still arrive,
so a number that was tried there is not used again.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from tfckpt.errors import SaveError
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
        self._held: set[int] = set()  # the numbers of its directory that are in use
        self._advances: list[tuple[Callable[[Any], object], Any, Any]] = []

    @classmethod
    def take(
        cls, file_prefix: str, last: int, counter: int, files: Files, chosen: int | None = None
    ) -> Ticket:
        """Reserve a number in this process."""
        directory, name = os.path.split(file_prefix)
        real_directory = directory if "://" in directory else os.path.realpath(directory)
        with _lock:
            others = _taken.setdefault((real_directory, name), set())
            if chosen is None:
                value = max(counter, last, highest_number(directory, name, files), *others) + 1
                ticket = cls(value, value)
            elif chosen < (last := max([last, *others])):
                raise SaveError(
                    f"{file_prefix}-{chosen}: not saved: {name}-{last} exists and would be "
                    f"restored before {name}-{chosen}",
                    hint=f"delete {name}-{last}, or use another directory",
                )
            else:
                ticket = cls(chosen, counter + 1)
            if not files.renames:
                others.clear()
            others.add(ticket.value)
            if files.renames:  # else the number is held for good
                ticket._held = others
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
            self._held.discard(self.value)

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
