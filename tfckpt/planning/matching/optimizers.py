"""Checks whether the state of two optimizers is of one kind.

Slots are matched by slot and variable, and trusted only if both optimizers have the same class and
the same slots: Adam's ``momentum`` is not SGD's. A slot that only one of them keeps, as with
``amsgrad``, does not matter if zeros are right beside what is restored.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import (
    ACCUMULATED,
    AT_ZERO,
    AVERAGE,
    OPTIMIZERS,
    slot_head,
)

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry, Inventory

STEPS_HINT = (
    "optimizer: {iterations: restore} keeps the number, and so the place in a schedule; optimizer: "
    "reset starts from scratch"
)
_LIKE = {name: known.like for name, known in OPTIMIZERS.items() if known.like}
HINT = "optimizer: reset starts it from scratch; match: name restores it anyway"


class Optimizers:
    """Decides which pairs of optimizers have compatible state."""

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
        (_, old), (_, new) = self._owners
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
        (there, _), (here, _) = self._owners
        old, new = there.get(stored.name), here.get(live.name)
        if old is None or new is None or not old.path or not new.path:
            return ""
        if (paths := (old.path, new.path)) not in self._verdicts:
            self._verdicts[paths] = _differ(old, new)
        return self._verdicts[paths] or _differ_for(old, new, stored.of, live.of)

    def ambiguity_of_class(self, stored: Entry, live: Entry) -> str:
        """Why a counter or hyperparameter may mean something else: its optimizer's class."""
        old, new = (
            _Optimizer.of(side, entry.name.rpartition("/")[0])
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


@dataclasses.dataclass(slots=True)
class _Optimizer:
    """An optimizer: its path, class, and batches of an update, if known, and its slots."""

    path: str
    name: str
    batches: int | None
    slots: set[str] = dataclasses.field(default_factory=set)
    of_variable: dict[str, set[str]] = dataclasses.field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, side: Inventory, path: str) -> _Optimizer:
        return cls(path, side.optimizers.get(path, ""), side.accumulation.get(path))


class _Owners(NamedTuple):
    """The optimizers by the names of their slots, and by their paths."""

    by_slot: dict[str, _Optimizer]
    by_path: dict[str, _Optimizer]


def _optimizers(inventory: Inventory) -> _Owners:
    by_path: dict[str, _Optimizer] = {}
    by_head: dict[tuple[str, str], _Optimizer] = {}
    owners = {}
    for entry in inventory.entries.values():
        if entry.role is Role.SLOT:
            slot, head = entry.slot, slot_head(entry)
            if (owner := by_head.get((head, slot))) is None:
                path = head.removesuffix(f"/{slot}")
                if (owner := by_path.get(path)) is None:
                    owner = by_path[path] = _Optimizer.of(inventory, path)
                by_head[head, slot] = owner
                owner.slots.add(slot)
            owner.of_variable[entry.of].add(slot)
            owners[entry.name] = owner
    return _Owners(owners, by_path)


def _differ(old: _Optimizer, new: _Optimizer) -> str:
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


def _differ_for(old: _Optimizer, new: _Optimizer, stored: str, live: str) -> str:
    """Why the slots of one variable differ: Muon has other ones for what Adam trains in it."""
    there, here = old.of_variable[stored], new.of_variable[live]
    if not (there ^ here) - _without_effect(old, new):
        return ""
    slots, others = (", ".join(sorted(each)) for each in (here, there))
    return f"{new.path!r} keeps {slots} of this variable in the model, {others} in the checkpoint"


def _without_effect(old: _Optimizer, new: _Optimizer) -> frozenset[str]:
    """The slots that may begin as in a new optimizer beside others that are restored."""
    known = old.name and new.name in OPTIMIZERS
    return AT_ZERO | {AVERAGE} | {*(OPTIMIZERS[new.name].more if known else ())}
