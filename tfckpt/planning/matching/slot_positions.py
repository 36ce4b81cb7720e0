"""Names slots that a file identifies only by position after their variables.

tf_keras stores slots in lists, and names them after their variables, ``Adam/m/kernel``. Slots of
variables without names are all called ``Adam/m/Variable``; then only the order of the optimizer's
variables identifies them. It is used if the model's optimizer has equally many variables, slots
with names are at the indices of their variables, and all shapes agree.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfckpt.core.inventory import Entry, Inventory

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
