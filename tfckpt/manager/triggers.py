"""When a save is due: so many steps or minutes after the last one, or every so many epochs.

Pure: steps and epochs are given, the clock is one of the arguments. What is counted begins anew
with a save that succeeded, or a restore. The retry of a save that failed is due at once, unless its
failure is survived, which counts as a save. Minutes go on between one training and the next: many
short ones must not put a save off for ever.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclasses.dataclass
class Triggers:
    """What ``manager.save`` says, and what has been counted since the last save.

    Attributes:
        every_steps: from the last save, or from the step that was restored.
        every_epochs: whenever it divides the number of epochs finished.
        every_minutes: since the last save, or since training began.
        clock: seconds, never set back.

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

    @property
    def by_the_clock(self) -> bool:
        """Whether it is not steps and epochs alone that say when a save is due."""
        return self.every_minutes is not None

    def restored(self, step: int | None) -> None:
        """Steps count from the one that was restored, minutes from when training begins."""
        self._step, self._moment, self._at_most = step, None, 0

    def begin(self, step: int | None) -> None:
        """Training begins, or goes on: what does not count yet counts from here."""
        if self._step is None:
            self._step = step
        if self._moment is None:
            self._moment = self.clock()

    def saved(self, step: int | None) -> None:
        """A save succeeded, or its failure is survived: all counts from here."""
        self._step, self._moment, self._at_most = step, self.clock(), 0

    def step_matters(self, taken: int | None) -> bool:
        """Whether a save may be due by steps, so that it is worth reading which step it is.

        Args:
            taken: steps since the last question, at most; None where that is not known.
        """
        if self.every_steps is None or taken is None or self._step is None:
            return self.every_steps is not None
        self._at_most += taken
        return self._at_most >= self.every_steps

    def at_step(self, step: int | None) -> bool:
        """Whether one is due after a step; where nothing has begun to count, step 0 was first."""
        self.begin(0)
        if step is not None:
            self._at_most = step - (self._step or 0)
        by_steps = (
            self.every_steps is not None
            and step is not None
            and step - (self._step or 0) >= self.every_steps
        )
        return by_steps or self._by_minutes()

    def at_batches(self, taken: int) -> bool:
        """Whether one is due after so many more batches, which count in place of steps."""
        self.begin(0)
        self._at_most += taken
        by_batches = self.every_steps is not None and self._at_most >= self.every_steps
        return by_batches or self._by_minutes()

    def at_epoch(self, epoch: int) -> bool:
        """Whether one is due at the end of an epoch, given how many are finished."""
        self.begin(0)
        by_epochs = self.every_epochs is not None and epoch % self.every_epochs == 0
        return by_epochs or self._by_minutes()

    def _by_minutes(self) -> bool:
        return (
            self.every_minutes is not None
            and self._moment is not None
            and self.clock() - self._moment >= self.every_minutes * 60
        )
