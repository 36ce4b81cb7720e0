"""Random descriptions of models, and pairs of them.

By a plain generator: Hypothesis varies what it had before, and of five hundred of its pairs most
were the same few models.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import TYPE_CHECKING

from zoo.pairs import edits
from zoo.pairs.describe import ATTRIBUTED, WEIGHTLESS, WEIGHTY, Item, copied, leaves, walk

if TYPE_CHECKING:
    from collections.abc import Collection

_ATTRIBUTES = ("a", "b", "c", "d", "e", "f", "g", "h")
_REORDER = {"swap", "reorder_lines", "reorder_arguments", "reorder_outputs", "insert_relu"}
_KEYS = ("x", "y", "z", "u", "v", "w")


@dataclasses.dataclass(frozen=True)
class Case:
    """A pair of models, and how the first is saved.

    Attributes:
        flavour: ``keras`` or ``tf_keras``.
        first: what was saved.
        second: what is restored into.
        edits: what makes the second of the first, by name.
        writer: ``tensorflow``, ``tfckpt`` or ``h5``.
        anew: whether the second model is made by a program started anew.
        tokens: whether the models take numbers of words.
    """

    flavour: str
    first: Item
    second: Item
    edits: tuple[str, ...]
    writer: str
    anew: bool
    tokens: bool

    @property
    def size(self) -> int:
        """How much there is to read, for who looks for the smallest."""
        return len(repr(self.first)) + len(repr(self.second)) + 20 * len(self.edits)


class _Describing:
    """One description in the making."""

    def __init__(self, choose: edits.Choose) -> None:
        self.choose = choose
        self.tokens = choose((False, False, False, True))
        self._uid = 0
        self._naming = choose(("auto", "given", "mixed"))
        self._ops = [choose(WEIGHTY) for _ in range(choose((1, 1, 2)))]
        self.root = Item("sequential", -1)

    def model(self) -> Item:
        self.root = self.nest(self.choose(("sequential", "functional", "net")), depth=0)
        items = [each for each in walk(self.root) if each is not self.root]
        for each in items:
            given = {"auto": False, "given": True, "mixed": None}[self._naming]
            if given or (given is None and self.choose((False, True))):
                each.name = edits.fresh_name(self.root, self.choose, each.op)
        return self.root

    def _item(self, op: str) -> Item:
        self._uid += 1
        return Item(op, self._uid)

    def nest(self, op: str, depth: int) -> Item:
        nest = self._item(op)
        branches = op == "functional" and self.choose((True, True, False))
        if branches:
            self._branches(nest, depth)
        else:
            self._chain(nest, depth)
        if op in ATTRIBUTED:
            self._attributes(nest)
        return nest

    def _layer(self, depth: int) -> Item:
        kind = self.choose(("weighty",) * 7 + ("weightless", "nest"))
        if kind == "nest" and depth < 2:
            return self.nest(self.choose(("sequential", "functional", "block", "net")), depth + 1)
        return self._item(self.choose(WEIGHTLESS if kind == "weightless" else self._ops))

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
        ends = []
        trunk: tuple[int, ...] = ()
        if not self.tokens and self.choose((True, False)):
            stem = self._layer(depth)
            nest.inside.append(stem)
            trunk = (stem.uid,)
        for _ in range(2):
            fed = trunk
            if self.tokens and depth == 0:
                embedding = self._item("embedding")
                nest.inside.append(embedding)
                fed = (embedding.uid,)
            for _ in range(self.choose((1, 1, 2))):
                layer = self._layer(depth)
                layer.inputs = fed
                nest.inside.append(layer)
                fed = (layer.uid,)
            ends.append(fed[0])
        together = self.choose(("add", "subtract", "concat", "apart"))
        if together == "apart" and depth == 0:
            nest.outputs = tuple(ends)
            return
        merge = self._item("add" if together == "apart" else together)
        if depth and merge.op == "concat":
            merge.op = "subtract"  # what is made of an inner model is as long as what goes in
        merge.inputs = tuple(ends)
        nest.inside.append(merge)
        fed = merge.uid
        if self.choose((True, False)):
            after = self._layer(depth)
            after.inputs = (fed,)
            nest.inside.append(after)
            fed = after.uid
        nest.outputs = (fed,)

    def _attributes(self, nest: Item) -> None:
        """Most layers stand on attributes of their own; some in a row in a list or a dict."""
        form = self.choose(("one", "list", "dict", "mixed"))
        for at, each in enumerate(nest.inside):
            how = self.choose(("one", "list")) if form == "mixed" else form
            if how == "one" or each.op == "embedding":
                each.attribute = _ATTRIBUTES[at]
            else:
                each.form = how
                each.attribute = "blocks" if how == "list" else "parts"
                each.key = _KEYS[at] if how == "dict" else ""


def _takes_names(first: Item, second: Item) -> bool:
    """Whether a layer has the name that another one had: a name that is given says who it is."""
    had = {each.name: each.uid for each in walk(first) if each.name}
    return any(each.name and had.get(each.name, each.uid) != each.uid for each in walk(second))


def only_recorded(flavour: str, second: Item, made: Collection[str]) -> bool:
    """Whether files other than tfckpt's own do not show what the edits did."""
    # `.weights.h5` tells layers by their order among those of their class; Keras 3's also names
    # them, and tells by the automatic ones when each was made
    told = flavour == "keras" and ("swap" not in made or all(each.name for each in leaves(second)))
    return bool((_REORDER | {"into_list"}) & {*made}) and not told


def case(flavour: str, start: int) -> Case:
    """The same one for the same start."""
    rng = random.Random(start)
    describing = _Describing(rng.choice)
    first = describing.model()
    second = copied(first)
    made = []
    for among in rng.choice(((edits.FIRST,), (edits.FIRST, edits.SECOND))):
        if "swap" in made:
            break  # with another name as well, nobody could tell which is which
        for edit in rng.sample(among, len(among)):
            edited = copied(second)
            if edit(edited, rng.choice) and not _takes_names(first, edited):
                second = edited
                made.append(edit.__name__)
                break
    writer = rng.choice(("tensorflow", "tfckpt", "tfckpt", "h5"))
    if only_recorded(flavour, second, made):
        writer = "tfckpt"
    anew = rng.choice((False, True))
    return Case(flavour, first, second, tuple(made), writer, anew, describing.tokens)
