"""Checks whether slots with equal names come from the same kind of optimizer.

Slots are matched by slot and variable, and trusted only if both optimizers have the same class and
the same slots: Adam's ``momentum`` is not SGD's.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import slot_head

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry, Inventory

SETTING_HINT = (
    "optimizer: {hyperparameters: config} keeps the value from your code; match: name restores it "
    "anyway"
)
SLOTS_HINT = "optimizer: {slots: reset} resets them; match: name restores them anyway"


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

    def ambiguity_of_setting(self, stored: Entry, live: Entry) -> str:
        """Why a hyperparameter may have another meaning in the model: its optimizer's class."""
        paths = (entry.name.rpartition("/")[0] for entry in (stored, live))
        old, new = (
            _Optimizer(path, classes.get(path, ""), set())
            for path, classes in zip(paths, self._classes, strict=True)
        )
        return _differ(old, new)


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
    owners = {}
    for entry in inventory.entries.values():
        if entry.role is Role.SLOT:
            path = slot_head(entry).removesuffix(f"/{entry.slot}")
            if (owner := by_path.get(path)) is None:
                name = inventory.optimizers.get(path, "")
                owner = by_path[path] = _Optimizer(path, name, set())
            if entry.slot != "moving_average":  # any optimizer may have it
                owner.slots.add(entry.slot)
            owners[entry.name] = owner
    return owners


def _differ(old: _Optimizer, new: _Optimizer) -> str:
    if old.name and new.name and old.name != new.name:
        return f"{new.path!r} is {new.name!r} in the model and {old.name!r} in the checkpoint"
    if old.slots != new.slots:
        live, stored = (", ".join(sorted(each.slots)) or "no slots" for each in (new, old))
        return f"{new.path!r} keeps {live} in the model and {stored} in the checkpoint"
    return ""
