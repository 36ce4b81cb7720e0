"""One restore from start to end: open, name, plan, apply.

``tfckpt.Checkpoint`` and the functions that follow a config both come through here, so there is one
place where a checkpoint meets live objects.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.errors import RefusedError
from tfckpt.live import build, delayed
from tfckpt.live.adapt import known
from tfckpt.live.apply import Undo, apply
from tfckpt.live.inventory import Live, collect, ungraphed
from tfckpt.live.remote import files_of
from tfckpt.live.reset import initial_values
from tfckpt.planning import Plan, RestoreReport, make_plan
from tfckpt.records import Inventory, Role
from tfckpt.stored.checkpoint import StoredCheckpoint, open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.policy import Policy


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Everything that is known before the first assignment."""

    plan: Plan
    live: Live
    stored: StoredCheckpoint
    policy: Policy

    def report(self, rejected: tuple[str, ...] = ()) -> RestoreReport:
        record = self.stored.record
        return RestoreReport(
            self.plan,
            self.stored.prefix,
            record.step if record else None,
            record.epoch if record else None,
            dict(record.metrics) if record else {},
            rejected,
        )


@contextlib.contextmanager
def prepare(
    prefix: str,
    policy: Policy,
    objects: Mapping[str, Any],
    root: Any = None,
    *,
    skip_slots: bool = False,
) -> Iterator[Prepared]:
    """Open a checkpoint and plan its restore; the files stay open inside the context.

    Objects that the policy or a compiled model says how to build are built; nothing is assigned.

    Args:
        prefix: of the checkpoint.
        policy: what may be restored.
        objects: live objects by keyword.
        root: one that was given without a keyword.
        skip_slots: whether optimizer slots are left out on both sides, as
            ``tf.train.CheckpointOptions.experimental_skip_slot_variables`` has it.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
        NotBuiltError: it has values for something that has no variables yet.
        PolicyError: a file of words that the policy names is none.
    """
    given = {"model": root, **objects} if root is not None else objects
    build.build_models(given, policy.build)
    live = collect(objects, root)
    files = files_of(prefix)
    with open_checkpoint(prefix, roots=live.roots, bases=live.weak_bases, files=files) as stored:
        if not skip_slots and build.build_optimizers(live, stored.inventory):
            live = collect(objects, root)
        if not stored.graph:
            live = ungraphed(live, stored.inventory)
        there, here = stored.inventory, live.inventory
        if skip_slots:
            there, here = _without_slots(there), _without_slots(here)
        plan = make_plan(policy, there, here, known(policy))
        build.check_built(live, plan)
        yield Prepared(plan, live, stored, policy)


def _without_slots(inventory: Inventory) -> Inventory:
    entries = {n: entry for n, entry in inventory.entries.items() if entry.role is not Role.SLOT}
    return dataclasses.replace(inventory, entries=entries)


def refuse(plan: Plan) -> None:
    """Raise if the plan has errors.

    Raises:
        RefusedError: its message is the plan's report.
    """
    if not plan.ok:
        raise RefusedError(f"nothing was restored\n{plan}", plan=plan)


def carry_out(prepared: Prepared, *, keep_all: bool = False) -> Undo:
    """Apply a plan, objects that are not variables included, all of it or none of it.

    Raises:
        RefusedError: the plan has errors.
        DamagedCheckpointError: a needed value is not what its checksum says.
    """
    plan, live, stored = prepared.plan, prepared.live, prepared.stored
    refuse(plan)
    objects = {
        step.stored.key: live.variables[step.name]
        for step in plan.assignments
        if step.stored is not None and step.stored.shape is None
    }
    return apply(
        plan,
        stored,
        live.variables,
        verify=prepared.policy.verify,
        keep_all=keep_all,
        resets=initial_values(plan, live),
        then=(lambda: delayed.restore_objects(stored.prefix, objects)) if objects else None,
    )
