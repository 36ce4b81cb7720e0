"""What live objects were restored from, for the records of the checkpoints that are saved of them.

A run that goes on from a checkpoint of its own directory has the lineage of that checkpoint; values
that come from elsewhere, or by ``api: read``, begin one. Several restores add up as long as each
leaves weights of the one before.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Restored, Role
from tfckpt.planning.checks.completeness import is_save_counter
from tfckpt.planning.checks.step import ASSIGNED
from tfckpt.stored.io.files import absolute, same_directory

if TYPE_CHECKING:
    from tfckpt.live.restoring.restore import Prepared
    from tfckpt.planning import Plan


@dataclasses.dataclass(frozen=True)
class _Came:
    """One restore.

    Attributes:
        restored: what a record says of it.
        prefix: of the checkpoint that a run goes on from, ``""`` where it begins with it.
        inherited: the lineage in that checkpoint's own record.
    """

    restored: Restored
    prefix: str = ""
    inherited: tuple[Restored, ...] = ()


@dataclasses.dataclass(frozen=True)
class Lineage:
    """Where the values of live objects come from.

    Attributes:
        prefix: of the checkpoint that was restored last; None for several at once.
    """

    prefix: str | None = None
    _came: tuple[_Came, ...] = ()
    # What the paths of numbered checkpoints begin with → the order of the run's first save there.
    _first_saves: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def after(self, prepared: Prepared) -> Lineage:
        """The descent after a restore."""
        plan, prefix = prepared.plan, prepared.prefix
        goes_on = prefix is not None and prepared.policy.api == "restore"
        record = prepared.stored.record if goes_on else None
        base = None if prefix is None else _base(prefix)
        first_saves = {at: first for at, first in self._first_saves.items() if at != base}
        if base is not None and goes_on:  # of a record that does not say, all before is its run
            first_saves[base] = (record and record.run_first) or (0, 0)
        if not plan.assignments:
            return dataclasses.replace(self, prefix=prefix, _first_saves=first_saves)
        counts = {status.value: count for status, count in plan.counts.items()}
        came = _Came(Restored(plan.origins, counts))
        if prefix is not None and goes_on:
            inherited = record.lineage if record is not None else ()
            came = dataclasses.replace(came, prefix=absolute(prefix), inherited=inherited)
        all_came = (came,) if _gives_all(plan) else (*self._came, came)
        return Lineage(prefix, all_came, first_saves)

    def lineage(self, directory: str) -> tuple[Restored, ...]:
        """What a checkpoint that is saved there says of it."""
        found: list[Restored] = []
        for came in self._came:
            own = came.prefix and same_directory(came.prefix, directory)
            found += came.inherited if own else (came.restored,)
        return tuple(found)

    def goes_on(self, prefix: str) -> bool:
        """Whether the run that saves under a numbered prefix has saved or was restored there."""
        return _base(prefix) in self._first_saves

    def first_save(self, prefix: str, order: tuple[int, int]) -> tuple[int, int]:
        """The order of the first save of the run that now saves under a numbered prefix."""
        return self._first_saves.setdefault(_base(prefix), order)


def _base(prefix: str) -> str:
    base = absolute(prefix).rpartition("-")[0]
    return base if "://" in base else os.path.realpath(base)


def _gives_all(plan: Plan) -> bool:
    """Whether no weight keeps what an earlier restore gave it."""
    return all(
        step.status in ASSIGNED
        for step in plan.steps
        if step.live is not None
        and step.live.role in (Role.WEIGHT, Role.STATE)
        and not is_save_counter(step.live)
    )
