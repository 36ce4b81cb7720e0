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
        self._known: dict[str, Any] = {}

    def begin(self, callbacks: Iterable[Any]) -> int:
        """Another one begins; how many there were before it."""
        if self.begun:
            self.histories.append(states.collect(self._running))
        self._running = [each for each in callbacks if type(each).__name__ == _HISTORY]
        self._known = {}
        self.begun += 1
        return self.begun - 1

    def pass_over(self, saved: Any) -> None:
        """The one that is running has nothing to train; ``saved`` are the histories of a record."""
        number = self.begun - 1
        if isinstance(saved, list) and number < len(saved) and isinstance(saved[number], dict):
            self._known = saved[number]

    def end(self) -> None:
        """The one that is running is at its end, where ``History`` takes what it knew."""
        states.restore(self._running, self._known)
        self._known = {}
