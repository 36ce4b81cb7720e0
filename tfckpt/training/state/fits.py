"""The calls of ``fit`` of one run: their number, and Keras's ``History`` of each.

A restarted program makes the same calls. Those that had finished train nothing and return the same
``History`` again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.training.state import callback_state
from tfckpt.training.state.extra_state import Beginning

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfckpt.live.program_state.captured import Captured

KEY = "histories"
PASSES = "passes"
_MOST_PASSES = 1 << 20
_HISTORY = "History"


def passes_in(training: Mapping[str, Any]) -> list[int]:
    """The numbers of iterators in a record; [] if they are missing or invalid."""
    found = training.get(PASSES)
    valid = isinstance(found, list) and all(
        type(each) is int and 0 <= each <= _MOST_PASSES for each in found
    )
    return found if valid else []  # type: ignore[return-value]


class Fits:
    """All calls of ``fit`` of one run; one that was refused does not count."""

    def __init__(self) -> None:
        self.begun = 0
        self.histories: list[Any] = []
        self.passes: dict[int, int] = {}
        self.unread: list[tuple[Any, Captured]] = []
        self.beginning = Beginning()
        self.interrupted = False
        self._again = False
        self._running: list[Any] = []
        self._next: list[Any] = []
        self._known: dict[str, Any] = {}

    def begin(self, callbacks: Iterable[Any]) -> int:
        """A call begins; returns the number of calls before it."""
        self._next = [each for each in callbacks if type(each).__name__ == _HISTORY]
        return self.begun

    def again(self) -> None:
        """The interrupted call begins again: count it once."""
        self.begun -= 1
        self.interrupted, self._again = False, True

    def count(self, saved: Any = None) -> None:
        """Count a call; ``saved`` has the histories of a record if it trains nothing."""
        if self.begun and not self._again:
            self.histories.append(callback_state.collect(self._running))
        self._again = False
        self._running, self._known = self._next, {}
        if isinstance(saved, list) and self.begun < len(saved):
            self._known = saved[self.begun] if isinstance(saved[self.begun], dict) else {}
        self.begun += 1
        self.interrupted = True

    def described(self, fit: int) -> dict[str, list[Any]]:
        """The entries of the commit record for the calls up to ``fit``."""
        passes = [self.passes.get(number, 0) for number in range(fit + 1)]
        return {KEY: list(self.histories), PASSES: passes}

    def end(self) -> None:
        """The running call has finished: restore its ``History`` if it trained nothing."""
        self.interrupted = False
        callback_state.restore(self._running, self._known)
        self._known = {}
