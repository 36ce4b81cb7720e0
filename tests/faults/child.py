"""A process under attack: one scenario under one fault, in a child that may not outlive it.

Where a call only fails, the process goes on, and says itself what is wrong with how it could.
"""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

from faults.injection import BELOW, Fault, Mode
from faults.journal import Journal
from faults.oracle import brief, debris, restored
from faults.power import Power
from faults.scenarios import SCENARIOS, Scenario, directory_of
from faults.subjects import Subject

from tfckpt.live import save

if TYPE_CHECKING:
    from collections.abc import Callable


class Run:
    """One process's life in one directory: `root` is under attack, the checkpoints are below it."""

    def __init__(
        self, library: str, root: str, journal: str, fault: Fault | None, below: str
    ) -> None:
        self.root = root
        self.library = library
        self.directory = directory_of(root)
        self.subject = Subject(library, self.directory)
        self.journal = Journal.open(journal)
        self._fault = fault
        self._below = BELOW[below]()
        self.calls: dict[int, int] = {}
        self.durable = True
        self.counter: int | None = None  # before the save that is being tried

    def arm(self) -> None:
        if self._fault is not None:
            self._below.arm(self.root, self._fault, self.journal.descriptor)

    def disarm(self) -> None:
        self.calls = self._below.counts()
        self._below.disarm()

    def open(self, max_to_keep: int, **options: str) -> None:
        self.subject.open(max_to_keep, durable=self.durable, **options)

    def restore(self) -> None:
        step = self.subject.restore()
        if step is not None:
            self.journal.note("ack", step)

    def save(self) -> None:
        self._do(self.subject.save)

    def write(self) -> None:
        self._do(self.subject.write)

    def _do(self, save: Callable[[int], str]) -> None:
        step = self.journal.next_step()
        self.journal.note("try", step)
        self.counter = self.subject.counter()
        self.journal.note("ack", step, save(step))
        self.counter = None


def live(
    library: str, scenario: str, root: str, journal: str, below: str, fault: list[Any] | None
) -> dict[str, Any]:
    """In a child: one scenario under one fault (None: what happened before it).

    Returns how many calls were counted and, where the process survived an error, what is wrong
    with how it went on: [] if nothing.
    """
    save.files_for = lambda _: 2  # a thread of its own for a part of what is saved
    what = SCENARIOS[scenario]
    struck = Fault(Mode(fault[0]), *fault[1:]) if fault else None
    run = Run(library, root, journal, struck, below)
    if struck is None:
        assert what.before is not None
        what.before(run)
        return {"calls": {}, "problems": []}
    try:
        what.under(run)
    except Exception as error:
        problems = _after_an_error(run, what, struck, error)
    else:
        problems = []
    run.disarm()
    return {"calls": run.calls, "problems": problems}


def _after_an_error(run: Run, what: Scenario, fault: Fault, error: Exception) -> list[str]:
    """The process goes on: what it may expect. Plain TensorFlow is asked for the same."""
    problems = []
    if not isinstance(error, OSError):
        problems.append(f"no OSError: {brief(error)}")
    if run.counter is not None and run.counter != run.subject.counter():
        problems.append(f"save_counter is {run.subject.counter()}, not {run.counter}")
    # Where nothing can be put back either, what was tried may have stayed, and the error says so.
    stays = not fault.once and (
        fault.mode is Mode.IO_ERROR or "partial files could not be removed either" in str(error)
    )
    state = run.journal.state()
    allowed = state.allowed if stays else {state.last}
    if not stays:
        for step in state.tried:
            run.journal.note("failed", step)
    try:
        step = restored(run.library, run.directory, what.max_to_keep, fixed=what.fixed)
        if step not in allowed:
            problems.append(f"after the error, step {step} is restored, not one of {allowed}")
    except Exception as unread:
        problems.append(f"after the error, nothing is restored: {brief(unread)}")
    run.disarm()
    try:
        if run.subject.manager is None and not what.fixed:
            run.open(what.max_to_keep)
        (run.write if what.fixed else run.save)()
    except Exception as again:
        problems.append(f"the next save fails: {brief(again)}")
        return problems
    if left := debris(run.subject, fixed=what.fixed):
        problems.append(f"debris after the next save: {left}")
    return problems


def live_until_power_fails(
    scenario: str, root: str, journal: str, durable: bool, work: str, seed: int, share: float
) -> list[dict[str, str]]:
    """In a child: one scenario without a fault; the directories as losses of power leave them."""
    run = Run("tfckpt", root, journal, None, "seam")
    run.durable = durable
    power = Power(root, journal, work, random.Random(seed), times=2, share=share)
    power.start()
    SCENARIOS[scenario].under(run)
    power.stop()
    return [dataclasses.asdict(loss) for loss in power.losses]
