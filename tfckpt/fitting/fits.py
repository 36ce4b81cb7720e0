"""The calls of ``fit`` of one run: how many there were, and what Keras's ``History`` knew of each.

A program that is started again makes the same calls. Those that were over have nothing left to
train, and return what they returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.fitting import states

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY = "histories"
_HISTORY = "History"


class Fits:
    """All calls of ``fit`` of one run.

    Attributes:
        begun: how many there were, the one that is running included.
        histories: of those before that one, as JSON values.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.histories: list[Any] = []
        self._running: list[Any] = []
        self._before: list[Any] = []
        self._known: dict[str, Any] = {}

    def begin(self, callbacks: Iterable[Any]) -> int:
        """Another one begins; how many there were before it."""
        if self.begun:
            self.histories.append(states.collect(self._running))
        self._before = self._running
        self._running = [each for each in callbacks if type(each).__name__ == _HISTORY]
        self._known = {}
        self.begun += 1
        return self.number

    @property
    def number(self) -> int:
        """Of the one that is running: how many there were before it."""
        return self.begun - 1

    def take_back(self) -> None:
        """The one that is running is refused: it is as if it had never begun."""
        self.begun -= 1
        self._running = self._before
        if self.begun:
            self.histories.pop()

    def pass_over(self, saved: Any) -> None:
        """The one that is running has nothing to train; ``saved`` are the histories of a record."""
        if isinstance(saved, list) and self.number < len(saved):
            known = saved[self.number]
            self._known = known if isinstance(known, dict) else {}

    def end(self) -> None:
        """The one that is running is at its end, where ``History`` takes what it knew."""
        states.restore(self._running, self._known)
        self._known = {}
