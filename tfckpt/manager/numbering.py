"""What a save is called, as the chief of several workers finds it out and tells it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.stored.commits.numbering import Number


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The same in all workers.

    Attributes:
        chosen: of the save, the end of its name.
        counted: what ``save_counter`` is to be.
    """

    chosen: int
    counted: int


@dataclasses.dataclass(frozen=True)
class Begun:
    """A save that has a number, where it is made.

    Attributes:
        number: what nobody else in the process gets.
        numbers: what is told.
        sequence: its place in the order of saves, where its number does not say it.
        preserved: numbers of the checkpoints that ``every_n_hours`` keeps for good.
    """

    number: Number
    numbers: Numbers
    sequence: tuple[int, int] | None
    preserved: tuple[int, ...]


def give_back_number(begun: Begun | None) -> None:
    """The number is free again, or told by the files; nothing where another worker has it."""
    if begun is not None:
        begun.number.give_back()


@contextlib.contextmanager
def given_back(begun: Begun | None) -> Iterator[None]:
    """Where what is inside fails, the number is free again."""
    try:
        yield
    except BaseException:
        give_back_number(begun)
        raise
