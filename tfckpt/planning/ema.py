"""``ema: prefer``: a weight gets its moving average, where the checkpoint has one.

The planner sees an average under the name of its weight, so that rules apply to both.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.core.optimizer_names import AVERAGE
from tfckpt.core.selectors import Selector
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.policy import Policy

_LEFT = "ema: prefer, its moving average is restored instead"


class Averages:
    """The averages of a checkpoint by the names of their weights; ``stored``, with them as weights.

    >>> from tfckpt.policy import Policy
    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> kernel = Entry("model/a/w", Role.WEIGHT, "float32", (2,), key="a")
    >>> name = "optimizer/moving_average/a/w"
    >>> slot = Entry(name, Role.SLOT, "float32", (2,), 8, "b", "moving_average", kernel.name)
    >>> stored = Inventory("", {entry.name: entry for entry in (kernel, slot)})
    >>> Averages(Policy(ema="prefer"), stored, Inventory("", {})).stored.entries["model/a/w"].key
    'b'
    """

    def __init__(self, policy: Policy, stored: Inventory, live: Inventory) -> None:
        dropped = [Selector(text) for text in policy.exclude_checkpoint]
        self._weights = stored.entries
        self._found: dict[str, list[Entry]] = {}
        for each in stored.entries.values():
            of = stored.entries.get(each.of) if each.slot == AVERAGE else None
            if of is None or (of.dtype, of.shape) != (each.dtype, each.shape):
                continue
            if not any(rule.matches(each.name) for rule in dropped):
                self._found.setdefault(of.name, []).append(each)
        entries = dict(stored.entries)
        into_slots = any(entry.slot == AVERAGE for entry in live.entries.values())
        for name, (average, *_) in self._found.items():
            role = stored.entries[name].role
            entries[name] = average._replace(name=name, role=role, slot="", of="")
            if not into_slots:
                del entries[average.name]
        self.stored = dataclasses.replace(stored, entries=entries)

    def named(self, steps: Iterable[Step]) -> list[Step]:
        """The steps of a plan of ``stored`` with the averages' own names; and the weights'."""
        left = {name: self._weights[name] for name in self._found}
        spared = (Step(Status.EXCLUDED, "", n, None, e, reason=_LEFT) for n, e in left.items())
        return [*map(self._named, steps), *spared]

    def _named(self, step: Step) -> Step:
        taken = [self._found.get(entry.name, (entry,)) for entry in step.reads]
        if all(found[0] is entry for found, entry in zip(taken, step.reads, strict=True)):
            return step
        stored, *parts = (found[0] for found in taken)
        reason = "; ".join(filter(None, ("ema: the moving average", step.reason)))
        step = step._replace(source=stored.name, stored=stored, parts=tuple(parts), reason=reason)
        several = next((found for found in taken if len(found) > 1), ())
        if not several or step.status not in ASSIGNED:
            return step
        reason = f"{' and '.join(e.name for e in several)} are all moving averages of {step.name}"
        error = step._replace(status=Status.MISMATCH, changes=(), severity=Severity.ERROR)
        return error._replace(reason=reason, hint="drop all but one with exclude_checkpoint")
