"""Checks whether the state of two optimizers is of one kind, and that it is restored as a whole.

Slots are matched by slot and variable, and trusted only if both optimizers have the same class and
the same slots: Adam's ``momentum`` is not SGD's. A slot that only one of them keeps, as with
``amsgrad``, does not matter if one that begins anew is right beside the restored ones.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import (
    ACCUMULATED,
    AT_ZERO,
    AVERAGE,
    OPTIMIZERS,
    begins_as_weights,
    slot_head,
)
from tfckpt.planning.checks.one_sided import asks, optimizer_of
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning.checks.step import Step
    from tfckpt.policy import Policy

STEPS_HINT = (
    "optimizer: {iterations: restore} keeps the number, and so the place in a schedule; optimizer: "
    "reset begins anew"
)
HINT = "optimizer: reset begins it anew; match: name restores it anyway"
_AT_WEIGHTS = "begins at the restored weights"
_NOT_TRAINED = "begins anew, since its variable was not trained when it was saved"
_NO_SLOT = "begins anew, since the checkpoint's optimizer has no such slot"


class Optimizers:
    """Decides which pairs of optimizers have compatible state."""

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._sides = stored, live
        self._classes = stored.optimizers, live.optimizers
        self._verdicts: dict[tuple[str, str], str] = {}

    @cached_property
    def _stored(self) -> dict[str, _Optimizer]:
        return _optimizers(self._sides[0])

    @cached_property
    def _live(self) -> dict[str, _Optimizer]:
        return _optimizers(self._sides[1])

    @cached_property
    def alike(self) -> bool:
        """Whether all optimizers have the same classes and slots on both sides.

        Then no slot with the same name on both sides is ambiguous.
        """
        stored_classes, live_classes = self._classes
        if any(
            name and live_classes.get(path, "") not in {"", name}
            for path, name in stored_classes.items()
        ):
            return False
        stored, live = (side.entries for side in self._sides)
        count = 0
        for name, entry in stored.items():
            if entry.role is Role.SLOT:
                other = live.get(name)
                if other is None or (other.slot, other.of) != (entry.slot, entry.of):
                    return False
                count += 1
        return count == sum(entry.role is Role.SLOT for entry in live.values())

    def ambiguity(self, stored: Entry, live: Entry) -> str:
        """Why a stored slot should not go into a live one; ``""`` for no reason."""
        pair = self._stored.get(stored.name, _UNKNOWN), self._live.get(live.name, _UNKNOWN)
        paths = pair[0].path, pair[1].path
        if paths not in self._verdicts:
            self._verdicts[paths] = _differ(*pair) if all(paths) else ""
        return self._verdicts[paths]

    def ambiguity_of_class(self, stored: Entry, live: Entry) -> str:
        """Why a counter or hyperparameter may mean something else: its optimizer's class."""
        old, new = (
            _Optimizer(path := entry.name.rpartition("/")[0], classes.get(path, ""), set())
            for entry, classes in zip((stored, live), self._classes, strict=True)
        )
        return _differ(old, new)

    def ambiguity_of_steps(self, stored: Entry, live: Entry) -> str:
        """Why a counter may count something else: Keras counts batches that accumulate."""
        slots: tuple[set[str], ...] = set(), set()
        for found, entry, owners in zip(
            slots, (stored, live), (self._stored, self._live), strict=True
        ):
            path = entry.name.rpartition("/")[0]
            found.update(*(owner.slots for owner in owners.values() if owner.path == path))
        old, new = (ACCUMULATED in each for each in slots)
        if old == new or not slots[0]:  # a file may not say which slots it has
            return ""
        counts = ("batches, of which several are one update", "updates")
        side = counts if old else counts[::-1]
        return f"counts {side[0]} in the checkpoint, and {side[1]} in the model"


@dataclasses.dataclass(slots=True)
class _Optimizer:
    """An optimizer: its path, its class if known, and its slots."""

    path: str
    name: str
    slots: set[str]


_UNKNOWN = _Optimizer("", "", set())


def _optimizers(inventory: Inventory) -> dict[str, _Optimizer]:
    """Name of each slot → its optimizer."""
    by_path: dict[str, _Optimizer] = {}
    by_head: dict[tuple[str, str], _Optimizer] = {}
    owners = {}
    for entry in inventory.entries.values():
        if entry.role is Role.SLOT:
            slot, head = entry.slot, slot_head(entry)
            if (owner := by_head.get((head, slot))) is None:
                path = head.removesuffix(f"/{slot}")
                if (owner := by_path.get(path)) is None:
                    name = inventory.optimizers.get(path, "")
                    owner = by_path[path] = _Optimizer(path, name, set())
                by_head[head, slot] = owner
                owner.slots.add(slot)
            owners[entry.name] = owner
    return owners


_STATE = frozenset({Role.SLOT, Role.ITERATIONS})


def _differ(old: _Optimizer, new: _Optimizer) -> str:
    classes = [getattr(OPTIMIZERS.get(each.name), "like", "") or each.name for each in (old, new)]
    if all(classes) and classes[0] != classes[1]:
        return f"{new.path!r} is {new.name!r} in the model and {old.name!r} in the checkpoint"
    either = AT_ZERO | {AVERAGE}
    if all(classes) and new.name in OPTIMIZERS:
        either |= {*OPTIMIZERS[new.name].more}
    if (old.slots ^ new.slots) - either:
        live, stored = (", ".join(sorted(each.slots)) or "no slots" for each in (new, old))
        return f"{new.path!r} keeps {live} in the model and {stored} in the checkpoint"
    return ""


def as_wholes(steps: list[Step], policy: Policy, stored: Inventory, live: Inventory) -> list[Step]:
    """Let what is left of each optimizer fit what is restored.

    - The slots of variables that are not restored are left, unless no slot's variable is: then the
      variables come from somewhere else.
    - An average of restored weights that is not restored itself begins at these.
    - A slot that the checkpoint cannot have begins anew beside the others of its optimizer.
    """
    by_name = {step.name: step for step in steps if step.name}
    slots = [step for step in by_name.values() if step.live and step.live.of]
    restored = {name for name, step in by_name.items() if step.status in ASSIGNED}
    if all(step.name in restored and step.entry.of in restored for step in slots):
        return steps
    known = _Known(steps, policy, stored, live)
    apart = restored.isdisjoint(step.entry.of for step in slots if step.name in restored)
    changed = {}
    for step in slots:
        variable = by_name.get(step.entry.of)
        if variable is None or (step.name in restored) == (variable.name in restored):
            continue
        if step.name not in restored:
            if reason := known.beginning(step):
                begun = step._replace(status=Status.RESET, severity=Severity.NOTE)
                changed[step.name] = begun._replace(reason=reason, hint="")
        elif not apart and variable.severity is not Severity.ERROR:
            reason = f"its variable is not restored: {variable.reason}"
            changed[step.name] = step._replace(status=Status.EXCLUDED, reason=reason, changes=())
    return [changed.get(step.name, step) for step in steps]


class _Known:
    """What is known of the optimizers of a plan."""

    def __init__(
        self, steps: list[Step], policy: Policy, stored: Inventory, live: Inventory
    ) -> None:
        self._live = live
        self._asked = asks(policy, "on_missing")
        self._restored: set[str] = set()
        self._trained: set[str] = set()
        self._slots: set[str] = set()
        self._unused: set[str] = set()
        for step in steps:
            if step.live and step.status in ASSIGNED and step.live.role in _STATE:
                self._restored.add(optimizer_of(step.live, live))
                self._trained.add(step.live.of)
            if step.stored and step.stored.role is Role.SLOT:
                self._slots.add(step.stored.slot)
                if step.status is Status.UNEXPECTED and step.severity is Severity.ERROR:
                    self._unused.add(step.stored.slot)

    def beginning(self, step: Step) -> str:
        """What a slot of a restored variable begins at; "" if nothing is known."""
        slot, path = step.entry.slot, optimizer_of(step.entry, self._live)
        cls = self._live.optimizers.get(path, "")
        of_weights = begins_as_weights(slot, cls)
        if step.severity is not Severity.ERROR:
            spared = {Status.MISSING, Status.EXCLUDED}
            return _AT_WEIGHTS if of_weights and step.status in spared else ""
        if step.status is not Status.MISSING or self._asked or slot in self._unused:
            return ""
        if of_weights:
            return _AT_WEIGHTS
        if path not in self._restored:
            return ""
        if slot in self._slots:
            return "" if step.entry.of in self._trained else _NOT_TRAINED
        optional = AT_ZERO.union(OPTIMIZERS[cls].more if cls in OPTIMIZERS else ())
        return _NO_SLOT if slot in optional else ""
