"""Programs that run beside each other on one disk or in one store, in the order of a seed.

Each has a thread; one runs at a time, and gives its turn away before any call of the file system.
On a disk, a manager locks its directory, and a second one is refused; what writes to a name of its
own is not. In a store nothing is locked.
"""

from __future__ import annotations

import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from faults.commits import ABSENT, Judge, Ledger, Place, Program, Step, process, save
from faults.protocol import Process

FIRST = 40  # turns at most, which the first program has before the others begin


class Turns:
    """Runs programs, threads of one process or each in its own, and gives turns."""

    def __init__(self, seed: int, count: int, *, together: bool) -> None:
        self._draw = random.Random(seed)
        self._wake = [threading.Semaphore(0) for _ in range(count)]
        self._alive = list(range(count))
        self._now = 0
        self._alone = self._draw.randrange(FIRST)
        processes = [Process(1 + number, partial(_Lock, self)) for number in range(count)]
        self._processes = processes[:1] * count if together else processes

    def run(self, programs: Sequence[Callable[[], Any]]) -> list[Any]:
        """What each returned, or the exception that it raised."""
        results: list[Any] = [None] * len(programs)

        def live(number: int) -> None:
            self._wake[number].acquire()
            try:
                results[number] = programs[number]()
            except Exception as error:
                results[number] = error
            self._alive.remove(number)
            self._next(self._alive)

        threads = [threading.Thread(target=live, args=(n,)) for n in range(len(programs))]
        with self._processes[0].running():
            for thread in threads:
                thread.start()
            self._wake[0].release()
            for thread in threads:
                thread.join()
        return results

    def turn(self) -> None:
        """Let another program go on, or go on."""
        if self._alone > 0:
            self._alone -= 1
        else:
            self._change(self._alive)

    def wait(self) -> None:
        """Let another program go on, if there is one."""
        self._alone = 0
        self._change([each for each in self._alive if each != self._now] or self._alive)

    def _change(self, among: Sequence[int]) -> None:
        me = self._now
        if self._next(among) != me:
            self._wake[me].acquire()

    def _next(self, among: Sequence[int]) -> int | None:
        if not among:
            return None
        me, chosen = self._now, self._draw.choice(among)
        if chosen != me:
            self._now = chosen
            self._processes[chosen].goes_on()
            self._wake[chosen].release()
        return chosen


class _Lock:
    """A lock of one process: who waits for it gives turns away."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._held = turns, False

    def __enter__(self) -> None:
        while self._held:
            self._turns.wait()
        self._held = True

    def __exit__(self, *error: object) -> None:
        self._held = False


@dataclasses.dataclass(frozen=True)
class Beside:
    """What programs do at the same time, after one has saved ckpt-1 and what is ``before``."""

    programs: tuple[tuple[Step, ...], ...]
    before: tuple[Step, ...] = ()
    disk: bool = True  # where they may do so
    store: bool = True
    together: bool = False  # as threads of one process

    def runs_at(self, place: Place) -> bool:
        return self.disk if place.renames else self.store


RECOVER = (Step("recover", ABSENT),)
READS = (Step("read", ABSENT, "ckpt-1"),) * 3
DELETE = (Step("delete", ABSENT, "ckpt-1"),)
NUMBERS = tuple(Step("number", version) for version in (2, 3, 4, 5))
MANAGER = (*RECOVER, NUMBERS[0])
REPLACE = (save("ckpt-1", 2),)
BESIDE = {
    "a save, a recovery": Beside((NUMBERS[:1], RECOVER), disk=False),
    "a save, a recovery in one process": Beside((NUMBERS[:1], RECOVER), together=True),
    "two managers": Beside((NUMBERS[:2], NUMBERS[2:]), disk=False),
    "two managers in one process": Beside((NUMBERS[:2], NUMBERS[2:]), together=True),
    "a replacement, a recovery in one process": Beside((REPLACE, RECOVER), together=True),
    "a replacement, readers": Beside((REPLACE, READS)),
    "a deletion, readers": Beside((DELETE, READS), (save("ckpt-2", 2),)),
    "a deletion, a recovery": Beside((DELETE, RECOVER), (save("ckpt-2", 2),), disk=False),
    "a fixed name, a manager": Beside(((save("best", 3),), MANAGER), (save("best", 1),)),
    "a new name, a manager": Beside(((save("export", 3),), MANAGER)),
    "a new number, a manager": Beside(((save("ckpt-7", 3),), MANAGER), store=False),
}


def interleave(
    place: Place, case: Beside, seed: int, judge: Judge
) -> tuple[list[str], Counter[str]]:
    """What is wrong after the programs have run in the order of a seed, and what they were told."""
    kept, ledger = place.empty(), Ledger()
    with process():
        Program(place, place.files(kept), ledger, None).go((save("ckpt-1", 1), *case.before))
    turns = Turns(seed, len(case.programs), together=case.together)
    programs = []
    for _ in case.programs:
        files = place.files(kept, turn=turns.turn, tells=bool(seed & 1))
        programs.append(Program(place, files, ledger, None))
    lives = [partial(one.go, steps) for one, steps in zip(programs, case.programs, strict=True)]
    found = [f"raised: {error!r}" for error in turns.run(lives) if error is not None]
    found += judge.problems(kept.state(), ledger.expected, killed=False)
    return found, sum((one.told for one in programs), Counter())
