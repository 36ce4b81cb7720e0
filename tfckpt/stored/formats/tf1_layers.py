"""Canonical layer names from the keys of a file without an object graph.

TF1 and Keras number layers without a name within the whole graph or process: ``dense_4`` may be a
model's first one. So the layers of a class are renumbered in each scope, in the order of their
numbers. Their order among layers of other classes is unknown.

Layers inside Keras's own layers are named by attribute, ``lstm/cell/kernel``, not by the scopes
that they opened, ``lstm_1/lstm_cell_3/kernel``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from tfckpt.core.inventory import SEQUENCE, Container, Layer, name_number, weak_base
from tfckpt.stored.formats.keras_layers import KERAS_BASES, PROJECTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

# No writer nests deeper; a deeper key is not interpreted.
DEEPEST = 64

# Users choose these names for scopes; they are not automatic layer names.
_BASES = KERAS_BASES - {"activation", "functional", "model"}
_CELL = re.compile(r"(?:lstm|gru|simple_rnn)_cell(?:_[0-9]+)?")


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
            if name.count("/") <= DEEPEST and not name.startswith("//"):
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
