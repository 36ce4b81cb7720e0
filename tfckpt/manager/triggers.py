"""When a save is due: some steps or minutes after the last one, or every few epochs.

Pure: steps, epochs and the clock are arguments. Counting restarts with a successful save or a
restore. After a failed save the next one is due at once, unless the config says to ignore failures
(``on_save_error: warn``), when it counts as a save. Minutes also count between two trainings, so
that many short ones cannot delay a save for ever.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclasses.dataclass
class Triggers:
    """The intervals of ``manager.save``, and the counts since the last save.

    >>> due = Triggers(every_steps=100)
    >>> due.begin(step=250)
    >>> [step for step in (300, 349, 350, 351) if due.at_step(step)]
    [350, 351]
    >>> due.saved(step=351)
    >>> due.at_step(450), due.at_step(451)
    (False, True)
    """

    every_steps: int | None = None
    every_epochs: int | None = None
    every_minutes: float | None = None
    clock: Callable[[], float] = time.monotonic
    _step: int | None = dataclasses.field(default=None, init=False)
    _moment: float | None = dataclasses.field(default=None, init=False)
    _at_most: int = dataclasses.field(default=0, init=False)
    _trained: bool = dataclasses.field(default=False, init=False)

    @property
    def by_the_clock(self) -> bool:
        """Whether time, too, decides when a save is due."""
        return self.every_minutes is not None

    def restored(self, step: int | None) -> None:
        """Count steps from the restored one, minutes from when training begins."""
        self._step, self._moment, self._at_most, self._trained = step, None, 0, False

    def begin(self, step: int | None) -> None:
        """Training begins or continues: start the counts that have not started."""
        if self._step is None:
            self._step = step
        if self._moment is None:
            self._moment = self.clock()

    def saved(self, step: int | None) -> None:
        """A save succeeded, or its failure is ignored: restart all counts."""
        self._step, self._moment, self._at_most, self._trained = step, self.clock(), 0, False

    def step_matters(self, taken: int | None) -> bool:
        """Whether a save may be due by steps, so that the step counter must be read.

        ``taken`` is the maximum number of steps since the last call; None if unknown.
        """
        if self.every_steps is None or taken is None or self._step is None:
            return self.every_steps is not None
        self._at_most += taken
        return self._at_most >= self.every_steps

    def at_step(self, step: int | None) -> bool:
        """Whether a save is due after a step; counts from step 0 if ``begin`` was not called."""
        self.begin(0)
        self._trained = True
        if step is not None:
            self._at_most = step - (self._step or 0)
        by_steps = (
            self.every_steps is not None
            and step is not None
            and step - (self._step or 0) >= self.every_steps
        )
        return by_steps or self._by_minutes()

    def at_batches(self, taken: int) -> bool:
        """Whether a save is due after ``taken`` more batches, which count as steps."""
        self.begin(0)
        self._trained = True
        self._at_most += taken
        by_batches = self.every_steps is not None and self._at_most >= self.every_steps
        return by_batches or self._by_minutes()

    def at_epoch(self, epoch: int, *, last: bool = False) -> bool:
        """Whether a save is due at the end of an epoch; ``epoch`` counts the finished ones.

        After the ``last``, what was trained since the last save is, too.
        """
        self.begin(0)
        counted = (self.every_steps, self.every_epochs, self.every_minutes)
        ends = last and self._trained and any(each is not None for each in counted)
        by_epochs = self.every_epochs is not None and epoch % self.every_epochs == 0
        return by_epochs or ends or self._by_minutes()

    def _by_minutes(self) -> bool:
        return (
            self.every_minutes is not None
            and self._moment is not None
            and self.clock() - self._moment >= self.every_minutes * 60
        )
