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
    LOSS_SCALE,
    OF_SEVERAL,
    OF_TF1,
    OPTIMIZERS,
    begins_as_weights,
    is_another_class,
    optimizer_of,
    slot_head,
)
from tfckpt.planning.checks.one_sided import (
    AT_WEIGHTS,
    NEW_FACTORS,
    NEW_SLOT,
    NO_OPTIMIZER,
    NO_SLOT,
    NO_STATE,
    NO_SUCH_NAME,
    NOT_BEGUN,
    NOT_TRAINED,
    OF_OPTIMIZERS,
    ONLY_LIVE,
    ONLY_STORED,
    TF1_STATE,
    TRAINED_NOW,
    asks,
)
from tfckpt.planning.checks.step import ASSIGNED, MISSING_HINT, UNEXPECTED_HINT, Severity, Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning.checks.step import Step
    from tfckpt.policy import Policy

_STEPS_HINT = (
    "optimizer: {iterations: restore} keeps the number, and so the place in a schedule; optimizer: "
    "reset starts from scratch"
)
_CLASS_HINT = "optimizer: reset starts it from scratch; match: name restores it anyway"
_ANEW = "optimizer: reset starts the optimizer from scratch"
# By the side that has no slot of a variable of its own: no such slot, or none of this variable.
_NO_SUCH_SLOT = (
    (
        "the checkpoint's optimizer has no such slot",
        "the checkpoint has no slot for this variable, which was not trained then",
        f"{_ANEW}; to leave only these as they are, declare them in expect_missing",
    ),
    (
        "the model's optimizer has no such slot",
        "the model has no slot for this variable, which is not trained now",
        f"{_ANEW}; to leave out only these, declare them in expect_unexpected",
    ),
)
_BUILD_HINT = (
    "build the optimizers before restoring, as {}.build(model.trainable_variables): what each "
    "trains says which of the checkpoint's it is"
)
SETTING_HINT = (
    "optimizer: {hyperparameters: config} keeps the value from your code, or its schedule"
)
_STATE = frozenset({Role.SLOT, Role.ITERATIONS})
_OF_CLASS = frozenset({Role.ITERATIONS, Role.HYPERPARAMETER})


class Optimizers:
    """The optimizers of a checkpoint and of the live objects, and what becomes of them."""

    def __init__(self, policy: Policy, stored: Inventory, live: Inventory) -> None:
        self._policy = policy
        self._sides = stored, live
        self._counted = "iterations" in policy.optimizer.model_fields_set
        self._verdicts: dict[tuple[str, str], str] = {}

    @cached_property
    def _owners(self) -> list[_Owners]:
        return [*map(_optimizers, self._sides)]

    # Pairs

    @cached_property
    def unsure(self) -> frozenset[Role]:
        """The roles whose values may be ambiguous although both sides have the same name."""
        return _OF_CLASS if self._alike() else _OF_CLASS | {Role.SLOT}

    def _alike(self) -> bool:
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

    def ambiguity(self, stored: Entry, live: Entry, *, explicit: bool) -> tuple[str, str]:
        """Why it may be another value, and a hint; ``explicit`` if a rule names this value."""
        if live.role is Role.SLOT:
            named = explicit and stored.slot != live.slot
            return ("", "") if named else (self._of_slot(stored, live), _CLASS_HINT)
        if explicit or (live.role is Role.ITERATIONS and self._counted):
            return "", ""
        old, new = (
            OptimizerState.of(side, entry.name.rpartition("/")[0])
            for entry, side in zip((stored, live), self._sides, strict=True)
        )
        if other := _differ(old, new):
            return other, _CLASS_HINT
        return (self._of_steps(stored, live) if live.role is Role.ITERATIONS else ""), _STEPS_HINT

    def _of_slot(self, stored: Entry, live: Entry) -> str:
        there, here = (side.by_slot for side in self._owners)
        old, new = there.get(stored.name), here.get(live.name)
        if old is None or new is None or not old.path or not new.path:
            return ""
        if (paths := (old.path, new.path)) not in self._verdicts:
            self._verdicts[paths] = _differ(old, new)
        return self._verdicts[paths] or _differ_for(old, new, stored.of, live.of)

    @cached_property
    def _accumulating(self) -> tuple[set[str], set[str]]:
        """The paths of the optimizers that accumulate gradients, on both sides."""
        mark, (stored, live) = f"/{ACCUMULATED}/", self._sides
        there = {name.partition(mark)[0] for name in stored.entries if mark in name}
        return there, {name.partition(mark)[0] for name in live.entries if mark in name}

    def _of_steps(self, stored: Entry, live: Entry) -> str:
        """Why a counter may count something else: Keras counts batches that accumulate."""
        path, (there, here) = stored.name.removesuffix("/iterations"), self._accumulating
        old, new = path in there, live.name.removesuffix("/iterations") in here
        if old == new or any(name.startswith(f"{path}/vars/") for name in self._sides[0].entries):
            return ""  # a file may only number its slots
        counts = ("batches, of which several are one update", "updates")
        first, second = counts if old else counts[::-1]
        return f"counts {first} in the checkpoint, and {second} in the model"

    # What only one side has

    @cached_property
    def paths(self) -> tuple[set[str], set[str]]:
        """The paths of the optimizers and loss scales of both sides."""
        stored, live = map(_paths, self._sides)
        return stored, live

    @cached_property
    def _slots(self) -> tuple[set[str], set[str]]:
        """The slots that the optimizers of both sides have."""
        stored, live = self._sides
        return {e.slot for e in stored.entries.values()}, {e.slot for e in live.entries.values()}

    def only_live(self, live: Entry) -> str:
        """Why a live value without a stored one is left as it is; ``""`` if it is asked for."""
        stored, other = self.paths
        if optimizer_of(live, self._sides[1]) not in stored:
            return NO_STATE if stored <= other else ""
        return ONLY_LIVE if live.role is Role.HYPERPARAMETER else ""

    def only_stored(self, stored: Entry, *, rival: bool) -> str:
        """Why an unused stored value is left where it is; ``""`` if it is asked for.

        ``rival``: whether a live value that nothing goes to is of its kind.
        """
        if stored.name.startswith(OF_TF1):
            return TF1_STATE
        other, live = self.paths
        if optimizer_of(stored, self._sides[0]) not in live:
            return NO_OPTIMIZER if live <= other else ""
        tf1_average = stored.slot == AVERAGE and not other  # is no other optimizer's slot
        if stored.role is Role.SLOT and (tf1_average or not rival):
            if stored.of and self._sides[1].find(stored.of) is None:
                return ""
            return NOT_TRAINED if stored.of and stored.slot in self._slots[1] else NO_SLOT
        return ONLY_STORED if stored.role is Role.HYPERPARAMETER else ""

    def why_missing(self, live: Entry) -> tuple[str, str]:
        """Why a live value is not in the checkpoint, and a hint."""
        stored, other = self.paths
        if not stored:
            reason = "the model has an optimizer, but the checkpoint has no optimizer state"
            return reason, f"{self._weights_alone()}; or {_ANEW}"
        if found := self._why_no_slot(live, 0):
            return found
        path = optimizer_of(live, self._sides[1])
        hint = SETTING_HINT if live.role is Role.HYPERPARAMETER else MISSING_HINT
        if path not in stored and stored - other and path not in self._owners[1].trained:
            hint = _BUILD_HINT.format(path.replace("/", "."))
        return "not in the checkpoint", hint

    def why_unexpected(self, stored: Entry) -> tuple[str, str]:
        """Why nothing uses a stored value, and a hint."""
        if not self.paths[1]:
            reason = "the checkpoint has optimizer state, but the model has no optimizer"
            return reason, f"compile the model, or {self._weights_alone()}"
        if found := self._why_no_slot(stored, 1):
            return found
        hint = SETTING_HINT if stored.role is Role.HYPERPARAMETER else UNEXPECTED_HINT
        return TF1_STATE if stored.name.startswith(OF_TF1) else NO_SUCH_NAME, hint

    def _why_no_slot(self, entry: Entry, at: int) -> tuple[str, str] | None:
        """Why a side has no such slot, and a hint; None if it does not have the variable either."""
        if entry.role is not Role.SLOT or self._sides[at].find(entry.of) is None:
            return None
        of_none, of_others, hint = _NO_SUCH_SLOT[at]
        return (of_others if entry.slot in self._slots[at] else of_none), hint

    def _weights_alone(self) -> str:
        weights = (e.name for e in self._sides[1].entries.values() if e.role is Role.WEIGHT)
        tops = sorted({name.partition("/")[0] for name in weights})
        selectors = ", ".join(f'"{top}/**"' for top in tops)
        return f"restore only the weights: include: [{selectors}]"

    # All of an optimizer

    def decide(self, steps: list[Step]) -> list[Step]:
        """The steps, so that what is left of each optimizer fits what is restored."""
        by_name = {step.name: step for step in steps if step.name}
        begun = {} if asks(self._policy, "on_missing") else self._begun(steps)
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
        known, changed = _Known(by_name.values(), steps, self._policy, self._sides[1]), begun
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

    def _begun(self, steps: Iterable[Step]) -> dict[str, Step]:
        """What begins of the optimizers that have slots, where the checkpoint's have none.

        Those had not taken a step, or are of a class that needs none, as SGD: the number of steps
        is restored beside slots that are right at zero.
        """
        stored, live = self._sides
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
                    if status is not None and not self._counted:
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
        if any(f"{path}/".startswith(f"{source}/") for path in self._owners[0].trained):
            return None  # or one inside of it has slots
        if step.status not in ASSIGNED:  # it counts something else
            return Status.RESET if step.hint == _STEPS_HINT else None
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


def _paths(inventory: Inventory) -> set[str]:
    paths = {*inventory.optimizers}
    for entry in inventory.entries.values():
        plain = entry.role is Role.SLOT and paths and LOSS_SCALE not in entry.name
        other = entry.slot == AVERAGE or entry.name.startswith(OF_TF1)
        if entry.role in OF_OPTIMIZERS and not plain and not other:
            paths.add(optimizer_of(entry, inventory))
    return paths


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
    if is_another_class(old.name, new.name):
        names = (repr(each.name) if each.name else "of an unknown class" for each in (new, old))
        return "{!r} is {} in the model and {} in the checkpoint".format(new.path, *names)
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
