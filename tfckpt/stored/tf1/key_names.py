"""Canonical names for values of which only keys are known: TF1's, and a SavedModel's without graph.

``dense/kernel`` is ``model/dense/kernel``, and ``dense/kernel/Adam`` the slot ``momentum`` of it.
The step that TF1 counted, ``global_step``, is the optimizer's ``iterations``. Several optimizers in
one file stand below ``optimizer`` by their classes: ``optimizer/ftrl/linear/…``.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.core.names import MODEL, OPTIMIZER
from tfckpt.core.optimizer_names import optimizer_value
from tfckpt.stored.tf1.key_layers import DEEPEST, KeyLayers
from tfckpt.stored.tf1.key_slots import SlotKey, Solver, class_of, find_slots

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Root, Shape

GLOBAL_STEP = "global_step"
_POWER = re.compile(r"beta[12]_power(?:_(?P<number>[0-9]{1,4}))?")
# What a scope named after an optimizer holds if it is one's.
_OWN = ("iter", "iterations", "learning_rate", "lr", "decay")


class ListedValue(Protocol):
    """What a file says of one value."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def crc32c(self) -> int | None: ...


class _Meaning(NamedTuple):
    """What a key stands for."""

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
    """The inventory of a file whose values have keys and no graph.

    Args:
        source: the file, for messages.
        values: key → what the file says of it.
        roots: what the live side was given, by keyword. Where that is no model, a variable's key
            is its name.
        bases: automatic layer names of the live side's own classes.
    """
    keys = _names(values)
    given = list((roots or {}).values())
    kinds = Counter(root.kind for root in given)
    shapes = {name: values[key].shape for name, key in keys.items()}
    if roots is not None and not kinds[MODEL] and not kinds[OPTIMIZER]:
        meanings = {name: _Meaning(name, Role.WEIGHT) for name in keys}
        return Inventory(source, _entries(meanings, keys, values))
    state = _State(shapes)
    own = [name for name in keys if name not in state.slots and name not in state.scalars]
    if roots is not None and not kinds[MODEL]:
        variables, sequences = {name: name for name in own}, {}
    else:
        layers = KeyLayers(own, bases)
        apart = {root.component for root in given} if kinds[MODEL] > 1 else set()
        variables = {name: _rooted(layers.rename(name), apart) for name in own}
        sequences = {_rooted(path, apart): found for path, found in layers.sequences.items()}
    meanings = {name: _Meaning(full, Role.WEIGHT) for name, full in variables.items()}
    meanings.update(state.meanings(variables))
    return Inventory(
        source,
        _entries(meanings, keys, values),
        sequences,
        optimizers={path: solver.label for solver, path in state.paths.items()},
        unordered=frozenset(sequences),
    )


def _rooted(path: str, apart: Collection[str]) -> str:
    """A path below the model, unless it begins with one of several live objects."""
    return path if path.partition("/")[0] in apart else f"{MODEL}/{path}".rstrip("/")


def _names(values: Mapping[str, ListedValue]) -> dict[str, str]:
    """Variable's name → key; a tensor's name, with ``:0``, is that of the variable."""
    names = {}
    for key in values:
        name = key.removesuffix(":0")
        names[key if not name or (name != key and name in values) else name] = key
    return names


def _entries(
    meanings: Mapping[str, _Meaning], keys: Mapping[str, str], values: Mapping[str, ListedValue]
) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for name, key in keys.items():
        full, role, slot, of = meanings[name]
        free, number = full, 2
        while free in entries:
            free, number = f"{full}~{number}", number + 1
        found = values[key]
        entries[free] = Entry(
            free, role, found.dtype, found.shape, found.nbytes, key, slot, of, found.crc32c
        )
    return entries


class _State:
    """The optimizers' part of the keys.

    Attributes:
        slots: name → the slot that it is.
        scalars: name → the optimizer it belongs to, None for nobody's in particular, and what it is
            called there.
        paths: optimizer → canonical path.
    """

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self.slots: Mapping[str, SlotKey] = find_slots(shapes)
        found = {slot.solver for slot in self.slots.values() if slot.solver is not None}
        scopes = self._scopes({solver.scope: solver for solver in sorted(found, reverse=True)})
        solvers = sorted(found | set(scopes.values()))
        self.paths: Mapping[Solver, str] = _paths(solvers)
        self.scalars: Mapping[str, tuple[Solver | None, str]] = dict(self._own(solvers, scopes))

    def meanings(self, variables: Mapping[str, str]) -> Iterator[tuple[str, _Meaning]]:
        """Name → what it is, given the canonical names of the variables."""
        for name, slot in self.slots.items():
            path = OPTIMIZER if slot.solver is None else self.paths[slot.solver]
            of = variables[slot.of]
            full = f"{path}/{slot.slot}/{of.removeprefix(MODEL + '/')}"
            yield name, _Meaning(full, Role.SLOT, slot.slot, of)
        for name, (solver, word) in self.scalars.items():
            path = OPTIMIZER if solver is None else self.paths[solver]
            value, role = optimizer_value(word)
            yield name, _Meaning(f"{path}/{value}", role)

    def _scopes(self, known: Mapping[str, Solver]) -> dict[str, Solver]:
        """Scopes that are named after an optimizer and hold what is one's → that optimizer."""
        found = {}
        for name, shape in self._shapes.items():
            scope, _, last = name.rpartition("/")
            label = class_of(scope.rpartition("/")[2]) if last in _OWN and not shape else None
            if label is not None:
                found[scope] = known.get(scope, Solver(scope, label))
        return found

    def _own(
        self, solvers: Sequence[Solver], scopes: Mapping[str, Solver]
    ) -> Iterator[tuple[str, tuple[Solver | None, str]]]:
        counted = set()
        for name in self._shapes:
            if name in self.slots:
                continue
            head, _, last = name.rpartition("/")
            if match := _POWER.fullmatch(last):
                yield name, (_whose(head, int(match["number"] or 0), solvers), last)
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


def _whose(scope: str, number: int, solvers: Sequence[Solver]) -> Solver | None:
    """Whose powers of beta stand in a scope: those of its optimizer, else of the only one."""
    fitting = [one for one in solvers if one.scope == scope] or solvers
    numbered = [one for one in fitting if one.number == number] or fitting
    return numbered[0] if len(numbered) == 1 else None


def _paths(solvers: Sequence[Solver]) -> dict[Solver, str]:
    """Canonical path of each optimizer: ``optimizer`` alone, else by class, else by scope."""
    if len(solvers) == 1:
        return {solvers[0]: OPTIMIZER}
    labels = Counter(solver.label for solver in solvers)
    scopes = Counter(solver.scope for solver in solvers)
    found: dict[Solver, str] = {}
    for place, one in enumerate(solvers):
        if one.label and labels[one.label] == 1:
            word = one.label
        elif one.scope and scopes[one.scope] == 1:
            word = one.scope
        else:
            word = f"{one.label or OPTIMIZER}_{place}"
        found[one] = f"{OPTIMIZER}/{word}"
    return found
