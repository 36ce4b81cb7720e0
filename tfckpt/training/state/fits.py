"""The calls of ``fit`` of one run: how many there were, and what Keras's ``History`` knew of each.

A program that is started again makes the same calls. Those that were over have nothing left to
train, and return what they returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.training.state import callback_state
from tfckpt.training.state.extra_state import Beginning

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY = "histories"
_HISTORY = "History"


class Fits:
    """All calls of ``fit`` of one run; one that was refused is none.

    Attributes:
        begun: how many there were, the one that is running included.
        histories: of those before that one, as JSON values.
        beginning: what the program's own code held before the first epoch of all.
        interrupted: whether the last one has not come to its end.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.histories: list[Any] = []
        self.beginning = Beginning()
        self.interrupted = False
        self._again = False
        self._running: list[Any] = []
        self._next: list[Any] = []
        self._known: dict[str, Any] = {}

    def begin(self, callbacks: Iterable[Any]) -> int:
        """Another one begins; how many there were before it."""
        self._next = [each for each in callbacks if type(each).__name__ == _HISTORY]
        return self.begun

    def again(self) -> None:
        """The one that was interrupted begins again: it counts once."""
        self.begun -= 1
        self.interrupted, self._again = False, True

    def count(self, saved: Any = None) -> None:
        """It was not refused; ``saved`` are a record's histories, where it had nothing to train."""
        if self.begun and not self._again:
            self.histories.append(callback_state.collect(self._running))
        self._again = False
        self._running, self._known = self._next, {}
        if isinstance(saved, list) and self.begun < len(saved):
            self._known = saved[self.begun] if isinstance(saved[self.begun], dict) else {}
        self.begun += 1
        self.interrupted = True

    def end(self) -> None:
        """The one that is running is at its end, where ``History`` takes what it knew."""
        self.interrupted = False
        callback_state.restore(self._running, self._known)
        self._known = {}
