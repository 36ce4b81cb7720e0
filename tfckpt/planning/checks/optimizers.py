"""An optimizer as one value of either side, and what becomes of it in a restore.

- The same on both sides: it is restored. Slots are matched by slot and variable, and trusted only
  if both optimizers have the same class, updates of as many batches, and the same slots of each
  variable: Adam's ``momentum`` is not SGD's.
- Absent on one side: it begins as a new one, and that is said. So does one that has slots where the
  checkpoint's has none, since it had not taken a step, and a slot that only one of them keeps, as
  with ``amsgrad``, if zeros are right beside what is restored.
- The slots of a variable that is not restored are left with it; an average of a restored variable
  begins at it; and no number of steps is restored beside slots that are all new.
- All else is asked for: ``optimizer: reset``.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import (
    ACCUMULATED,
    AT_ZERO,
    AVERAGE,
    CENTERED,
    OF_SEVERAL,
    OPTIMIZERS,
    begins_as_weights,
    optimizer_of,
    slot_head,
)
from tfckpt.planning.checks.one_sided import (
    AT_WEIGHTS,
    NEW_FACTORS,
    NEW_SLOT,
    NOT_BEGUN,
    TRAINED_NOW,
    asks,
)
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning.checks.step import Step
    from tfckpt.policy import Policy

STEPS_HINT = (
    "optimizer: {iterations: restore} keeps the number, and so the place in a schedule; optimizer: "
    "reset starts from scratch"
)
_LIKE = {name: known.like for name, known in OPTIMIZERS.items() if known.like}
_STATE = frozenset({Role.SLOT, Role.ITERATIONS})
_OF_CLASS = frozenset({Role.ITERATIONS, Role.HYPERPARAMETER})
HINT = "optimizer: reset starts it from scratch; match: name restores it anyway"


class Optimizers:
    """The optimizers of a checkpoint and of the live objects, and what becomes of them."""

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._sides = stored, live
        self._verdicts: dict[tuple[str, str], str] = {}

    @cached_property
    def _owners(self) -> list[_Owners]:
        return [*map(_optimizers, self._sides)]

    @cached_property
    def alike(self) -> bool:
        """Whether no slot with the same name on both sides is ambiguous."""
        if not any(entry.of for entry in self._sides[1].entries.values()):
            return True
        old, new = (side.by_path for side in self._owners)
        both = [(old[path], new[path]) for path in old.keys() & new.keys()]
        return not any(
            _differ(*pair)
            or any(
                _differ_for(*pair, name, name)
                for name in pair[0].of_variable.keys() & pair[1].of_variable.keys()
                if pair[0].of_variable[name] != pair[1].of_variable[name]
            )
            for pair in both
        )

    def ambiguity(self, stored: Entry, live: Entry) -> str:
        """Why a stored slot should not go into a live one; ``""`` for no reason."""
        there, here = (side.by_slot for side in self._owners)
        old, new = there.get(stored.name), here.get(live.name)
        if old is None or new is None or not old.path or not new.path:
            return ""
        if (paths := (old.path, new.path)) not in self._verdicts:
            self._verdicts[paths] = _differ(old, new)
        return self._verdicts[paths] or _differ_for(old, new, stored.of, live.of)

    def ambiguity_of_class(self, stored: Entry, live: Entry) -> str:
        """Why a counter or hyperparameter may mean something else: its optimizer's class."""
        old, new = (
            OptimizerState.of(side, entry.name.rpartition("/")[0])
            for entry, side in zip((stored, live), self._sides, strict=True)
        )
        return _differ(old, new)

    @cached_property
    def _accumulating(self) -> tuple[set[str], set[str]]:
        """The paths of the optimizers that accumulate gradients, on both sides."""
        mark, (stored, live) = f"/{ACCUMULATED}/", self._sides
        there = {name.partition(mark)[0] for name in stored.entries if mark in name}
        return there, {name.partition(mark)[0] for name in live.entries if mark in name}

    def ambiguity_of_steps(self, stored: Entry, live: Entry) -> str:
        """Why a counter may count something else: Keras counts batches that accumulate."""
        path, (there, here) = stored.name.removesuffix("/iterations"), self._accumulating
        old, new = path in there, live.name.removesuffix("/iterations") in here
        if old == new or any(name.startswith(f"{path}/vars/") for name in self._sides[0].entries):
            return ""  # a file may only number its slots
        counts = ("batches, of which several are one update", "updates")
        first, second = counts if old else counts[::-1]
        return f"counts {first} in the checkpoint, and {second} in the model"

    def decide(self, steps: list[Step], policy: Policy) -> list[Step]:
        """The steps, so that what is left of each optimizer fits what is restored."""
        by_name = {step.name: step for step in steps if step.name}
        begun = {} if asks(policy, "on_missing") else self._begun(steps, policy)
        by_name |= begun
        restored = {
            name
            for name, step in by_name.items()
            if step.status in ASSIGNED or step.reason == NEW_FACTORS
        }
        slots = [step for step in by_name.values() if step.live and step.live.of in by_name]
        unlike = [s for s in slots if (s.name in restored) != (s.entry.of in restored)]
        if not unlike and not begun:
            return steps
        apart = restored.isdisjoint(step.entry.of for step in slots if step.name in restored)
        known, changed = _Known(by_name.values(), steps, policy, self._sides[1]), begun
        for step in unlike:
            variable = by_name[step.entry.of]
            if variable.name in restored:
                if step.name not in begun and (reason := known.beginning(step)):
                    changed[step.name] = _anew(step, reason)
            elif not apart and variable.severity is not Severity.ERROR:
                # unless no slot's variable is restored: they come from somewhere else then
                reason = f"its variable is not restored: {variable.reason}"
                changed[step.name] = step._replace(
                    status=Status.EXCLUDED, reason=reason, changes=()
                )
        return [changed.get(step.name, step) for step in steps]

    def _begun(self, steps: Iterable[Step], policy: Policy) -> dict[str, Step]:
        """What begins of the optimizers that have slots, where the checkpoint's have none.

        Those had not taken a step, or are of a class that needs none, as SGD: the number of steps
        is restored beside slots that are right at zero.
        """
        stored, live = self._sides
        counted = "iterations" in policy.optimizer.model_fields_set
        if not live.optimizers:
            return {}
        source = {path: path for path in live.optimizers.keys() & stored.optimizers.keys()}
        source |= {
            optimizer_of(step.live, live): optimizer_of(step.stored, stored)
            for step in steps
            if step.live and step.stored and step.entry.role in _OF_CLASS
        }
        inside = {
            path: outer
            for path in live.optimizers.keys() - source.keys() - self._owners[0].trained
            for outer in source
            if path.startswith(f"{outer}/")
        }
        slots: dict[str, set[str]] = defaultdict(set)
        for path, each in self._owners[1].by_path.items():
            slots[inside.get(path, path)] |= each.slots
        found = {}
        for step in steps:
            if step.live is not None and step.live.role in _STATE:
                path = optimizer_of(step.live, live)
                if path in inside and step.status is Status.MISSING:
                    found[step.name] = _anew(step, NOT_BEGUN)
                elif path in source and step.status is Status.MISSING:
                    if reason := self._why_missing(step, path, source[path]):
                        found[step.name] = _anew(step, reason)
                elif path in source and step.live.role is Role.ITERATIONS:
                    status = self._uncounted(step, source[path], slots[path])
                    if status is not None and not counted:
                        found[step.name] = _anew(step, NOT_BEGUN, status)
        return found

    def _why_missing(self, step: Step, path: str, source: str) -> str:
        """Why a slot begins as new that nothing is known of; ``""`` if it is asked for."""
        if step.severity is not Severity.ERROR:
            return ""
        cls, own = self._sides[1].optimizers.get(path, ""), step.name.rpartition("/")[2]
        if source not in self._owners[0].trained:
            return AT_WEIGHTS if begins_as_weights(step.entry.slot, cls) else NOT_BEGUN
        return NEW_SLOT if not step.entry.of and own in _optional(cls) else ""

    def _uncounted(self, step: Step, source: str, slots: set[str]) -> Status | None:
        """What becomes of a number of steps that no slot is restored with; None if it is right."""
        stored, live = self._sides
        cls = live.optimizers.get(step.name.rpartition("/")[0], "")
        if source in self._owners[0].trained:
            return None
        if step.status not in ASSIGNED:  # it counts something else
            return Status.RESET if step.hint == STEPS_HINT else None
        if slots:
            return Status.RESET if slots - {AVERAGE} - _optional(cls) else None
        will_have = cls in OPTIMIZERS and not OPTIMIZERS[cls].bare
        known = stored.optimizers.get(source, "")
        return Status.EXCLUDED if will_have and known in {"", OF_SEVERAL} else None


def _anew(step: Step, reason: str, status: Status = Status.RESET) -> Step:
    """The step of a value that begins as in a new optimizer."""
    begun = step._replace(status=status, severity=Severity.NOTE, reason=reason)
    return begun._replace(hint="", changes=())


def _optional(cls: str) -> frozenset[str]:
    """The slots that may begin as in a new optimizer beside others that are restored."""
    return AT_ZERO | {*(OPTIMIZERS[cls].more if cls in OPTIMIZERS else ())}


class _Known:
    """What is known of the optimizers of a plan."""

    def __init__(
        self, named: Iterable[Step], steps: Iterable[Step], policy: Policy, live: Inventory
    ) -> None:
        self._live = live
        self._asked = asks(policy, "on_missing")
        assigned = [step.live for step in named if step.live and step.status in ASSIGNED]
        state = [entry for entry in assigned if entry.role in _STATE]
        self._restored = {optimizer_of(entry, live) for entry in state}
        self._trained = {entry.of for entry in state}
        stored = [step for step in steps if step.stored and step.stored.role is Role.SLOT]
        self._slots = {step.entry.slot for step in stored}
        unused = (s for s in stored if not s.live and s.severity is Severity.ERROR)
        self._unused = {step.entry.slot for step in unused}

    def beginning(self, step: Step) -> str:
        """What a slot of a restored variable begins at; "" if nothing is known."""
        slot, path = step.entry.slot, optimizer_of(step.entry, self._live)
        cls = self._live.optimizers.get(path, "")
        of_weights = begins_as_weights(slot, cls)
        if step.severity is not Severity.ERROR:
            spared = {Status.MISSING, Status.EXCLUDED}
            return AT_WEIGHTS if of_weights and step.status in spared else ""
        if step.status is not Status.MISSING or self._asked or slot in self._unused:
            return ""
        if of_weights:
            return AT_WEIGHTS
        if path not in self._restored:
            return ""
        optional = slot in _optional(cls)
        if slot in self._slots and not (optional and step.entry.shape == ()):
            return "" if step.entry.of in self._trained else TRAINED_NOW
        return NEW_SLOT if optional else ""


@dataclasses.dataclass(slots=True)
class OptimizerState:
    """An optimizer of one side.

    Attributes:
        path: its canonical path.
        name: its class in snake case, ``""`` if unknown.
        batches: how many make an update, None if unknown.
        slots: of all variables.
        of_variable: the slots of each variable.
    """

    path: str
    name: str
    batches: int | None
    slots: set[str] = dataclasses.field(default_factory=set)
    of_variable: dict[str, set[str]] = dataclasses.field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, side: Inventory, path: str) -> OptimizerState:
        return cls(path, side.optimizers.get(path, ""), side.accumulation.get(path))


class _Owners(NamedTuple):
    """The optimizers by the names of their slots, and by their paths; and which have slots."""

    by_slot: dict[str, OptimizerState]
    by_path: dict[str, OptimizerState]
    trained: set[str]


def _optimizers(inventory: Inventory) -> _Owners:
    by_path: dict[str, OptimizerState] = {}
    by_head: dict[tuple[str, str], OptimizerState] = {}
    owners, trained = {}, set()
    for entry in inventory.entries.values():
        if entry.role is Role.SLOT:
            if not entry.of:  # a file may only number its slots
                trained.add(optimizer_of(entry, inventory))
            slot, head = entry.slot, slot_head(entry)
            if (owner := by_head.get((head, slot))) is None:
                path = head.removesuffix(f"/{slot}")
                if (owner := by_path.get(path)) is None:
                    owner = by_path[path] = OptimizerState.of(inventory, path)
                by_head[head, slot] = owner
                owner.slots.add(slot)
            owner.of_variable[entry.of].add(slot)
            owners[entry.name] = owner
    return _Owners(owners, by_path, trained | by_path.keys())


def other_paths(stored: Inventory, live: Inventory) -> dict[str, str]:
    """Path of a stored optimizer → path of the live one that has slots of the same variables.

    An optimizer of the same path is that one; another one only if there is no second reading.
    """
    there = stored.optimizers.keys() - live.optimizers.keys()
    here = live.optimizers.keys() - stored.optimizers.keys()
    if not there or not here:
        return {}
    old, new = (_optimizers(side).by_path for side in (stored, live))
    pairs = [
        (one, other)
        for one in there & old.keys()
        for other in here & new.keys()
        if old[one].of_variable.keys() & new[other].of_variable.keys()
    ]
    seen = Counter(path for pair in pairs for path in pair)
    return {one: other for one, other in pairs if seen[one] == seen[other] == 1}


def _differ(old: OptimizerState, new: OptimizerState) -> str:
    known = old.name and new.name
    if known and _LIKE.get(old.name, old.name) != _LIKE.get(new.name, new.name):
        return f"{new.path!r} is {new.name!r} in the model and {old.name!r} in the checkpoint"
    if old.batches and new.batches and old.batches != new.batches:
        each = f"{new.batches} batches in the model, and of {old.batches} in the checkpoint"
        return f"an update of {new.path!r} is of {each}"
    if (old.slots ^ new.slots) - _without_effect(old, new):
        live, stored = (", ".join(sorted(each.slots)) or "no slots" for each in (new, old))
        return f"{new.path!r} keeps {live} in the model and {stored} in the checkpoint"
    return ""


def _differ_for(old: OptimizerState, new: OptimizerState, stored: str, live: str) -> str:
    """Why the slots of one variable differ: Muon has other ones for what Adam trains in it."""
    there, here = old.of_variable[stored], new.of_variable[live]
    if not (there ^ here) - _without_effect(old, new):
        return ""
    slots, others = (", ".join(sorted(each)) for each in (here, there))
    return f"{new.path!r} keeps {slots} of this variable in the model, {others} in the checkpoint"


def _without_effect(old: OptimizerState, new: OptimizerState) -> frozenset[str]:
    """The slots that may begin as in a new optimizer beside others that are restored."""
    known = old.name and new.name
    return (_optional(new.name) if known else AT_ZERO - {CENTERED}) | {AVERAGE}
