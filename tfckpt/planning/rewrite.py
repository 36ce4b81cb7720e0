"""The plan for rewriting a checkpoint by a policy, and the inventory of the result.

A policy is about stored and live values, but a rewrite has no live ones. So the planner first runs
against an empty inventory, which gives the new name of each stored value; the plan of the rewrite
is then made against an inventory of those names. It reports unmatched rules, conflicts and statuses
like any other plan.

Structure is kept where it is still valid: a layer sequence whose values moved together gets its new
path, one whose values were scattered is dropped. Layers that were left out remain in a
sequence, because the other layers keep their positions.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING

from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.core.inventory import ATTRIBUTES, SEQUENCE, Inventory, Layer
from tfckpt.core.optimizer_names import slot_tail
from tfckpt.planning.checks.step import Status, is_save_counter
from tfckpt.planning.planner import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Container, Entry
    from tfckpt.planning.plan import Plan
    from tfckpt.policy import Policy

# Values that got a new name (no live value has it), and the save counter.
_ROUTED = (Status.UNEXPECTED, Status.LOADED)


def derive(policy: Policy, stored: Inventory, dtype_of: Callable[[Entry], str]) -> Plan:
    """The plan of a rewrite; the new entries are the live ones of its assignments.

    Values that the policy resets or keeps as configured are left out; ``dtype_of`` gives the new
    dtype of a value.

    >>> from tfckpt.policy import Policy
    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> old = {n: Entry(n, Role.WEIGHT, "float32", (2,), 8) for n in ("model/a/k", "model/b/k")}
    >>> policy = Policy(exclude=["model/b/**"], on_dtype_mismatch="cast")
    >>> plan = derive(policy, Inventory("", old), lambda entry: "float16")
    >>> [(step.status.value, step.name, step.entry.dtype) for step in plan.steps]
    [('CAST', 'model/a/k', 'float16'), ('EXCLUDED', '', 'float32')]
    """
    # Without live layers there are no positions to compare with.
    stored = Inventory(stored.source, stored.entries, aliases=stored.aliases)
    counters = {e.name: e for e in stored.entries.values() if is_save_counter(e)}
    routed = make_plan(policy, stored, Inventory("", counters)).steps
    targets: dict[str, list[str]] = {}
    for step in routed:
        new = step.target if step.status is Status.UNEXPECTED else step.name
        if new and step.stored is not None and step.status in _ROUTED:
            targets.setdefault(step.source, []).append(new)
    entries: dict[str, Entry] = {}
    for source, names in targets.items():
        old = stored.entries[source]
        for name in names:
            of = _variable(name, targets.get(old.of, [old.of]))
            entry = _typed(old, dtype_of(old))._replace(name=name, of=of)
            entries.setdefault(name, entry)
    return make_plan(policy, stored, Inventory("the result", entries))


def _typed(entry: Entry, dtype: str) -> Entry:
    """The entry of a value with this dtype, before it is written."""
    nbytes = entry.nbytes
    if dtype != entry.dtype and entry.shape is not None:
        nbytes = math.prod(entry.shape) * ITEM_BYTES.get(dtype, 0)
    return entry._replace(dtype=dtype, nbytes=nbytes, key="", crc32c=None)


def _variable(slot: str, variables: Sequence[str]) -> str:
    """Which of a variable's new names a slot belongs to, by the slot's new name."""
    matching = (name for name in variables if slot.endswith(slot_tail(name)))
    return next(matching, variables[0])


def structure(stored: Inventory, plan: Plan, entries: Iterable[Entry], source: str) -> Inventory:
    """The inventory of a rewritten checkpoint with the written ``entries``, at ``source``."""
    new = {entry.name: entry for entry in entries}
    moved = [(step.source, step.name) for step in plan.assignments]
    left_out = stored.entries.keys() - {old for old, _ in moved}
    paths = _Paths(stored.entries, moved)
    return Inventory(
        source,
        new,
        paths.containers(stored.containers),
        {
            alias: target
            for alias, path in stored.aliases.items()
            if (target := paths.of(path)) and alias not in new
        },
        {paths.of(path): name for path, name in stored.optimizers.items() if paths.of(path)},
        stored.complete and not left_out,
        {
            (new_path if new_path != root.component else keyword): dataclasses.replace(
                root, component=new_path
            )
            for keyword, root in stored.roots.items()
            if (new_path := paths.of(root.component))
        },
        dict(stored.left_out),
    )


class _Paths:
    """New paths: where the values below an old path went, if they stayed together."""

    def __init__(self, names: Iterable[str], moved: Iterable[tuple[str, str]]) -> None:
        self._before = {name[: m.start()] for name in names for m in re.finditer("/|$", name)}
        self._new_paths: dict[str, set[str]] = {}
        self._left: set[str] = set()
        for old, new in moved:
            end = len(old)
            while end > 0:
                path, tail = old[:end], old[end:]
                new_path = new[: len(new) - len(tail)] if new.endswith(tail) else ""
                self._new_paths.setdefault(path, set()).add(new_path)
                if new != path and not new.startswith(f"{path}/"):
                    self._left.add(path)
                end = old.rfind("/", 0, end)

    def of(self, path: str) -> str:
        """The new path; unchanged if values moved only below it, ``""`` if there is none."""
        new_paths = self._new_paths.get(path, set())
        if len(new_paths) == 1 and "" not in new_paths:
            return next(iter(new_paths))
        return path if new_paths and path not in self._left else ""

    def containers(self, old: Mapping[str, Container]) -> dict[str, Container]:
        found: dict[str, Container] = {}
        for path, held in old.items():
            if held.kind == ATTRIBUTES:
                stays = path if path not in self._before else self.of(path)
                for moved, layer in self._placed(path, held):
                    if head := moved or stays:
                        beside = found.get(head, held._replace(layers=())).layers
                        found[head] = held._replace(layers=(*beside, layer))
            else:
                found |= self._ordered(path, held)
        return found

    def _placed(self, path: str, held: Container) -> Iterator[tuple[str, Layer]]:
        """The new container of each layer, ``""`` if it was left out, and the layer in it."""
        for layer in held.layers:
            if f"{path}/{layer.place}" not in self._new_paths:  # left out
                yield "", layer
                continue
            head, _, place = self.of(f"{path}/{layer.place}").rpartition("/")
            if place != layer.place:
                layer = layer._replace(place=place)  # noqa: PLW2901
                if held.kind == SEQUENCE:
                    layer = Layer(place, place, False, True, layer.cls, -1, *layer[6:])  # noqa: PLW2901
            yield head, layer

    def _ordered(self, path: str, held: Container) -> dict[str, Container]:
        """The container at its new path; none if its layers went to several."""
        placed = [*self._placed(path, held)]
        known = [f"{path}/{layer.place}" in self._new_paths for layer in held.layers]
        heads = {head for (head, _), moved in zip(placed, known, strict=True) if moved}
        if not heads:  # its values have names of other paths, or are left out
            heads = {path if path not in self._before else self.of(path)}
        elif path in heads and "" not in heads:  # those that did not move are still in order
            heads = {path}
        kept = tuple(layer for head, layer in placed if not head or head in heads)
        places = {layer.place for layer in kept}
        if len(heads) == 1 and len(places) == len(kept) and "" not in heads | places:
            return {heads.pop(): held._replace(layers=kept)}
        return {}
