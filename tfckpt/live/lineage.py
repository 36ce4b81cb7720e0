"""The lineage of live objects: which checkpoints their values were restored from.

Commit records store it. A run that resumes from a checkpoint in its own directory inherits that
checkpoint's lineage; values from elsewhere, or restored with ``api: read``, start a new one.
Restores add up as long as each leaves some weights of the previous one in place.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Restored, Role
from tfckpt.planning.checks.step import ASSIGNED, is_save_counter
from tfckpt.stored.io.files import absolute, same_directory

if TYPE_CHECKING:
    from tfckpt.live.restore import Prepared
    from tfckpt.planning import Plan


@dataclasses.dataclass(frozen=True)
class _PastRestore:
    """One restore."""

    restored: Restored
    prefix: str = ""
    inherited: tuple[Restored, ...] = ()


@dataclasses.dataclass(frozen=True)
class Lineage:
    """Where the values of live objects come from."""

    prefix: str | None = None
    _restores: tuple[_PastRestore, ...] = ()
    # Path of numbered checkpoints without the number → that of the run's first save there.
    _first_saves: dict[str, int] = dataclasses.field(default_factory=dict)

    def after(self, prepared: Prepared) -> Lineage:
        """The lineage after a restore."""
        plan, prefix = prepared.plan, prepared.prefix
        goes_on = prefix is not None and prepared.policy.api == "restore"
        record = prepared.stored.record if goes_on else None
        base = None if prefix is None else _base(prefix)
        first_saves = {at: first for at, first in self._first_saves.items() if at != base}
        if base is not None and goes_on:  # without a record, all earlier ones are its run
            first_saves[base] = (record and record.run_first) or 0
        if not plan.assignments:
            return dataclasses.replace(self, prefix=prefix, _first_saves=first_saves)
        counts = {status.value: count for status, count in plan.counts.items()}
        past_restore = _PastRestore(Restored(plan.origins, counts))
        if prefix is not None and goes_on:
            inherited = record.lineage if record is not None else ()
            past_restore = dataclasses.replace(
                past_restore, prefix=absolute(prefix), inherited=inherited
            )
        restores = (past_restore,) if _assigns_all(plan) else (*self._restores, past_restore)
        return Lineage(prefix, restores, first_saves)

    def lineage(self, directory: str) -> tuple[Restored, ...]:
        """The entries for the record of a checkpoint that is saved in this directory."""
        found: list[Restored] = []
        for past_restore in self._restores:
            own = past_restore.prefix and same_directory(past_restore.prefix, directory)
            found += past_restore.inherited if own else (past_restore.restored,)
        return tuple(found)

    def goes_on(self, prefix: str) -> bool:
        """Whether the run has saved under this numbered prefix, or was restored from it."""
        return _base(prefix) in self._first_saves

    def first_save(self, prefix: str, number: int) -> int:
        """The number of the run's first save under a numbered prefix; set by the first call."""
        return self._first_saves.setdefault(_base(prefix), number)


def _base(prefix: str) -> str:
    base = absolute(prefix).rpartition("-")[0]
    return base if "://" in base else os.path.realpath(base)


def _assigns_all(plan: Plan) -> bool:
    """Whether the plan assigns every weight, so that earlier restores no longer count."""
    return all(
        step.status in ASSIGNED
        for step in plan.steps
        if step.live is not None
        and step.live.role in (Role.WEIGHT, Role.STATE)
        and not is_save_counter(step.live)
    )
