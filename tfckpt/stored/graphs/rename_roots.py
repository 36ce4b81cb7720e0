"""Renames a recorded inventory so that the same keyword is the same object as in the program.

A lone model is ``model`` whatever its keyword, so the first component of a name depends on what
else is saved. A model saved alone as ``teacher=`` must not be restored into the student of a
program that has both; an encoder saved with a decoder is still the encoder when it is restored
alone. So where the objects of the checkpoint and of the program differ, stored names change: a
common keyword decides, and a lone model corresponds to a lone model under any keyword. A stored
object that would land on a live model or optimizer of another keyword gets its own keyword in
front, or the name `model~2`, which no live object has.

The keywords in a checkpoint of plain TensorFlow are read by :mod:`tfckpt.stored.graphs.reader`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.core.inventory import rebased
from tfckpt.core.names import METRICS, MODEL, OPTIMIZER, SEED
from tfckpt.core.optimizer_names import slot_tail
from tfckpt.core.text import free_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.core.inventory import Entry, Inventory, Root


def moved_to(inventory: Inventory, live: Mapping[str, Root]) -> Inventory:
    """The inventory, renamed to the components that the same live objects have.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role, Root
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2,))
    >>> lone = Inventory("", {kernel.name: kernel}, roots={"teacher": Root("model", "model")})
    >>> both = {name: Root(name, "model") for name in ("student", "teacher")}
    >>> list(moved_to(lone, both).entries)
    ['teacher/a/kernel']
    """
    targets = _targets(inventory, live)
    if all(old == new for old, new in targets.items()):
        return inventory
    return Move(inventory, _heads(inventory, targets)).done()


def _targets(inventory: Inventory, live: Mapping[str, Root]) -> dict[str, str]:
    """Stored first component, or path of an attribute of the root object → its new name."""
    stored, taken = inventory.roots, {root.component for root in live.values()}
    targets = _parts_of_root(inventory, live)
    # Common keywords come first: the others must not take their names.
    for keyword, root in sorted(stored.items(), key=lambda item: item[0] not in live):
        if keyword in live and live[keyword].component:
            targets[root.component] = live[keyword].component
            continue
        target = root.component
        several = sum(other.kind == root.kind for other in live.values()) > 1
        if keyword and root.kind and several:
            target = keyword
        if target in targets.values():
            target = free_name(target, (taken | set(targets.values())).__contains__)
        targets.setdefault(root.component, target)
    return targets


def _parts_of_root(inventory: Inventory, live: Mapping[str, Root]) -> dict[str, str]:
    """Attributes of the stored root object that are the live objects of the same keyword."""
    root, targets = inventory.roots.get(""), dict[str, str]()
    if root is None or "" in live:
        return targets
    for keyword in live.keys() - inventory.roots.keys():
        path = f"{root.component}/{keyword}"
        path = rebased(path, inventory.aliases) or path
        part, whole = (_below(inventory, each) for each in (path, root.component))
        live_parts = live[keyword].parts
        if (
            live[keyword].component
            and live_parts & part
            and len(live_parts & part) >= len(live_parts & whole)
        ):
            targets[path] = live[keyword].component
    return targets


def _below(inventory: Inventory, path: str) -> set[str]:
    """The next component of the names below a path."""
    start = path + "/"
    names = (name for name in inventory.entries if name.startswith(start))
    return {name[len(start) :].partition("/")[0] for name in names}


def _heads(inventory: Inventory, targets: Mapping[str, str]) -> dict[str, str]:
    kinds = {root.component: root.kind for root in inventory.roots.values()}
    heads: dict[str, str] = {}
    for old, new in targets.items():
        heads[old] = new
        if old == new or kinds.get(old) != MODEL:
            continue
        # These are at the top for a lone model, and below the model if there are several.
        owned = [SEED, METRICS]
        if OPTIMIZER not in (targets if old == MODEL else targets.values()):
            owned.append(OPTIMIZER)
        for component in owned:
            stored = component if old == MODEL else f"{old}/{component}"
            heads[stored] = component if new == MODEL else f"{new}/{component}"
    return heads


class Move:
    """Renames the prefixes of all names of an inventory at once: ``heads`` maps old → new."""

    def __init__(self, inventory: Inventory, heads: Mapping[str, str]) -> None:
        self._inventory = inventory
        self._heads = heads

    def done(self) -> Inventory:
        inventory, name = self._inventory, self._name
        entries: dict[str, Entry] = {}
        for entry in map(self._entry, inventory.entries.values()):
            free = free_name(entry.name, entries.__contains__)
            entries[free] = entry._replace(name=free)
        return dataclasses.replace(
            inventory,
            entries=entries,
            containers={name(path): held for path, held in inventory.containers.items()},
            aliases={name(path): name(target) for path, target in inventory.aliases.items()},
            optimizers={name(path): label for path, label in inventory.optimizers.items()},
            roots={
                keyword: dataclasses.replace(root, component=name(root.component))
                for keyword, root in inventory.roots.items()
            },
            private=inventory.private
            and {name(path): edge for path, edge in inventory.private.items()},
            left_out={name(path): reason for path, reason in inventory.left_out.items()},
        )

    def _name(self, name: str) -> str:
        moved = rebased(name, self._heads)
        return name if moved is None else moved

    def _entry(self, entry: Entry) -> Entry:
        if not entry.of:
            return entry._replace(name=self._name(entry.name))
        of = self._name(entry.of)
        # `~2` where two have the name
        head, _, repeated = entry.name.rpartition(slot_tail(entry.of))
        if not head.endswith(f"/{entry.slot}"):
            return entry._replace(name=self._name(entry.name), of=of)
        return entry._replace(name=self._name(head) + slot_tail(of) + repeated, of=of)
