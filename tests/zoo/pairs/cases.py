"""Random descriptions of models, and pairs of them.

By a plain generator: Hypothesis varies what it had before, and of five hundred of its pairs most
were the same few models.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Collection

from zoo.pairs import edits
from zoo.pairs.describe import (
    ATTRIBUTED,
    MERGES,
    NESTS,
    WEIGHTLESS,
    WEIGHTY,
    Item,
    copied,
    leaves,
    walk,
)

_REORDER = {
    *("swap", "reorder_lines", "reorder_arguments", "reorder_outputs", "insert_relu", "into_list")
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A pair of models."""

    flavour: str  # `keras` or `tf_keras`
    first: Item
    second: Item
    edits: tuple[str, ...]  # what makes the second of the first, by name
    anew: bool  # whether the second model is made by a program started anew
    shown: bool  # whether files other than tfckpt's own show what the edits did


class _Describing:
    """One description in the making."""

    def __init__(self, choose: edits.Choose) -> None:
        self.choose = choose
        self.tokens = choose((False, False, False, True))
        self._uid = 0
        self._naming = choose(("auto", "given", "mixed"))
        self._ops = [choose(WEIGHTY) for _ in range(choose((1, 1, 2)))]

    def model(self) -> Item:
        root = self._nest(self.choose(("sequential", "functional", "net")), depth=0)
        for each in walk(root):
            given = {"auto": False, "given": True, "mixed": None}[self._naming]
            if each is not root and (given or (given is None and self.choose((False, True)))):
                each.name = edits.fresh_name(root, self.choose, each.op)
        return root

    def _item(self, op: str, inputs: tuple[int, ...] = ()) -> Item:
        self._uid += 1
        return Item(op, self._uid, inputs=inputs)

    def _nest(self, op: str, depth: int) -> Item:
        nest = self._item(op)
        branches = op == "functional" and self.choose((True, True, False))
        (self._branches if branches else self._chain)(nest, depth)
        if op in ATTRIBUTED:
            self._attributes(nest)
        return nest

    def _layer(self, depth: int, inputs: tuple[int, ...] = ()) -> Item:
        kind = self.choose(("weighty",) * 7 + ("weightless", "nest"))
        if kind == "nest" and depth < 2:
            layer = self._nest(self.choose(NESTS), depth + 1)
            layer.inputs = inputs
            return layer
        return self._item(self.choose(WEIGHTLESS if kind == "weightless" else self._ops), inputs)

    def _chain(self, nest: Item, depth: int) -> None:
        if self.tokens and depth == 0:
            nest.inside.append(self._item("embedding"))
        for _ in range(self.choose((1, 2, 3, 4) if depth == 0 else (1, 2))):
            nest.inside.append(self._layer(depth))
        if nest.op == "functional":
            for one, other in itertools.pairwise(nest.inside):
                other.inputs = (one.uid,)
            nest.outputs = (nest.inside[-1].uid,)

    def _branches(self, nest: Item, depth: int) -> None:
        ends: list[int] = []

        def add(layer: Item) -> tuple[int, ...]:
            nest.inside.append(layer)
            return (layer.uid,)

        stem = not self.tokens and self.choose((True, False))
        trunk = add(self._layer(depth)) if stem else ()
        for _ in range(2):
            fed = add(self._item("embedding")) if self.tokens and depth == 0 else trunk
            for _ in range(self.choose((1, 1, 2))):
                fed = add(self._layer(depth, fed))
            ends += fed
        together = self.choose((*MERGES, "apart") if depth == 0 else MERGES)
        if together == "apart":
            nest.outputs = tuple(ends)
            return
        nest.outputs = add(self._item(together, tuple(ends)))
        if self.choose((True, False)):
            nest.outputs = add(self._layer(depth, nest.outputs))

    def _attributes(self, nest: Item) -> None:
        """Most layers stand on attributes of their own; some in a row in a list or a dict."""
        form = self.choose(("one", "list", "dict", "mixed"))
        for at, each in enumerate(nest.inside):
            how = self.choose(("one", "list")) if form == "mixed" else form
            if how == "one" or each.op == "embedding":
                each.attribute = "abcdefgh"[at]
            else:
                each.form = how
                each.attribute = "blocks" if how == "list" else "parts"
                each.key = "xyzuvw"[at] if how == "dict" else ""


def _takes_names(first: Item, second: Item) -> bool:
    """Whether a layer has the name that another one had: a name that is given says who it is."""
    had = {each.name: each.uid for each in walk(first) if each.name}
    return any(each.name and had.get(each.name, each.uid) != each.uid for each in walk(second))


def _shown(flavour: str, second: Item, made: Collection[str]) -> bool:
    """Whether files of TensorFlow show what the edits did.

    Those of tf_keras tell layers by their order; Keras 3's also name them, and tell by automatic
    names when each was made.
    """
    told = flavour == "keras" and ("swap" not in made or all(each.name for each in leaves(second)))
    return told or not _REORDER & {*made}


def case(at: int) -> Case:
    """The pair of a number: the even ones are of Keras 3."""
    flavour, rng = ("keras", "tf_keras")[at % 2], random.Random(at)
    first = _Describing(rng.choice).model()
    second = copied(first)
    made: list[str] = []
    for among in rng.choice(((edits.FIRST,), (edits.FIRST, edits.SECOND))):
        if "swap" in made:
            break  # with another name as well, nobody could tell which is which
        for edit in rng.sample(among, len(among)):
            edited = copied(second)
            with contextlib.suppress(IndexError):
                edit(edited, rng.choice)
                if not _takes_names(first, edited):
                    second = edited
                    made.append(edit.__name__)
                    break
    anew = rng.choice((False, True))
    return Case(flavour, first, second, tuple(made), anew, _shown(flavour, second, made))
