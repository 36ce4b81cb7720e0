"""The lineage of a ``tfckpt.Checkpoint``: from which checkpoints it has restored its values.

Commit records store it. Nobody else knows it: another ``Checkpoint`` of the same objects begins a
run of its own. A run that resumes from a checkpoint in its own directory inherits that
checkpoint's lineage and its run; values from elsewhere, or restored with ``api: read``, start a new
one. Restores add up as long as each leaves some weights of the previous one in place.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Restored, Role
from tfckpt.planning.checks.step import ASSIGNED, is_save_counter
from tfckpt.stored.io.files import absolute, lies_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt.live.restore import Prepared
    from tfckpt.planning import Plan


class _PastRestore(NamedTuple):
    """One restore."""

    restored: Restored
    prefix: str = ""
    inherited: tuple[Restored, ...] = ()


class Lineage:
    """Where the values of a checkpoint's objects come from.

    Attributes:
        prefix: the checkpoint that was restored last; None for none, or several.
    """

    def __init__(self) -> None:
        self.prefix: str | None = None
        self._restores: tuple[_PastRestore, ...] = ()
        # Path of numbered checkpoints without the number → the id of the run that saves there.
        self._runs: dict[str, str] = {}

    def add(self, prepared: Prepared) -> Callable[[], None]:
        """Add a restore; returns a function that takes it away again."""
        before = vars(self).copy()
        plan, prefix = prepared.plan, prepared.prefix
        base = None if prefix is None else _base(prefix)
        goes_on = prefix is not None and prepared.policy.api == "restore"
        record = prepared.stored.record if goes_on else None
        self.prefix = prefix
        self._runs = {at: run for at, run in self._runs.items() if at != base}
        if base is not None and record is not None and record.run:
            self._runs[base] = record.run
        if plan.assignments:
            counts = {status.value: count for status, count in plan.counts.items()}
            added = _PastRestore(Restored(plan.origins, counts))
            if prefix is not None and goes_on:
                inherited = record.lineage if record is not None else ()
                added = added._replace(prefix=absolute(prefix), inherited=inherited)
            self._restores = (added,) if _assigns_all(plan) else (*self._restores, added)
        return lambda: vars(self).update(before)

    def lineage(self, directory: str) -> tuple[Restored, ...]:
        """The entries for the record of a checkpoint that is saved in this directory."""
        found: list[Restored] = []
        for past_restore in self._restores:
            own = past_restore.prefix and lies_in(past_restore.prefix, directory)
            found += past_restore.inherited if own else (past_restore.restored,)
        return tuple(found)

    def run_of(self, prefix: str, *, begin: bool = False) -> str:
        """The id of the run that saves under a numbered prefix; "" where none has begun.

        That is the run which was restored from there; else, with ``begin``, a new one.
        """
        base = _base(prefix)
        if begin and base not in self._runs:
            self._runs[base] = os.urandom(8).hex()
        return self._runs.get(base, "")

    def source_of(self, prefix: str) -> str:
        """The checkpoint there that was restored last; "" for none."""
        return self.prefix if self.prefix and _base(self.prefix) == _base(prefix) else ""


def _base(prefix: str) -> str:
    base = absolute(prefix.removeprefix("file://")).rpartition("-")[0]
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
