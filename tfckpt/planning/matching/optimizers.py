"""Checks whether the state of two optimizers is of one kind.

Slots are matched by slot and variable, and trusted only if both optimizers have the same class and
the same slots: Adam's ``momentum`` is not SGD's. A slot that only one of them keeps, as with
``amsgrad``, does not matter if zeros are right beside what is restored.
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
    slot_head,
)

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry, Inventory

STEPS_HINT = (
    "optimizer: {iterations: restore} keeps the number, and so the place in a schedule; optimizer: "
    "reset starts from scratch"
)
HINT = "optimizer: reset starts it from scratch; match: name restores it anyway"


class Optimizers:
    """Decides which pairs of optimizers have compatible state."""

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._sides = stored, live
        self._verdicts: dict[tuple[str, str], str] = {}

    @cached_property
    def _owners(self) -> list[dict[str, _Optimizer]]:
        return [*map(_optimizers, self._sides)]

    @cached_property
    def alike(self) -> bool:
        """Whether no slot with the same name on both sides is ambiguous."""
        if not any(entry.of for entry in self._sides[1].entries.values()):
            return True
        old, new = ({owner.path: owner for owner in side.values()} for side in self._owners)
        return not any(_differ(old[path], new[path]) for path in old.keys() & new.keys())

    def ambiguity(self, stored: Entry, live: Entry) -> str:
        """Why a stored slot should not go into a live one; ``""`` for no reason."""
        names = stored.name, live.name
        old, new = (owners.get(name) for owners, name in zip(self._owners, names, strict=True))
        if old is None or new is None or not old.path or not new.path:
            return ""
        if (paths := (old.path, new.path)) not in self._verdicts:
            self._verdicts[paths] = _differ(old, new)
        return self._verdicts[paths]

    def ambiguity_of_class(self, stored: Entry, live: Entry) -> str:
        """Why a counter or hyperparameter may mean something else: its optimizer's class."""
        old, new = (
            _Optimizer(path := entry.name.rpartition("/")[0], side.optimizers.get(path, ""), set())
            for entry, side in zip((stored, live), self._sides, strict=True)
        )
        return _differ(old, new)

    @cached_property
    def _accumulating(self) -> list[set[str]]:
        return [_having(side, ACCUMULATED) for side in self._sides]

    @cached_property
    def _numbered(self) -> set[str]:
        """The paths of stored optimizers of which only numbers are known."""
        return _having(self._sides[0], "vars")

    def ambiguity_of_steps(self, stored: Entry, live: Entry) -> str:
        """Why a counter may count something else: Keras counts batches that accumulate."""
        paths = [entry.name.removesuffix("/iterations") for entry in (stored, live)]
        old, new = map(set.__contains__, self._accumulating, paths)
        if old == new or paths[0] in self._numbered:
            return ""
        counts = ("batches, of which several are one update", "updates")
        there, here = counts if old else counts[::-1]
        return f"counts {there} in the checkpoint, and {here} in the model"


@dataclasses.dataclass(slots=True)
class _Optimizer:
    """An optimizer: its path, its class if known, and its slots."""

    path: str
    name: str
    slots: set[str]


def _having(inventory: Inventory, word: str) -> set[str]:
    mark = f"/{word}/"
    return {name.partition(mark)[0] for name in inventory.entries if mark in name}


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
