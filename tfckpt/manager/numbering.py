"""The number of a save, which the chief of several workers takes and sends to the others."""

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
        chosen: the number in the checkpoint's name.
        counted: the value that ``save_counter`` gets.
    """

    chosen: int
    counted: int


@dataclasses.dataclass(frozen=True)
class Begun:
    """A save that has taken its number, on the chief.

    Attributes:
        number: reserved in this process.
        numbers: what the other workers receive.
        sequence: its sort key in the order of saves, if its number does not say it.
        preserved: numbers of the checkpoints that ``every_n_hours`` keeps for good.
    """

    number: Number
    numbers: Numbers
    sequence: tuple[int, int] | None
    preserved: tuple[int, ...]


def give_back_number(begun: Begun | None) -> None:
    """Free the number; does nothing on workers other than the chief."""
    if begun is not None:
        begun.number.give_back()


@contextlib.contextmanager
def given_back(begun: Begun | None) -> Iterator[None]:
    """Free the number if the body raises."""
    try:
        yield
    except BaseException:
        give_back_number(begun)
        raise
