"""Canonical names of values without an object graph, from their keys: TF1's, for example.

``dense/kernel`` is ``model/dense/kernel``, and ``dense/kernel/Adam`` is its slot ``momentum``.
TF1's ``global_step`` is the optimizer's ``iterations``. Several optimizers in one file are below
``optimizer`` by class: ``optimizer/ftrl/linear/…``.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.core.names import MODEL, OPTIMIZER
from tfckpt.core.optimizer_names import optimizer_value, slot_tail
from tfckpt.core.text import free_name
from tfckpt.stored.formats.tf1_layers import DEEPEST, KeyLayers
from tfckpt.stored.formats.tf1_slots import SlotKey, Solver, class_of, find_slots

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Root, Shape

GLOBAL_STEP = "global_step"
_POWER = re.compile(r"beta[12]_power(?:_(?P<number>[0-9]{1,4}))?")
# Values that show that a scope named after an optimizer belongs to one.
_OWN = ("iter", "iterations", "learning_rate", "lr", "decay")


class ListedValue(Protocol):
    """Metadata of a value in a file."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def crc32c(self) -> int | None: ...


class _Meaning(NamedTuple):
    """The canonical name and role of a key's value."""

    name: str
    role: Role
    slot: str = ""
    of: str = ""


def name_keys(
    source: str,
    values: Mapping[str, ListedValue],
    roots: Mapping[str, Root] | None = None,
    bases: Collection[str] = (),
) -> Inventory:
    """The inventory of a file whose values have keys and no graph."""
    keys = _names(values)
    live_roots = list((roots or {}).values())
    kinds = Counter(root.kind for root in live_roots)
    shapes = {name: values[key].shape for name, key in keys.items()}
    if roots is not None and not kinds[MODEL] and not kinds[OPTIMIZER]:
        meanings = {name: _Meaning(name, Role.WEIGHT) for name in keys}
        return Inventory(source, _entries(meanings, keys, values))
    state = _State(shapes)
    own = [name for name in keys if name not in state.slots and name not in state.scalars]
    if roots is not None and not kinds[MODEL]:
        variables, containers = {name: name for name in own}, {}
    else:
        layers = KeyLayers(own, bases)
        apart = {root.component for root in live_roots} if kinds[MODEL] > 1 else set()
        variables = {name: _rooted(layers.rename(name), apart) for name in own}
        containers = {_rooted(path, apart): held for path, held in layers.containers.items()}
    meanings = {name: _Meaning(full, Role.WEIGHT) for name, full in variables.items()}
    meanings.update(state.meanings(variables))
    return Inventory(
        source,
        _entries(meanings, keys, values),
        containers,
        optimizers={path: solver.label for solver, path in state.paths.items()},
    )


def _rooted(path: str, apart: Collection[str]) -> str:
    """The path below ``model``, unless it begins with the name of one of several live objects."""
    return path if path.partition("/")[0] in apart else f"{MODEL}/{path}".rstrip("/")


def _names(values: Mapping[str, ListedValue]) -> dict[str, str]:
    """Variable's name → key; ``:0`` ends a tensor's name, ``/part_0`` that of an only part."""
    names: dict[str, str] = {}
    for key in values:
        name = key.removesuffix(":0")
        if key.replace("/part_0", "/part_1") not in values:
            name = re.sub(r"/part_0(?=/|\Z)", "", name)
        names[key if not name or (name != key and (name in values or name in names)) else name] = (
            key
        )
    return names


def _entries(
    meanings: Mapping[str, _Meaning], keys: Mapping[str, str], values: Mapping[str, ListedValue]
) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for name, key in keys.items():
        full, role, slot, of = meanings[name]
        unique = free_name(full, entries.__contains__)
        stored = values[key]
        entries[unique] = Entry(
            unique, role, stored.dtype, stored.shape, stored.nbytes, key, slot, of, stored.crc32c
        )
    return entries


class _State:
    """The optimizer state among the keys.

    Attributes:
        slots: name → slot.
        scalars: name → its optimizer (None if unknown), and its name in the optimizer.
        paths: optimizer → canonical path.
    """

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self.slots: Mapping[str, SlotKey] = find_slots(shapes)
        with_slots = {slot.solver for slot in self.slots.values() if slot.solver is not None}
        scopes = self._scopes({solver.scope: solver for solver in sorted(with_slots, reverse=True)})
        solvers = sorted(with_slots | set(scopes.values()))
        self.paths: Mapping[Solver, str] = _paths(solvers)
        self.scalars: Mapping[str, tuple[Solver | None, str]] = dict(self._own(solvers, scopes))

    def meanings(self, variables: Mapping[str, str]) -> Iterator[tuple[str, _Meaning]]:
        """``(name, meaning)`` of all optimizer state, for the variables' canonical names."""
        for name, slot in self.slots.items():
            path = OPTIMIZER if slot.solver is None else self.paths[slot.solver]
            of = variables[slot.of]
            full = f"{path}/{slot.slot}{slot_tail(of)}"
            yield name, _Meaning(full, Role.SLOT, slot.slot, of)
        for name, (solver, word) in self.scalars.items():
            path = OPTIMIZER if solver is None else self.paths[solver]
            value, role = optimizer_value(word)
            yield name, _Meaning(f"{path}/{value}", role)

    def _scopes(self, by_scope: Mapping[str, Solver]) -> dict[str, Solver]:
        """Scopes that are named after an optimizer and have an optimizer's values → optimizer."""
        scopes = {}
        for name, shape in self._shapes.items():
            scope, _, last = name.rpartition("/")
            label = class_of(scope.rpartition("/")[2]) if last in _OWN and not shape else None
            if label is not None:
                scopes[scope] = by_scope.get(scope, Solver(scope, label))
        return scopes

    def _own(
        self, solvers: Sequence[Solver], scopes: Mapping[str, Solver]
    ) -> Iterator[tuple[str, tuple[Solver | None, str]]]:
        counted = set()
        for name in self._shapes:
            if name in self.slots:
                continue
            head, _, last = name.rpartition("/")
            if match := _POWER.fullmatch(last):
                yield name, (_beta_optimizer(head, int(match["number"] or 0), solvers), last)
                continue
            scope = next((s for s in _above(name) if s in scopes), None)
            if scope is not None:
                word = name.removeprefix(f"{scope}/")
                if optimizer_value(word)[1] is Role.ITERATIONS:
                    counted.add(scopes[scope])
                yield name, (scopes[scope], word)
        if GLOBAL_STEP in self._shapes and GLOBAL_STEP not in self.slots:
            alone = solvers[0] if len(solvers) == 1 else None
            word = GLOBAL_STEP if alone in counted else "iterations"
            yield GLOBAL_STEP, (alone, word)


def _above(name: str) -> Iterator[str]:
    while "/" in name and name.count("/") <= DEEPEST:
        name = name.rpartition("/")[0]
        yield name


def _beta_optimizer(scope: str, number: int, solvers: Sequence[Solver]) -> Solver | None:
    """The optimizer of the powers of beta in a scope: the scope's own, else the only one."""
    candidates = [solver for solver in solvers if solver.scope == scope] or solvers
    numbered = [solver for solver in candidates if solver.number == number] or candidates
    return numbered[0] if len(numbered) == 1 else None


def _paths(solvers: Sequence[Solver]) -> dict[Solver, str]:
    """Canonical paths: ``optimizer`` if there is only one, else by class, else by scope."""
    if len(solvers) == 1:
        return {solvers[0]: OPTIMIZER}
    labels = Counter(solver.label for solver in solvers)
    scopes = Counter(solver.scope for solver in solvers)
    paths: dict[Solver, str] = {}
    for index, solver in enumerate(solvers):
        if solver.label and labels[solver.label] == 1:
            word = solver.label
        elif solver.scope and scopes[solver.scope] == 1:
            word = solver.scope
        else:
            word = f"{solver.label or OPTIMIZER}_{index}"
        paths[solver] = f"{OPTIMIZER}/{word}"
    return paths
