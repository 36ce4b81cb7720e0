"""Chooses the number of the next save: one above all files, whose mark this process has created.

In an object store, a request that was given up may still arrive, so a number that was tried there
is not used again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

from tfckpt.errors import SaveError
from tfckpt.stored.commits.commit import Mark, begin, begin_named
from tfckpt.stored.commits.discovery import highest_number
from tfckpt.stored.commits.record_file import MARK

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from tfckpt.stored.io.files import Files

_lock = threading.Lock()
_tried: dict[str, int] = {}  # path up to the number → the last one, in stores


class Ticket:
    """The number of one save: taken before the save begins, then used or given back.

    The chief of several workers takes it; the others make theirs from its :attr:`numbers`. As a
    context manager it is given back if the body raises. An empty one is for a file that has no
    number.

    Attributes:
        value: the number in the checkpoint's name.
        counted: the value that ``save_counter`` gets.
        mark: that of the checkpoint, if this process writes it.
    """

    def __init__(self, value: int = 0, counted: int = 0, mark: Mark | None = None) -> None:
        self.value, self.counted, self.mark = value, counted, mark
        self._advances: list[tuple[Callable[[Any], object], Any, Any]] = []

    @classmethod
    def take(
        cls, file_prefix: str, last: int, counter: int, files: Files, chosen: int | None = None
    ) -> Ticket:
        """Reserve a number."""
        directory, name = os.path.split(file_prefix)
        if chosen is not None:
            last = max(last, highest_number(directory, name, files, MARK))  # of running saves
            if chosen < last:
                raise SaveError(
                    f"{file_prefix}-{chosen}: not saved: {name}-{last} exists and would be "
                    f"restored before {name}-{chosen}",
                    hint=f"delete {name}-{last}, or use another directory",
                )
            return cls(chosen, counter + 1, begin_named(f"{file_prefix}-{chosen}", files))
        with _lock:  # a thread sees the mark of each that came before it, or the checkpoint
            last = max(counter, last, _tried.get(file_prefix, 0))
            while True:
                last = max(last, highest_number(directory, name, files)) + 1
                if not files.renames:
                    _tried[file_prefix] = last
                with contextlib.suppress(FileExistsError):  # another process has just taken it
                    return cls(last, last, begin(f"{file_prefix}-{last}", files))

    @property
    def numbers(self) -> list[int]:
        """What the other workers need."""
        return [self.value, self.counted]

    def advances(self, assign: Callable[[Any], object], before: Any, after: Any) -> None:
        """Add a counter, which is ``after`` from :meth:`advance` on, and ``before`` if it fails."""
        self._advances.append((assign, before, after))

    def advance(self) -> None:
        """Advance the counters."""
        for assign, _, after in self._advances:
            assign(after)

    def give_back(self) -> None:
        """The save failed and has left no files."""
        if self.mark is not None:
            self.mark.give_back()
        for assign, before, _ in self._advances:
            assign(before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.give_back()
