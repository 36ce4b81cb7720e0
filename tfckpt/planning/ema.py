"""``ema``: restores the moving average of a weight in place of the weight.

A training with moving averages evaluates with them and saves both. The planner sees an average
under the name of its weight, so rules that rename, exclude or adapt the weight apply to the
average too. The weight itself stays in the checkpoint, and the plan says so.
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
    """A stored inventory with averages in place of weights.

    Attributes:
        inventory: the inventory for the planner.
        taken: name of a weight → the average that replaces it.
        left: steps for the weights that are not restored.
        absent: names of the weights that have no average but need one (``ema: only``).
        several: name of a weight → its averages, if it has more than one.
    """

    inventory: Inventory
    taken: Mapping[str, Entry]
    left: tuple[Step, ...]
    absent: frozenset[str]
    several: Mapping[str, tuple[str, ...]]

    def with_average(self, step: Step) -> Step:
        """The step of a weight as the step of its average."""
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
    """The stored inventory with the averages that ``ema`` selects.

    >>> from tfckpt.policy import Policy
    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2,), key="a")
    >>> average = Entry(
    ...     "optimizer/moving_average/a/kernel", Role.SLOT, "float32", (2,), key="b",
    ...     slot="moving_average", of=kernel.name,
    ... )
    >>> stored = Inventory("", {entry.name: entry for entry in (kernel, average)})
    >>> averaged = with_averages(Policy(ema="prefer"), stored, Inventory("", {}))
    >>> [(name, entry.key) for name, entry in averaged.inventory.entries.items()]
    [('model/a/kernel', 'b')]
    """
    dropped = [Selector(text) for text in policy.exclude_checkpoint]
    averages: dict[str, list[Entry]] = {}
    for entry in stored.entries.values():
        if entry.slot == SLOT and not any(rule.matches(entry.name) for rule in dropped):
            averages.setdefault(entry.of, []).append(entry)
    model_has_averages = any(entry.slot == SLOT for entry in live.entries.values())
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
    if not model_has_averages:  # as weights they are used, as slots nothing would use them
        entries = {n: e for n, e in entries.items() if taken.get(e.of) is not e}
    inventory = dataclasses.replace(stored, entries=entries)
    return Averaged(inventory, taken, tuple(left), frozenset(absent), several)


def _left(entry: Entry, reason: str) -> Step:
    return Step(Status.EXCLUDED, "", entry.name, None, entry, reason=reason)
