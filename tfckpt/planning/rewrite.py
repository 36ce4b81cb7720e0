"""What a checkpoint becomes when it is rewritten by a policy: an inventory made of another.

A policy speaks of stored and of live values. A rewrite has no live side; what the policy selects
and renames *is* the other side. So the planner routes the stored values against nothing, which
tells their new names, and an inventory of these is then what the plan of the rewrite is made
against: with its rules that met nothing, its clashes and its statuses, like any other.

The structure goes along as far as it is still true: a stack whose values moved together is the
same stack in its new place, one whose values were scattered is none. Layers that were left out
stay in it, since the others are still where they were.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Inventory
from tfckpt.planning.checks.completeness import is_save_counter
from tfckpt.planning.checks.step import Status
from tfckpt.planning.matching.structure import slot_tail
from tfckpt.planning.planner import make_plan
from tfckpt.stored.bundles.index import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfckpt.core.inventory import Entry, Layer
    from tfckpt.planning.plan import Plan
    from tfckpt.policy import Policy

# What nothing here answers to, with the name that it was meant for; and the save counter.
_ROUTED = (Status.UNEXPECTED, Status.LOADED)


def derive(policy: Policy, stored: Inventory, dtype_of: Callable[[Entry], str]) -> Plan:
    """The plan of a rewrite; the new entries are the live ones of its assignments.

    Args:
        policy: selects and renames; what it resets or keeps as configured is left out.
        stored: what is rewritten.
        dtype_of: the dtype that a value is to have.

    >>> from tfckpt.policy import Policy
    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> old = {n: Entry(n, Role.WEIGHT, "float32", (2,), 8) for n in ("model/a/k", "model/b/k")}
    >>> policy = Policy(exclude=["model/b/**"], on_dtype_mismatch="cast")
    >>> plan = derive(policy, Inventory("here", old), lambda entry: "float16")
    >>> [(step.status.value, step.name, step.entry.dtype) for step in plan.steps]
    [('CAST', 'model/a/k', 'float16'), ('EXCLUDED', '', 'float32')]
    """
    # There is no other side whose layers could stand in another order.
    stored = Inventory(stored.source, stored.entries, aliases=stored.aliases)
    counters = {e.name: e for e in stored.entries.values() if is_save_counter(e)}
    routed = make_plan(policy, stored, Inventory("", counters)).steps
    targets: dict[str, list[str]] = {}
    for step in routed:
        new = step.target if step.status is Status.UNEXPECTED else step.name
        if new and step.stored is not None and step.status in _ROUTED:
            targets.setdefault(step.source, []).append(new)
    entries: dict[str, Entry] = {}
    for source, found in targets.items():
        old = stored.entries[source]
        for name in found:
            of = _variable(name, targets.get(old.of, [old.of]))
            entry = _typed(old, dtype_of(old))._replace(name=name, of=of)
            entries.setdefault(name, entry)
    return make_plan(policy, stored, Inventory("the result", entries))


def _typed(entry: Entry, dtype: str) -> Entry:
    """A value that is not written yet, of this type."""
    nbytes = entry.nbytes
    if dtype != entry.dtype and entry.shape is not None:
        nbytes = math.prod(entry.shape) * ITEM_BYTES.get(dtype, 0)
    return entry._replace(dtype=dtype, nbytes=nbytes, key="", crc32c=None)


def _variable(slot: str, variables: Sequence[str]) -> str:
    """Which of the variables that one was renamed to a slot belongs to, by its new name."""
    fitting = (name for name in variables if slot.endswith(slot_tail(name)))
    return next(fitting, variables[0])


def structure(stored: Inventory, plan: Plan, entries: Iterable[Entry], source: str) -> Inventory:
    """The inventory of what a rewrite made.

    Args:
        stored: what was rewritten.
        plan: by which.
        entries: the new values, as they were written.
        source: where.
    """
    new = {entry.name: entry for entry in entries}
    moved = [(step.source, step.name) for step in plan.assignments]
    left_out = stored.entries.keys() - {old for old, _ in moved}
    paths = _Paths(stored.entries, moved)
    return Inventory(
        source,
        new,
        paths.sequences(stored.sequences),
        {
            alias: target
            for alias, path in stored.aliases.items()
            if (target := paths.of(path)) and alias not in new
        },
        {paths.of(path): name for path, name in stored.optimizers.items() if paths.of(path)},
        stored.complete and not left_out,
        {
            (place if place != root.component else keyword): dataclasses.replace(
                root, component=place
            )
            for keyword, root in stored.roots.items()
            if (place := paths.of(root.component))
        },
        dict(stored.left_out),
        labels={place: n for path, n in stored.labels.items() if (place := paths.of(path))},
    )


class _Paths:
    """Where what stood below a path went, if all of it went to one place."""

    def __init__(self, names: Iterable[str], moved: Iterable[tuple[str, str]]) -> None:
        self._before = {name[: m.start()] for name in names for m in re.finditer("/|$", name)}
        self._places: dict[str, set[str]] = {}
        self._left: set[str] = set()
        for old, new in moved:
            end = len(old)
            while end > 0:
                path, tail = old[:end], old[end:]
                place = new[: len(new) - len(tail)] if new.endswith(tail) else ""
                self._places.setdefault(path, set()).add(place)
                if new != path and not new.startswith(f"{path}/"):
                    self._left.add(path)
                end = old.rfind("/", 0, end)

    def of(self, path: str) -> str:
        """The new path; the same one where values moved below it, ``""`` where there is none."""
        places = self._places.get(path, set())
        if len(places) == 1 and "" not in places:
            return next(iter(places))
        return path if places and path not in self._left else ""

    def sequences(self, old: Mapping[str, tuple[Layer, ...]]) -> dict[str, tuple[Layer, ...]]:
        found = {}
        for path, layers in old.items():
            heads, renamed = set(), []
            for layer in layers:
                if f"{path}/{layer.name}" not in self._places:  # left out
                    renamed.append(layer)
                    continue
                head, _, name = self.of(f"{path}/{layer.name}").rpartition("/")
                heads.add(head)
                same = name == layer.name
                renamed.append(layer if same else dataclasses.replace(layer, name=name, base=""))
            if not heads:  # its values have names of other paths, or are left out
                heads = {path if path not in self._before else self.of(path)}
            names = {layer.name for layer in renamed}
            if len(heads) == 1 and len(names) == len(renamed) and "" not in heads | names:
                found[heads.pop()] = tuple(renamed)
        return found
