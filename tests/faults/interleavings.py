"""Programs that run beside each other on one disk or in one store, and what must hold of it.

On a disk, a manager locks its directory, so that of two such programs the second is refused; what
writes to a name of its own is not. In a store nothing is locked.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial

from faults.commits import ABSENT, Judge, Ledger, Place, Program, Step, process
from faults.turns import Turns


@dataclasses.dataclass(frozen=True)
class Beside:
    """Programs that run at the same time, after another one has ended.

    Attributes:
        before: what the one before does.
        programs: what each of them does.
        disk: whether they may do so on a disk.
        store: whether they may do so in a store.
        together: whether they are threads of one process.
    """

    before: tuple[Step, ...]
    programs: tuple[tuple[Step, ...], ...]
    disk: bool = True
    store: bool = True
    together: bool = False

    def runs_at(self, place: Place) -> bool:
        return self.disk if place.renames else self.store


RECOVER, NUMBER = Step("recover", ABSENT), Step("number", 2)
READ = Step("read", ABSENT, "ckpt-1")
SAVED = (Step("save", 1, "ckpt-1"),)
BESIDE = {
    "a save, a recovery": Beside(SAVED, ((NUMBER,), (RECOVER,)), disk=False),
    "a save, a recovery in one process": Beside(SAVED, ((NUMBER,), (RECOVER,)), together=True),
    "two managers": Beside(
        SAVED, ((NUMBER, Step("number", 3)), (Step("number", 4), Step("number", 5))), disk=False
    ),
    "two managers in one process": Beside(
        SAVED, ((NUMBER, Step("number", 3)), (Step("number", 4), Step("number", 5))), together=True
    ),
    "a replacement, a recovery in one process": Beside(
        SAVED, ((Step("save", 2, "ckpt-1"),), (RECOVER,)), together=True
    ),
    "a replacement, readers": Beside(SAVED, ((Step("save", 2, "ckpt-1"),), (READ, READ, READ))),
    "a deletion, readers": Beside(
        (*SAVED, Step("save", 2, "ckpt-2")),
        ((Step("delete", ABSENT, "ckpt-1"),), (READ, READ, READ)),
    ),
    "a deletion, a recovery": Beside(
        (*SAVED, Step("save", 2, "ckpt-2")),
        ((Step("delete", ABSENT, "ckpt-1"),), (RECOVER,)),
        disk=False,
    ),
    "a fixed name, a manager": Beside(
        (*SAVED, Step("save", 1, "best")), ((Step("save", 3, "best"),), (RECOVER, NUMBER))
    ),
    "a new name, a manager": Beside(SAVED, ((Step("save_new", 3, "export"),), (RECOVER, NUMBER))),
    "a new number, a manager": Beside(
        SAVED, ((Step("save_new", 3, "ckpt-7"),), (RECOVER, NUMBER)), store=False
    ),
}


def interleave(
    place: Place, case: Beside, seed: int, judge: Judge
) -> tuple[list[str], Counter[str]]:
    """What is wrong after the programs have run in the order of a seed, and what they were told."""
    kept, ledger = place.empty(), Ledger()
    with process():
        Program(place, place.files(kept), ledger, None).go(case.before)
    turns = Turns(seed, len(case.programs), together=case.together)
    programs = []
    for _ in case.programs:
        files = place.files(kept, turn=turns.turn, tells=bool(seed & 1))
        programs.append(Program(place, files, ledger, None))
    lives = [partial(one.go, steps) for one, steps in zip(programs, case.programs, strict=True)]
    found = [f"raised: {error!r}" for error in turns.run(lives) if error is not None]
    found += judge.problems(kept.state(), ledger.expected, killed=False)
    return found, sum((one.told for one in programs), Counter())
