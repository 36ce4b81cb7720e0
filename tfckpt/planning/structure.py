"""Where names alone would lie: automatic layer names, and optimizers of another kind.

Keras numbers unnamed layers as it builds them, and restores functional and sequential models by
position. Take a ``Dense`` out of the middle and every following one receives its neighbour's
weights, of the right shape and without a word. So an automatic name is believed only where the
layers around it agree: the same number of that class on both sides, each between the same two
neighbours. Layers that the user named, and that one side alone has, are left out of the comparison;
replacing a head says nothing about the body.

Optimizer slots are matched by slot and variable, and believed only where both optimizers are of the
same class and keep the same slots: Adam's ``momentum`` is not SGD's.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from tfckpt.records import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfckpt.records import Entry, Inventory, Layer

TRUST_HINT = (
    "name the layers where the model is built; or `match: name` trusts the names, "
    "`match: structure` the positions"
)
SLOTS_HINT = "optimizer: {slots: reset} starts them anew; `match: name` takes them all the same"


def slot_path(entry: Entry) -> str:
    """The optimizer that a slot belongs to, ``""`` where its name does not tell.

    >>> from tfckpt.records import Entry, Role
    >>> slot_path(Entry("optimizer/momentum/a/kernel", Role.SLOT, "float32", (2,), slot="momentum",
    ...                 of="model/a/kernel"))
    'optimizer'
    """
    suffix = slot_suffix(entry.slot, entry.of)
    return entry.name[: -len(suffix)] if entry.of and entry.name.endswith(suffix) else ""


def slot_suffix(slot: str, of: str) -> str:
    """What follows the optimizer's path in the name of a slot.

    >>> slot_suffix("momentum", "model/a/kernel"), slot_suffix("momentum", "generator/a/kernel")
    ('/momentum/a/kernel', '/momentum/generator/a/kernel')
    """
    return f"/{slot}/{of.removeprefix('model/')}"


def suspect_layers(stored: Inventory, live: Inventory) -> dict[str, str]:
    """Path of each layer whose automatic name cannot be believed → why not."""
    found: dict[str, str] = {}
    for path in stored.stacks.keys() & live.stacks.keys():
        for layer, reason in _compare(path, stored.stacks[path], live.stacks[path]):
            found[f"{path}/{layer}" if path else layer] = reason
    return found


def _compare(path: str, there: Sequence[Layer], here: Sequence[Layer]) -> list[tuple[str, str]]:
    old, new = _reduce(there, here), _reduce(here, there)
    if [layer.name for layer in old] == [layer.name for layer in new]:
        return []
    old_at = {layer.name: index for index, layer in enumerate(old)}
    new_at = {layer.name: index for index, layer in enumerate(new)}
    old_count = Counter(layer.base for layer in old)
    new_count = Counter(layer.base for layer in new)
    doubtful = {
        base
        for base in old_count | new_count
        if base and (old_count[base] != new_count[base] or _displaced(base, old, new))
    }
    return [
        (layer.name, _reason(path, layer, (old, old_at), (new, new_at)))
        for layer in new
        if layer.name in old_at and {layer.base, old[old_at[layer.name]].base} & doubtful
    ]


def _reduce(layers: Sequence[Layer], others: Sequence[Layer]) -> list[Layer]:
    known = {layer.name for layer in others}
    return [layer for layer in layers if layer.base or layer.name in known]


def _displaced(base: str, old: Sequence[Layer], new: Sequence[Layer]) -> bool:
    return _neighbourhoods(base, old) != _neighbourhoods(base, new)


def _neighbourhoods(base: str, layers: Sequence[Layer]) -> dict[str, tuple[str, str]]:
    names = ["", *(layer.name for layer in layers), ""]
    return {
        layer.name: (names[index], names[index + 2])
        for index, layer in enumerate(layers)
        if layer.base == base
    }


def _reason(
    path: str,
    layer: Layer,
    stored: tuple[Sequence[Layer], Mapping[str, int]],
    live: tuple[Sequence[Layer], Mapping[str, int]],
) -> str:
    (old, old_at), (new, new_at) = stored, live
    position, named = new_at[layer.name], old_at[layer.name]
    text = f"{layer.name!r} is an automatic name, at position {position + 1} of {path!r} here"
    if position != named:
        there = repr(old[position].name) if position < len(old) else "nothing"
        return (
            f"{text}; in the checkpoint {there} stands at position {position + 1}, "
            f"and {layer.name!r} at position {named + 1}"
        )
    return (
        f"{text} and in the checkpoint, but the layers around differ: "
        f"{_around(new, position)} here, {_around(old, named)} in the checkpoint"
    )


def _around(layers: Sequence[Layer], position: int) -> str:
    """The layer with two neighbours on either side, which is as far as a report line carries."""
    shown = [layer.name for layer in layers[max(0, position - 2) : position + 3]]
    before = "… " if position > 2 else ""
    after = " …" if position + 3 < len(layers) else ""
    return f"[{before}{', '.join(shown)}{after}] ({len(layers)} in all)"


class Positions:
    """Stored name → live name where layers are matched by position, whatever they are called."""

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._at = {
            path: {layer.name: index for index, layer in enumerate(layers)}
            for path, layers in stored.stacks.items()
        }
        self._live = live.stacks

    def target(self, name: str) -> str | None:
        """The live name at the same position; None where the live model has no such position."""
        here = there = ""
        for component in name.split("/"):
            place = component
            if there in self._at and here in self._live:
                index = self._at[there].get(component)
                if index is not None:
                    if index >= len(self._live[here]):
                        return None
                    place = self._live[here][index].name
            there = f"{there}/{component}" if there else component
            here = f"{here}/{place}" if here else place
        return here


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    slots: frozenset[str]


class Optimizers:
    """Which pairs of optimizers keep state that means the same."""

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._stored = _kinds(stored)
        self._live = _kinds(live)
        self._verdicts: dict[tuple[str, str], str] = {}

    def doubt(self, stored: Entry, live: Entry) -> str:
        """Why a stored slot should not go into a live one, ``""`` where nothing speaks against."""
        pair = slot_path(stored), slot_path(live)
        if pair not in self._verdicts:
            self._verdicts[pair] = self._compare(*pair)
        return self._verdicts[pair]

    def _compare(self, there: str, here: str) -> str:
        old, new = self._stored.get(there), self._live.get(here)
        if old is None or new is None:
            return ""
        if old.name and new.name and old.name != new.name:
            return f"{here!r} is {new.name!r} here and {old.name!r} in the checkpoint"
        if old.slots != new.slots:
            return (
                f"{here!r} keeps {', '.join(sorted(new.slots))} here and "
                f"{', '.join(sorted(old.slots))} in the checkpoint"
            )
        return ""


def _kinds(inventory: Inventory) -> dict[str, _Kind]:
    slots: dict[str, set[str]] = {}
    for entry in inventory.entries.values():
        if entry.role is Role.SLOT:
            slots.setdefault(slot_path(entry), set()).add(entry.slot)
    return {
        path: _Kind(inventory.optimizers.get(path, ""), frozenset(slots.get(path, ())))
        for path in {*inventory.optimizers, *slots}
        if path
    }
