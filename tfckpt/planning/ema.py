"""``ema``: a weight's moving average in its place.

A training that keeps averages of its weights evaluates with them and saves both. To planning, a
weight whose average is taken is a value of the weight's name with the average's bytes: so rules
that rename, exclude or adapt the weight are about its average too. The weight itself stays in the
checkpoint, and the plan says so.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.core.selectors import Selector
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.policy import Policy

SLOT = "moving_average"
_SEVERAL_HINT = "drop all but one with exclude_checkpoint"


class Averaged(NamedTuple):
    """A stored inventory with averages in the place of weights.

    Attributes:
        inventory: what planning is to see.
        taken: name of a weight → the average that stands for it.
        left: the weights that are not taken, as steps of the plan.
        absent: names of the weights that have no average and are to have one.
        several: name of a weight → its averages, where it has more than one.
    """

    inventory: Inventory
    taken: Mapping[str, Entry]
    left: tuple[Step, ...]
    absent: frozenset[str]
    several: Mapping[str, tuple[str, ...]]

    def told(self, step: Step) -> Step:
        """A step of the plan with the average it is about."""
        if step.stored is not None and any(entry.name in self.taken for entry in step.reads):
            of = next((e.name for e in step.reads if e.name in self.several), "")
            stored, *parts = (self.taken.get(entry.name, entry) for entry in step.reads)
            reason = "; ".join(filter(None, ("ema: the moving average", step.reason)))
            step = step._replace(source=stored.name, stored=stored, reason=reason)
            step = step._replace(parts=tuple(parts))
            if of and step.status in ASSIGNED:
                reason = f"{' and '.join(self.several[of])} are all moving averages of {of}"
                step = step._replace(status=Status.MISMATCH, reason=reason, changes=())
                step = step._replace(severity=Severity.ERROR, hint=_SEVERAL_HINT)
            return step
        if step.status is Status.MISSING and step.name in self.absent:
            reason = "ema: only, but the checkpoint has no moving average of it"
            return step._replace(reason=reason)
        return step


def with_averages(policy: Policy, stored: Inventory, live: Inventory) -> Averaged:
    """The stored inventory as ``ema`` has it.

    >>> from tfckpt.policy import Policy
    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2,), key="a")
    >>> average = Entry(
    ...     "optimizer/moving_average/a/kernel", Role.SLOT, "float32", (2,), key="b",
    ...     slot="moving_average", of=kernel.name,
    ... )
    >>> stored = Inventory("", {entry.name: entry for entry in (kernel, average)})
    >>> found = with_averages(Policy(ema="prefer"), stored, Inventory("", {}))
    >>> [(name, entry.key) for name, entry in found.inventory.entries.items()]
    [('model/a/kernel', 'b')]
    """
    if policy.ema == "ignore":
        return Averaged(stored, {}, (), frozenset(), {})
    dropped = [Selector(text) for text in policy.exclude_checkpoint]
    averages: dict[str, list[Entry]] = {}
    for entry in stored.entries.values():
        if entry.slot == SLOT and not any(rule.matches(entry.name) for rule in dropped):
            averages.setdefault(entry.of, []).append(entry)
    kept_here = any(entry.slot == SLOT for entry in live.entries.values())
    entries: dict[str, Entry] = {}
    taken: dict[str, Entry] = {}
    several: dict[str, tuple[str, ...]] = {}
    left: list[Step] = []
    absent: set[str] = set()
    for name, entry in stored.entries.items():
        alike = [
            each
            for each in averages.get(name, ())
            if (each.shape, each.dtype) == (entry.shape, entry.dtype)
        ]
        if alike:
            average = taken[name] = alike[0]
            if len(alike) > 1:
                several[name] = tuple(each.name for each in alike)
            entries[name] = average._replace(name=name, role=entry.role, slot="", of="")
            left.append(_left(entry, f"ema: {policy.ema}, its moving average is restored instead"))
        elif policy.ema == "only" and entry.role is Role.WEIGHT:
            absent.add(name)
            left.append(_left(entry, "ema: only, but it has no moving average"))
        else:
            entries[name] = entry
    if not kept_here:  # nothing here takes them as what they are, and they are used
        entries = {n: e for n, e in entries.items() if taken.get(e.of) is not e}
    inventory = dataclasses.replace(stored, entries=entries)
    return Averaged(inventory, taken, tuple(left), frozenset(absent), several)


def _left(entry: Entry, reason: str) -> Step:
    return Step(Status.EXCLUDED, "", entry.name, None, entry, reason=reason)
