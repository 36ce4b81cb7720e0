"""What a missing value may be called in the checkpoint.

A name that is missing while another of equal shape is left over is nearly always a renamed parent.
The one that shares the longest tail is offered as a rename rule, ready to be pasted.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.records import Entry, Role, Shape

_AMBIGUOUS = ""


class RenameHints:
    """Left-over stored values, by every tail of their names.

    >>> from tfckpt.records import Entry, Role
    >>> old = Entry("model/backbone/conv/kernel", Role.WEIGHT, "float32", (3, 3))
    >>> new = Entry("model/encoder/conv/kernel", Role.WEIGHT, "float32", (3, 3))
    >>> RenameHints([old]).near(new)
    'renamed? rename: [{checkpoint: "model/backbone/**", model: "model/encoder/**"}]'
    """

    def __init__(self, left_over: Sequence[Entry]) -> None:
        self._left_over = left_over

    @cached_property
    def _by_tail(self) -> dict[tuple[str, Role, Shape | None], str]:
        found: dict[tuple[str, Role, Shape | None], str] = {}
        for entry in self._left_over:
            for tail in _tails(entry.name):
                place = tail, entry.role, entry.shape
                found[place] = _AMBIGUOUS if place in found else entry.name
        return found

    def near(self, missing: Entry) -> str:
        """A rename rule that would fill the value, ``""`` where none or several would."""
        for tail in _tails(missing.name):
            stored = self._by_tail.get((tail, missing.role, missing.shape))
            if stored and stored != missing.name:
                old, new = stored.removesuffix(tail), missing.name.removesuffix(tail)
                if old and new:
                    old, new = f"{old}**", f"{new}**"
                else:  # one is the tail of the other: a rule for this value alone
                    old, new = stored, missing.name
                return f'renamed? rename: [{{checkpoint: "{old}", model: "{new}"}}]'
        return ""


def _tails(name: str) -> Iterator[str]:
    """Every tail of a name that leaves a parent, the longest first."""
    start = name.find("/")
    while start != -1:
        yield name[start + 1 :]
        start = name.find("/", start + 1)
