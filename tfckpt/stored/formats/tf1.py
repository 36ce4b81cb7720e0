"""Canonical names of values without an object graph, from their keys: TF1's, for example.

``dense/kernel`` is ``model/dense/kernel``. TF1 and Keras number layers without a name within the
whole graph or process: ``dense_4`` may be a model's first one. So the layers of a class are
renumbered in each scope, in the order of their numbers. Their order among layers of other classes
is unknown. Layers inside Keras's own layers are named by attribute, ``lstm/cell/kernel``, not by
the scopes that they opened, ``lstm_1/lstm_cell_3/kernel``.

No optimizer of Keras continues one of TF1, or of Keras in graph mode: their values are recognized,
``optimizer/tf1/dense/kernel/Adam``, so that a restore can say that they stay in the file. Moving
averages are weights, whoever made them: ``optimizer/moving_average/dense/kernel``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tfckpt.core.inventory import (
    SEQUENCE,
    Container,
    Entry,
    Inventory,
    Layer,
    Role,
    name_number,
    weak_base,
)
from tfckpt.core.names import MODEL, OPTIMIZER
from tfckpt.core.optimizer_names import AVERAGE, OF_TF1, optimizer_value, slot_tail
from tfckpt.core.text import free_name
from tfckpt.stored.formats.keras_layers import KERAS_BASES, PROJECTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tfckpt.core.inventory import Root, Shape

# No writer nests deeper; a deeper key is not interpreted.
_DEEPEST = 64

# Users choose these names for scopes; they are not automatic layer names.
_BASES = KERAS_BASES - {"activation", "functional", "model"}
_CELL = re.compile(r"(?:lstm|gru|simple_rnn)_cell(?:_[0-9]+)?")
# The last part of a slot's key, after its variable: tensorflow/python/training/slot_creator.py,
# tensor2tensor, and what users call their own, ``LazyAdam``.
_OPTIMIZER = (
    r"(?i:[^/]*(?:adam|momentum|rmsprop|adagrad|optimizer)[^/]*"
    r"|(?:adadelta|adafactor|ftrl|lamb|lars|sgd)(?:_[0-9]+)?)"
)
_SLOT = re.compile(rf"{_OPTIMIZER}|(?:adam|lamb)_[mv]")  # the second one is BERT's
_AVERAGE = re.compile(r"(?i)(?:exponential_?moving_?average|ema|(?:moving_?)?average)(?:_[0-9]+)?")
_OF_MESH = re.compile(r"(?P<of>.+)_slot_(?:vr|vc|v|m)", re.DOTALL)
_OF_PART = re.compile(r"/t_[0-9]{1,4}\Z")  # of a partitioned variable: dense/kernel/t_0/Adagrad
# Keras's slots in graph mode, ``training/Adam/dense/kernel/m``, later ``Adam/m/dense/kernel``.
_WORDS = frozenset(
    {"m", "v", "u", "vhat", "rms", "mg", "momentum", "velocity"}
    | {"accumulator", "linear", "accum_grad", "accum_var"}
)
_COUNTER = re.compile(r"(?:.*/)?(?:global_step|beta[12]_power(?:_[0-9]+)?)")


class KeyLayers:
    """The scopes of a file's variables (without slots), and their canonical names.

    >>> layers = KeyLayers(["dense_4/kernel", "dense_7/kernel", "head/kernel"])
    >>> layers.rename("dense_7/kernel"), layers.rename("head/kernel")
    ('dense_1/kernel', 'head/kernel')
    >>> [layer.place for layer in layers.containers[""].layers]
    ['dense', 'dense_1']
    """

    def __init__(self, names: Iterable[str], bases: Collection[str] = ()) -> None:
        self._bases = _BASES | set(bases)
        self._scopes: dict[str, set[str]] = defaultdict(set)
        self._variables: dict[str, set[str]] = defaultdict(set)
        for name in names:
            # A nameless scope at the beginning cannot be distinguished from the root.
            if name.count("/") <= _DEEPEST and not name.startswith("//"):
                self._add(name)
        self._renamed: dict[str, str] = {"": ""}
        self.containers: Mapping[str, Container] = dict(self._walk())

    def rename(self, name: str) -> str:
        """The canonical name of a variable, without the leading ``model/``."""
        scope, _, last = name.rpartition("/")
        if scope not in self._renamed:
            return name
        beside = self._variables[scope]
        if last == "depthwise_kernel" and not beside & {"pointwise_kernel", "kernel"}:
            last = "kernel"
        return _join(self._renamed[scope], last)

    def _add(self, name: str) -> None:
        scope, _, last = name.rpartition("/")
        self._variables[scope].add(last)
        while scope:
            parent, _, component = scope.rpartition("/")
            if component in self._scopes[parent]:
                return
            self._scopes[parent].add(component)
            scope = parent

    def _walk(self) -> Iterator[tuple[str, Container]]:
        todo = [""]
        while todo:
            scope = todo.pop()
            path = self._renamed[scope]
            layers = []
            for component, base, new in self._components(scope):
                below = _join(scope, component)
                self._renamed[below] = _join(path, new + self._cell_suffix(below))
                todo.append(below)
                if base:
                    number = name_number(component)
                    layers.append(Layer(new, component, True, None, base, number))
            if layers:
                yield path, Container(SEQUENCE, tuple(layers), "created")

    def _components(self, scope: str) -> Iterator[tuple[str, str, str]]:
        """``(scope, class or "", new name)`` of each inner scope, by class and number."""
        components = self._scopes[scope]
        by_base: dict[str, list[str]] = defaultdict(list)
        for component in components:
            by_base[weak_base(component, self._bases)].append(component)
        kept = self._inner_attributes(scope, components)
        for component in sorted(by_base.pop("", [])):
            yield component, "", kept.get(component, component)
        for base, members in sorted(by_base.items()):
            for number, component in enumerate(sorted(members, key=name_number)):
                new = f"{base}_{number}" if number else base
                if component in kept:
                    yield component, "", kept[component]
                else:
                    yield component, base, new

    def _inner_attributes(self, scope: str, components: set[str]) -> dict[str, str]:
        """Scopes inside Keras's own layers → the attribute of the inner layer that made them."""
        if weak_base(scope.rpartition("/")[2], {"multi_head_attention"}):
            return {c: PROJECTIONS[c] for c in components & PROJECTIONS.keys()}
        pair = {"forward_": "forward_layer", "backward_": "backward_layer"}
        inner = {c.partition("_")[2] for c in components}
        if len(components) == 2 and len(inner) == 1:
            both = {c: pair.get(c.partition("_")[0] + "_", "") for c in components}
            if set(both.values()) == set(pair.values()):
                return both
        cells = [c for c in components if _CELL.fullmatch(c)]
        if len(cells) == len(components) == 1 and self._recurrent(_join(scope, cells[0])):
            return {cells[0]: "cell"}
        return {}

    def _cell_suffix(self, scope: str) -> str:
        """``/cell`` for a recurrent layer without a scope of its cell, as in older files."""
        last = scope.rpartition("/")[2]
        direct = self._recurrent(scope) and not _CELL.fullmatch(last)
        return "/cell" if direct and last != "cell" else ""

    def _recurrent(self, scope: str) -> bool:
        return {"kernel", "recurrent_kernel"} <= self._variables.get(scope, set())


def _join(scope: str, component: str) -> str:
    return f"{scope}/{component}" if scope else component


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
    if roots is not None and not kinds[MODEL] and not kinds[OPTIMIZER]:
        meanings = {name: _Meaning(name, Role.WEIGHT) for name in keys}
        return Inventory(source, _entries(meanings, keys, values))
    state, averages = _optimizer_values({name: values[key].shape for name, key in keys.items()})
    own = [name for name in keys if name not in state and name not in averages]
    if roots is not None and not kinds[MODEL]:
        variables, containers = {name: name for name in own}, {}
    else:
        layers = KeyLayers(own, bases)
        apart = {root.component for root in live_roots} if kinds[MODEL] > 1 else set()
        variables = {name: _rooted(layers.rename(name), apart) for name in own}
        containers = {_rooted(path, apart): held for path, held in layers.containers.items()}
    meanings = {name: _Meaning(full, Role.WEIGHT) for name, full in variables.items()}
    meanings.update((name, _Meaning(f"{OF_TF1}{name}", Role.SLOT)) for name in state)
    for name, of in averages.items():
        full = f"{OPTIMIZER}/{AVERAGE}{slot_tail(variables[of])}"
        meanings[name] = _Meaning(full, Role.SLOT, AVERAGE, variables[of])
    return Inventory(source, _entries(meanings, keys, values), containers)


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


def _optimizer_values(shapes: Mapping[str, Shape]) -> tuple[set[str], dict[str, str]]:
    """The names of an optimizer's values, and of each moving average with its variable.

    A name is that of a slot only if its variable is in the file, with a shape that fits.

    >>> shapes = {"a/w": (2,), "a/w/Adam": (2,), "a/w/EMA": (2,), "w/Adam": (2,), "Adam/iter": ()}
    >>> state, averages = _optimizer_values(shapes)
    >>> sorted(state), averages
    (['Adam/iter', 'a/w/Adam'], {'a/w/EMA': 'a/w'})
    """
    state = {name for name, shape in shapes.items() if not shape and _is_setting(name)}
    averages = {}
    for name, shape in shapes.items():
        if name.count("/") > _DEEPEST:
            continue
        head, _, last = name.rpartition("/")
        if _AVERAGE.fullmatch(last):
            if (of := _owner(head, shapes)) and shapes[of] == shape:
                averages[name] = of
        elif _SLOT.fullmatch(last):
            of = _owner(head, shapes) or _owner(_OF_PART.sub("", head), shapes)
            factored = "adafactor" in last.lower()
            if of and (shapes[of] == shape or (factored and _factored(shape, shapes[of]))):
                state.add(name)
        elif mesh := _OF_MESH.fullmatch(name):
            if (of := _owner(mesh["of"], shapes)) and _factored(shape, shapes[of]):
                state.add(name)
        elif _of_keras(name, shapes):
            state.add(name)
    state.update(name for name, of in averages.items() if of in state or of in averages)
    return state, {name: of for name, of in averages.items() if name not in state}


def _is_setting(name: str) -> bool:
    """Whether a scalar has the name of a counter or hyperparameter."""
    scope, _, last = name.rpartition("/")
    own = optimizer_value(last)[1] is not Role.SLOT
    below = own and _SLOT.fullmatch(scope.rpartition("/")[2])
    return bool(below or _COUNTER.fullmatch(name))


def _of_keras(name: str, shapes: Mapping[str, Shape]) -> bool:
    """Whether it is a slot of Keras in graph mode, below the scope of an optimizer."""
    parts = name.split("/")
    if _WORDS.isdisjoint(parts):
        return False
    below = [parts[at:] for at, scope in enumerate(parts[:-1], 1) if _SLOT.fullmatch(scope)]
    ways = [way for rest in below for way in ((rest[0], rest[1:]), (rest[-1], rest[:-1]))]
    return any(w in _WORDS and shapes.get("/".join(of)) == shapes[name] for w, of in ways)


def _owner(head: str, shapes: Mapping[str, Shape]) -> str:
    """The longest suffix of a path that is the name of a variable; ``""`` for none."""
    while head and head not in shapes:
        head = head.partition("/")[2]
    return head


def _factored(shape: Shape, variable: Shape | None) -> bool:
    """Whether it is the shape of Adafactor's rows or columns, or that of the variable."""
    if variable is None or len(variable) < 2:
        return shape == variable
    rows, columns = variable[:-1], variable[:-2] + variable[-1:]
    return shape in (rows, columns, variable[1:], variable[:1], variable)
