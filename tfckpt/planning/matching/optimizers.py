"""Checks whether slots with equal names come from the same kind of optimizer.

Slots are matched by slot and variable, and trusted only if both optimizers have the same class and
the same slots: Adam's ``momentum`` is not SGD's.

tf_keras stores slots in lists, and names them after their variables, ``Adam/m/kernel``. Slots of
variables without names are all called ``Adam/m/Variable``; then only the order of the optimizer's
variables identifies them. It is used if the model's optimizer has equally many variables, slots
with names are at the indices of their variables, and all shapes agree.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.optimizer_names import slot_head

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
                if slot != "moving_average":  # any optimizer may have it
                    owner.slots.add(slot)
            owners[entry.name] = owner
    return owners


def _differ(old: _Optimizer, new: _Optimizer) -> str:
    if old.name and new.name and old.name != new.name:
        return f"{new.path!r} is {new.name!r} in the model and {old.name!r} in the checkpoint"
    if old.slots != new.slots:
        live, stored = (", ".join(sorted(each.slots)) or "no slots" for each in (new, old))
        return f"{new.path!r} keeps {live} in the model and {stored} in the checkpoint"
    return ""


_NUMBER = re.compile(r"[0-9]{1,9}")


def name_slots_by_position(
    stored: Inventory, live: Inventory, trained: Mapping[str, Sequence[str]]
) -> Inventory:
    """The stored inventory with numbered slots renamed to the live ones.

    ``trained``: path of a live optimizer → its variables, in its order.

    >>> from tfckpt.core.inventory import Entry, Inventory
    >>> def inventory(*entries):
    ...     return Inventory("", {entry.name: entry for entry in entries})
    >>> slot = Entry("optimizer/momentum/0", Role.SLOT, "float32", (2,), slot="momentum", of="0")
    >>> meant = slot._replace(name="optimizer/momentum/w", of="module/w")
    >>> stored, live = inventory(slot), inventory(meant)
    >>> list(name_slots_by_position(stored, live, {"optimizer": ["module/w"]}).entries)
    ['optimizer/momentum/w']
    """
    names: dict[str, Entry] = {}
    for path, variables in trained.items():
        stored_slots, live_slots = (_slots(side.entries.values(), path) for side in (stored, live))
        for slot, entries in stored_slots.items():
            names.update(_match_slots(entries, live_slots.get(slot, ()), variables))
    if not names:
        return stored
    moved = (
        entry._replace(name=meant.name, of=meant.of) if (meant := names.get(entry.name)) else entry
        for entry in stored.entries.values()
    )
    return dataclasses.replace(stored, entries={entry.name: entry for entry in moved})


def _slots(entries: Iterable[Entry], path: str) -> dict[str, list[Entry]]:
    by_slot: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.role is Role.SLOT and entry.name.startswith(f"{path}/"):
            by_slot.setdefault(entry.slot, []).append(entry)
    return by_slot


def _match_slots(
    stored: Sequence[Entry], live: Iterable[Entry], variables: Sequence[str]
) -> dict[str, Entry]:
    """Name of a numbered stored slot → the live slot at its position."""
    by_variable = {entry.of: entry for entry in live}
    numbered = {int(entry.of): entry for entry in stored if is_numbered(entry)}
    named = {entry.of for entry in stored if not is_numbered(entry)}
    others = {name for index, name in enumerate(variables) if index not in numbered}
    if not numbered or named != others or len(stored) != len(variables):
        return {}
    meant = {
        index: by_variable.get(variables[index]) for index in numbered if index < len(variables)
    }
    matches = {entry.name: meant.get(index) for index, entry in numbered.items()}
    agree = (
        live is not None and live.shape == entry.shape
        for entry, live in ((entry, matches[entry.name]) for entry in numbered.values())
    )
    return {name: live for name, live in matches.items() if live is not None} if all(agree) else {}


def is_numbered(entry: Entry) -> bool:
    """Whether a slot's variable is a number: the file identifies it only by position."""
    return entry.role is Role.SLOT and _NUMBER.fullmatch(entry.of) is not None
