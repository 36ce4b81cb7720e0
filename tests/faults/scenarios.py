"""What a process does while a fault strikes it, and what happened before it did.

A process under attack (`child.Run`) arms the fault, opens a manager, restores, saves, writes. The
directory of its checkpoints does not exist at first, nor does the one above it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.child import Run


@dataclasses.dataclass(frozen=True)
class Scenario:
    """`before` runs in a process of its own and ends well; `under` meets the fault."""

    max_to_keep: int
    under: Callable[[Run], None]
    before: Callable[[Run], None] | None = None
    fixed: bool = False  # one name is written again and again, by Checkpoint.write


def directory_of(root: str) -> str:
    """Where the checkpoints are, below what is under attack."""
    return str(Path(root) / "run" / "checkpoints")


def _first_save(run: Run) -> None:
    run.arm()
    run.open(3)
    run.save()


def _saves(keep: int, free: int, struck: int = 1, **options: str) -> Callable[[Run], None]:
    def saves(run: Run) -> None:
        run.open(keep, **options if run.library == "tfckpt" else {})
        for _ in range(free):
            run.save()
        run.arm()
        for _ in range(struck):
            run.save()

    return saves


def _restart(run: Run) -> None:
    run.arm()
    run.open(2)
    run.save()


def _resume(run: Run) -> None:
    run.arm()
    run.open(2)
    run.restore()
    run.save()


def _write_over(run: Run) -> None:
    run.arm()
    for _ in range(3):
        run.write()


SCENARIOS = {
    "first save": Scenario(3, _first_save),
    "rotate": Scenario(2, _saves(2, free=2)),
    "keep one": Scenario(1, _saves(1, free=1)),
    "share": Scenario(1, _saves(1, free=1, include="trainable")),
    "restart": Scenario(2, _restart, before=_saves(2, free=2, struck=0)),
    "resume": Scenario(2, _resume, before=_saves(2, free=2, struck=0)),
    "write over": Scenario(1, _write_over, fixed=True),
    # `before` is the process that was killed: its directory is given with the case
    "recover": Scenario(2, _resume),
}
