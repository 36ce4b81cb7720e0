"""Which layer of a checkpoint is which layer of a model, where a plan does not know it.

A layer is compared by the names and shapes of its values, never by its class: a subclass, a wrapper
put on or taken off is a rename. Evidence has ranks. Two layers that fit are the same

1. by a name of a user that is alone on both sides, wherever it stands;
2. by an attribute or a key, in containers that are the same;
3. by their order in such a container, as whole groups: as many on both sides, all that both sides
   have in the same order, and neither creation, connections nor another name against it;
4. in another container, if all layers of these shapes are as many, and in the same order.

Words of names confirm an order, and never more; what looks automatic is not a name. The rest is
left: what fits it is for a person to say. Layers with the same values are compared once for all.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.fewest import holder_of, last_word
from tfckpt.core.inventory import ATTRIBUTES, DICT, LIST, Role
from tfckpt.planning.checks.step import Status
from tfckpt.planning.suggestion.fitting import fitting, fixed_shape, long_shape, may_mean, tells

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Container, Entry, Inventory, Layer
    from tfckpt.planning.plan import Plan

    Nodes = Sequence["LayerNode"]
    Rows = Sequence[tuple["LayerNode", "LayerNode"]]  # a stored layer and a live one

MOVED = frozenset({Role.WEIGHT, Role.VOCABULARY})
_APART = frozenset({Status.EXCLUDED, Status.RESET})
_NAMES = frozenset({DICT, ""})  # of containers whose places are names
_COUNT = "num_batches_tracked"  # PyTorch's, of a normalization
_MOST_LEVELS = 40
_MOST_WORDS = 2_000_000


class LayerNode:
    """A path with values below it: a layer, or what holds layers."""

    def __init__(self, path: str, above: str, kind: str, at: int, layer: Layer | None) -> None:
        self.path = path
        self.above, self.name = above, path[len(above) :].removeprefix("/")
        self.kind = kind  # of what holds it
        self.at, self.layer = at, layer
        self.inner: list[LayerNode] = []
        self.values: dict[str, Entry] = {}
        self.label = layer.own if layer else ""
        self.own = self.label if layer and (not layer.auto or layer.given) else ""
        self.maybe_own = self.label if layer and layer.given is not False else ""  # maybe by a user
        self.place = self.name if kind in _NAMES else ""  # an index is not a name
        self.created = layer.created if layer else -1
        self.order: tuple[str, ...] = ()  # of its values, as Keras writes them
        self.worded = True  # whether both sides call values by the same words

    @property
    def index(self) -> int:
        return int(self.name[:18]) if self.name.isdecimal() else self.at

    @cached_property
    def leaves(self) -> list[LayerNode]:
        """All with values, itself and below."""
        below = (leaf for node in self.inner for leaf in node.leaves)
        return [self, *below] if self.values else [*below]

    @cached_property
    def sizes(self) -> frozenset[object]:
        """Shapes of all values below, and their words, without the names of layers."""
        rows = [entry for leaf in self.leaves for entry in leaf.values.items()]
        if self.worded:
            return frozenset(Counter((word, fixed_shape(entry)) for word, entry in rows).items())
        return frozenset(Counter(long_shape(entry) for _, entry in rows).items())

    @cached_property
    def kinds(self) -> tuple[frozenset[object], tuple[str, ...], bool]:
        """The same for layers that fit the same ones; a vocabulary may grow."""
        shapes = frozenset((word, fixed_shape(entry)) for word, entry in self.values.items())
        return shapes, self.order, any("." in entry.name for entry in self.values.values())


class LayerSide:
    """The layers of an inventory in the order of what holds them, without some values.

    In a file that knows no layers, a variable is one of its own, ``word_embeddings``, where neither
    its word nor another one beside it is among the ``words`` of layers.
    """

    def __init__(
        self, inventory: Inventory, apart: set[str], words: Collection[str] | None = None
    ) -> None:
        held = inventory.containers
        self.kinds = {path: _kind(each) for path, each in held.items()}
        self.orders = {path: each.order for path, each in held.items()}
        self._layers = {
            f"{path}/{x.place}": (at, x) for path in held for at, x in enumerate(held[path].layers)
        }
        self.nodes = {"": LayerNode("", "", "", -1, None)}
        self.top = self.nodes[""]
        rows = [
            (holder_of(name), name, entry)
            for name, entry in inventory.entries.items()
            if entry.role in MOVED and name not in apart and last_word(name) != _COUNT
        ]
        telling = {path for path, name, _ in rows if words is None or tells(name, words)}
        for path, name, entry in rows:
            lone = path not in telling or ("/" not in path and words and not tells(name, words))
            node = self.nodes.get(path := name if lone else path) or self._add(path)
            node.values[name[len(path) + 1 :]] = entry
        for path, node in self.nodes.items():
            order = (each.name[len(path) + 1 :] for each in inventory.own_orders.get(path, ()))
            node.order = tuple(order) or (*node.values,)
        listed = {p: at for each in inventory.listings.values() for at, p in enumerate(each)}
        first = {
            path: min(listed.get(x.path, math.inf) for x in (node, *node.inner))
            for path, node in self.nodes.items()
        }
        for node in self.nodes.values():
            node.inner.sort(key=lambda x: (first[x.path] if x.kind in _NAMES else 0, x.at))
        self.labels = {(node.above, node.label) for node in self.nodes.values() if node.label}
        self.given_at = {(node.above, node.own) for node in self.nodes.values() if node.own}
        self.given = {node.own for node in self.nodes.values() if node.own}

    @cached_property
    def sizes(self) -> set[object]:
        return {leaf.sizes for leaf in self.top.leaves}

    def holder(self, name: str) -> LayerNode | None:
        return self.nodes.get(name) or self.nodes.get(holder_of(name))

    def _add(self, path: str) -> LayerNode:
        node = self.top
        for end in [*(m.start() for m in re.finditer("/", path)), len(path)][-_MOST_LEVELS:]:
            below = path[:end]
            if below not in self.nodes:
                known = self._layers.get(below, (-1, None))
                self.nodes[below] = LayerNode(
                    below, node.path, self.kinds.get(node.path, ""), *known
                )
                node.inner.append(self.nodes[below])
            node = self.nodes[below]
        return node


class Ladder:
    """The pairs that the evidence makes certain, and what is open.

    ``bare`` is the plan without ``include``, which chooses among the model's values and must not
    hide those of the checkpoint.
    """

    def __init__(self, stored: Inventory, live: Inventory, plan: Plan, bare: Plan) -> None:
        unordered = all(held.order == "created" for held in stored.containers.values())
        known = {*map(last_word, live.entries)} if unordered else None
        left = {step.source for step in bare.steps if step.status in _APART}
        self.old = LayerSide(stored, left, known)
        self.new = LayerSide(live, {step.name for step in plan.steps if step.status in _APART})
        words = [{w for x in side.top.leaves for w in x.values} for side in (self.old, self.new)]
        for node in (*self.old.nodes.values(), *self.new.nodes.values()):
            node.worded = not words[0].isdisjoint(words[1])
        self.pairs: dict[str, str] = {}  # live path → stored path
        self.taken: dict[str, str] = {}  # stored path → live path
        self.fixed: dict[str, str] = {}  # stored name → live name, of the plan
        self.listed: dict[str, str] = {}  # the same, of variables that no layer holds
        self.scopes: list[tuple[str, str]] = []  # several parts of one side that may be the other
        self._fits: dict[tuple[object, object], Mapping[str, str] | None] = {}
        self._lists = stored.complete or LIST in map(_kind, stored.containers.values())
        self._live = live
        for step in plan.assignments:
            if step.entry.role in MOVED and step.source in stored.entries:
                a, b = self.old.holder(step.source), self.new.holder(step.name)
                if a and b and self._may_be_exchanged(a, b):
                    continue
                self.fixed[step.source] = step.name
                if a and b:
                    self._pair(a, b)
        self._by_key(self.old.top.leaves, self.new.top.leaves, operator.attrgetter("own"))
        self._align(self.old.top, self.new.top)
        self._shift()
        self._across()
        if unordered:
            self._without_order()
            self._one_list()
        self._without_turned()

    def names(self, more: Rows = ()) -> dict[str, str]:
        """Stored name → live name of all values of the pairs, and of some more."""
        found = self.fixed | self.listed
        rows = [(self.old.nodes[a], self.new.nodes[b]) for b, a in self.pairs.items()]
        for a, b in (*rows, *more):
            for word, other in (self._fitting(a, b) or {}).items():
                found.setdefault(a.values[word].name, b.values[other].name)
        return found

    def questions(self) -> list[tuple[Nodes, Nodes]]:
        """Live layers that would stay new, behind the stored ones that fit each of them."""
        return [each for each in self._alike(*self._left()) if each[0]]

    def _left(self) -> tuple[Nodes, Nodes]:
        olds = [x for x in self.old.top.leaves if x.path not in self.taken]
        return olds, [x for x in self.new.top.leaves if x.path not in self.pairs]

    def _alike(self, olds: Nodes, news: Nodes) -> Iterator[tuple[Nodes, Nodes]]:
        """All live layers that the same stored ones fit, behind these."""
        examples = {x.kinds: x for x in olds}
        fitting: dict[object, frozenset[object]] = {}
        groups: dict[frozenset[object], list[LayerNode]] = defaultdict(list)
        for b in news:
            if b.kinds not in fitting:
                fitting[b.kinds] = frozenset(
                    kinds
                    for kinds, a in examples.items()
                    if self._fitting(a, b) is not None and not self._may_be_exchanged(a, b)
                )
            groups[fitting[b.kinds]].append(b)
        for kinds, others in groups.items():
            yield [x for x in olds if x.kinds in kinds], others

    # Pairing

    def _may_be_exchanged(self, a: LayerNode, b: LayerNode) -> bool:
        """Whether two that only share values of some names fit others as wholes, both of them."""
        others = a.sizes in self.new.sizes and b.sizes in self.old.sizes
        return others and a.sizes != b.sizes and not (a.own and a.own == b.own)

    def _without_turned(self) -> None:
        """One went out of a layer, one of its shapes went in: they may have changed places."""
        ways: dict[object, dict[bool, list[tuple[LayerNode, LayerNode]]]] = {}
        for b, a in self.pairs.items():
            one, other = self.old.nodes.get(a), self.new.nodes.get(b)
            levels = a.count("/") - b.count("/")
            if one and other and one.values and levels and not (one.own and one.own == other.own):
                ways.setdefault(one.sizes, {}).setdefault(levels > 0, []).append((one, other))
        for rows in ways.values():
            for one, other in itertools.chain(*rows.values()) if len(rows) > 1 else ():
                del self.pairs[other.path], self.taken[one.path]

    def _pair(self, a: LayerNode, b: LayerNode) -> None:
        self.pairs[b.path], self.taken[a.path] = a.path, b.path
        if bool(a.inner) != bool(b.inner) and len(a.leaves) == len(b.leaves) == 1:  # a wrapper
            one, other = a.leaves[0], b.leaves[0]
            self.pairs[other.path], self.taken[one.path] = one.path, other.path

    def _fit(self, a: LayerNode, b: LayerNode) -> bool:
        if a.inner and b.inner:
            return True
        if not len(a.leaves) == len(b.leaves) == 1 or (b.inner and self._unseen(b.leaves[0])):
            return False
        one, other = a.leaves[0], b.leaves[0]
        if self.taken.get(one.path, other.path) != other.path or other.path in self.pairs:
            return False
        return self._fitting(one, other) is not None

    def _fitting(self, a: LayerNode, b: LayerNode) -> Mapping[str, str] | None:
        """Stored word → live word of the values of two layers; None if they do not fit."""
        kinds = a.kinds, b.kinds
        if kinds not in self._fits:
            self._fits[kinds] = fitting(a.values, b.values, b.order)
        return self._fits[kinds]

    def _by_key(self, olds: Nodes, news: Nodes, key: Callable[[LayerNode], str]) -> None:
        """Pair those that alone have a name."""
        counts = Counter(map(key, olds)), Counter(map(key, news))
        named = {name: x for x in news if (name := key(x)) and counts[1][name] == 1}
        for a in olds:
            b = named.get(key(a)) if counts[0][key(a)] == 1 else None
            if b is None or a.path in self.taken or b.path in self.pairs:
                continue
            if self._fit(a, b) and not self._is_another(a, b):
                self._pair(a, b)

    def _align(self, a: LayerNode, b: LayerNode, *, same: bool = False) -> None:
        """The layers in two containers that are the same one."""
        self._by_key(a.inner, b.inner, operator.attrgetter("own"))
        self._by_key(a.inner, b.inner, operator.attrgetter("place"))
        if same or (a.path and self.old.kinds.get(a.path) == self.new.kinds.get(b.path)):
            self._in_turn(a, b)
        for y in b.inner:
            if y.inner and y.path in self.pairs:
                self._align(self.old.nodes[self.pairs[y.path]], y)

    def _in_turn(self, a: LayerNode, b: LayerNode) -> None:
        """Whole groups of equal shapes, then what holds layers."""
        sides = (a.inner, self.taken), (b.inner, self.pairs)
        left = [
            [x for x in inner if any(y.path not in done for y in x.leaves)] for inner, done in sides
        ]
        of_class = self.old.orders.get(a.path) == "class"  # the file orders those of a class alone
        in_order = not of_class and self._in_order(a.inner, b.inner)
        for key in (operator.attrgetter("sizes"), lambda x: bool(x.inner)):
            groups: dict[object, tuple[list[LayerNode], list[LayerNode]]] = defaultdict(
                lambda: ([], [])
            )
            for at, (_, done) in enumerate(sides):
                for x in left[at]:
                    if x.path not in done:
                        groups[key(x)][at].append(x)
            for what, (ones, others) in groups.items():
                alike = [[x for x in inner if key(x) == what] for inner in (a.inner, b.inner)]
                sure = self._in_order(*alike) if of_class else in_order
                if what and (sure or (len(ones) == len(others) == 1 and self._stays(*alike))):
                    self._one_by_one(ones, others)

    def _stays(self, olds: Nodes, news: Nodes) -> bool:
        """Whether the only one left is fed as before, or comes behind the same ones."""
        olds, news = (sorted(side, key=operator.attrgetter("created")) for side in (olds, news))
        was = [self.taken.get(x.path, "") for x in olds]
        now = [x.path if x.path in self.pairs else "" for x in news]
        one, other = olds[was.index("")].layer, news[now.index("")].layer
        if one and other and one.fed and one.fed == other.fed:
            return True
        both = {*was} & {*now}
        return {*was[: was.index("")]} & both == {*now[: now.index("")]} & both

    def _across(self) -> None:
        """Layers that went from one container to another, if all of their kind are in order."""
        leaves = self.old.top.leaves, self.new.top.leaves
        groups: dict[object, tuple[list[LayerNode], list[LayerNode]]] = defaultdict(
            lambda: ([], [])
        )
        for at, side in enumerate(leaves):
            for x in side:
                groups[x.sizes][at].append(x)
        in_order = self._in_order(*leaves)
        for olds, news in groups.values():
            if len(olds) == 1 or in_order:
                self._one_by_one(olds, news, across=True)

    def _one_by_one(self, olds: Nodes, news: Nodes, *, across: bool = False) -> None:
        """Pair all of two equally long rows, or nothing."""
        if len(olds) != len(news):
            return
        rows = list(zip(olds, news, strict=True))
        free = [(a, b) for a, b in rows if self.taken.get(a.path) != b.path]
        if any(a.path in self.taken or b.path in self.pairs for a, b in free) or not free:
            return
        fit = all(self._fit(a, b) and (not across or self._may_move(a, b)) for a, b in free)
        if fit and self._is_sure(rows, across=across):
            for a, b in free:
                self._pair(a, b)

    def _in_order(self, olds: Nodes, news: Nodes) -> bool:
        """Whether what both have comes in the same order; what one of them lacks does not count."""
        rows: tuple[list[object], list[object]] = [], []
        for row, side, done in zip(rows, (olds, news), (self.taken, self.pairs), strict=True):
            for x in side:
                path = next((y.path for y in (*x.leaves, x) if y.path in done), "")
                pair = (path, done[path])[:: 1 if done is self.taken else -1] if path else ()
                row.append(pair or x.sizes)
        counts = list(map(Counter, rows))
        both = [[x for x in row if counts[0][x] == counts[1][x]] for row in rows]
        return both[0] == both[1]

    def _is_another(self, a: LayerNode, b: LayerNode) -> bool:
        """Whether a name says that one of them is another layer."""
        if a.label == b.label:
            return False
        there = (b.above, a.own) in self.new.labels or (b.above, a.label) in self.new.given_at
        was = (a.above, b.own) in self.old.labels or (a.above, b.label) in self.old.given_at
        if there or was:  # Keras has counted up to a name that was given
            return True
        return a.maybe_own in self.new.given or b.maybe_own in self.old.given

    def _is_sure(self, rows: Rows, *, across: bool) -> bool:
        """Whether nothing speaks against pairing two rows one by one."""
        if any(self._is_another(a, b) or (a.kind != b.kind and not across) for a, b in rows):
            return False
        each = [(a, b) if bool(a.inner) == bool(b.inner) else _unwrapped(a, b) for a, b in rows]
        created = _created(each)
        inside = _created([_unwrapped(a, b) for a, b in rows])
        if not (_rising(created) and _rising(inside)) or _jumping(rows) or _rewired(rows):
            return False
        if len(rows) == 1:
            return True
        named = [(a.own or a.name, b.own or b.name) for a, b in rows]
        renamed = any(a.own and b.own and a.own != b.own for a, b in rows)
        if renamed and not _words_agree(named):  # a name is more than a position
            return False
        counted = all(a.own == b.own for a, b in rows)  # by Keras, not by a user
        known = all(len({*side}) == len(rows) for side in zip(*created, strict=True))
        return (bool(created) and known and counted) or _has_order(rows)

    def _shift(self) -> None:
        """All of one side as a part of the other: ``generator/**`` is ``model/**``."""
        tops, open_ = [], []
        for side, done in ((self.old, self.taken), (self.new, self.pairs)):
            top = [side.top]
            while not top[-1].values and len(top[-1].inner) == 1:
                top.append(top[-1].inner[0])
            tops.append([x for x in top if x.path or len(top) == 1])
            parts: dict[object, list[LayerNode]] = defaultdict(list)
            for x in tops[-1][:1] + [x for x in side.nodes.values() if x.path]:
                if x.leaves and not any(y.path in done for y in x.leaves):
                    parts[x.sizes].append(x)
            open_.append(parts)
        rows = [(x, y) for x in tops[0] for y in open_[1][x.sizes] if x in open_[0][x.sizes]]
        rows += [(x, y) for y in tops[1] for x in open_[0][y.sizes] if y in open_[1][y.sizes]]
        paths = {(x.path, y.path) for x, y in rows if x.path != y.path and not self._unseen(y)}
        same = [pair for pair in paths if not paths & {*_above(*pair)}]
        if len(same) == 1:
            self._align(self.old.nodes[same[0][0]], self.new.nodes[same[0][1]], same=True)
        elif same and min(len({x for x, _ in same}), len({y for _, y in same})) == 1:
            self.scopes = sorted(same)

    def _may_move(self, a: LayerNode, b: LayerNode) -> bool:
        """Whether no name, and no place that is one, says otherwise."""
        stays = a.layer and a.place and a.path in self.new.nodes
        was = b.layer and b.place and b.path in self.old.nodes
        named = any(x.own and not (x.layer and x.layer.auto) for x in (a, b))
        return not (named or stays or was or self._unseen(b))

    def _unseen(self, b: LayerNode) -> bool:
        """Whether it is in a list or a dict, of which the file shows none."""
        above = itertools.accumulate(b.path.split("/")[:-1], "{}/{}".format)
        held = (self._live.containers.get(path) for path in above)
        return not self._lists and any(each and each.kind in (LIST, DICT) for each in held)

    def _without_order(self) -> None:
        """In a file that knows no layers: by the last name, by words, or the only one that fits."""
        self._by_key(*self._left(), lambda x: re.sub("[^a-z0-9]", "", last_word(x.path).lower()))
        for _ in range(2):
            self._behind_scopes()
            groups = self.questions()
            claims = Counter(x.path for ones, _ in groups for x in ones)
            for each in groups:
                olds, news = (sorted(side, key=lambda x: _numbers(x.path)) for side in each)
                if len(olds) != len(news) or any(claims[x.path] > 1 for x in olds):
                    continue
                rows = list(zip(olds, news, strict=True))
                if len(rows) == 1 or _series_agree([(a.path, b.path) for a, b in rows]):
                    for a, b in rows:
                        self._pair(a, b)

    def _behind_scopes(self) -> None:
        """What is in the scope of a layer comes behind that layer: ``conv1/BatchNorm``."""
        behind = {
            x.path: y
            for path, held in self.new.nodes.items()
            if self.new.orders.get(path) == "all"
            for x, y in itertools.pairwise(held.inner)
        }
        for a in self._left()[0]:
            scope = self.old.nodes[a.above]
            b = behind.get(self.taken.get(scope.path, ""))
            if b is None or b.path in self.pairs or (b.layer and b.layer.beside):
                continue
            if scope.values and len(scope.inner) == 1 and self._fit(a, b):
                self._pair(a, b)

    def _one_list(self) -> None:
        """All that is left, one by one, if a file only counts it: ``Variable_3``, ``w1``."""
        olds, news = self._left()
        layers = [sorted(x.values.values(), key=lambda e: -len(long_shape(e))) for x in news]
        new = [entry for layer in layers for entry in layer]  # a kernel is before its bias
        shapes = {*map(long_shape, new)}
        old = [entry for x in olds for entry in x.values.values() if long_shape(entry) in shapes]
        old.sort(key=lambda entry: (_numbers(entry.name), -len(long_shape(entry))))
        ranks = {(_numbers(entry.name), len(long_shape(entry))) for entry in old}
        apart = all(len({*map(long_shape, x)}) == len(x) for x in layers)
        rows = list(zip(old, new, strict=False))
        worded = all(may_mean(last_word(a.name), last_word(b.name)) for a, b in rows)
        counted = len(ranks) == len(old) and apart and worded
        if counted and [*map(long_shape, old)] == [*map(long_shape, new)]:
            self.listed = {a.name: b.name for a, b in rows}
            self.taken |= {x.path: "" for x in olds}
            self.pairs |= {x.path: "" for x in news}


def _unwrapped(a: LayerNode, b: LayerNode) -> tuple[LayerNode, LayerNode]:
    """A wrapper counts on its own: of a layer and one in a wrapper, the layers."""
    return (a.leaves or [a])[0], (b.leaves or [b])[0]


def _kind(held: Container) -> str:
    """What holds layers; a file may know a list as a dict of numbers."""
    numbered = bool(held.layers) and all(x.place.isdecimal() for x in held.layers)
    return held.kind if held.kind not in (ATTRIBUTES, DICT) else LIST if numbered else DICT


def _created(rows: Rows) -> list[tuple[int, int]]:
    """When they were created, in the order of the stored ones."""
    return sorted((a.created, b.created) for a, b in rows if a.created >= 0 <= b.created)


def _rising(created: Sequence[tuple[int, int]]) -> bool:
    return all(a[1] <= b[1] for a, b in itertools.pairwise(created))


def _jumping(rows: Rows) -> bool:
    """Whether indices of a list have moved otherwise than by insertions alone, or removals."""
    if not any(b.kind == LIST for _, b in rows) or len({x.above for row in rows for x in row}) > 1:
        return False
    apart = [b.index - a.index for a, b in rows]
    moved = sorted(map(abs, apart))
    return apart not in (moved, [-each for each in moved])


def _rewired(rows: Rows) -> bool:
    """Whether one is connected as another one was, and no longer as it was itself."""
    wires = [[(x.layer.fed, x.layer.feeds) for x in row if x.layer and x.layer.fed] for row in rows]
    changed = [row for row in wires if len(row) == 2 and row[0] != row[1]]
    before = {row[0] for row in wires if row}
    fed, feeds = ({wire[at] for wire in before} for at in (0, 1))
    return any(
        now in before or (not {*was} & {*now} and (now[0] in fed or now[1] in feeds))
        for was, now in changed
    )


def _has_order(rows: Rows) -> bool:
    """Attributes have none, and branches only if all are fed as before, named or not."""
    if any(x.kind in _NAMES for row in rows for x in row):
        return False
    layers = [(a.layer, b.layer) for a, b in rows if a.layer and b.layer]
    created = [a.created for a, _ in rows if a.created >= 0]
    wrapped = any(bool(a.inner) != bool(b.inner) for a, b in rows)
    wired = [a for a, b in layers if a.fed and (a.fed, a.feeds) == (b.fed, b.feeds)]
    named = [{bool(x.own) for x in side} for side in zip(*rows, strict=True)]
    as_before = len(wired) == len(rows) and len(named[0]) == len(named[1]) == 1
    beside = any(b.layer and b.layer.beside for _, b in rows)
    return as_before or not (beside or (wrapped and created != sorted(created)))


def _above(x: str, y: str) -> Iterator[tuple[str, str]]:
    """Both paths with those that are above them, but for the two themselves."""
    sides = [[*itertools.accumulate(path.split("/"), "{}/{}".format), ""] for path in (x, y)]
    return ((a, b) for a, b in itertools.product(*sides) if (a, b) != (x, y))


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(each[:18]) for each in re.findall(r"\d+", name))


def _words_agree(rows: Sequence[tuple[str, str]]) -> bool:
    """Whether each has more words in common with its partner than with any other one.

    >>> _words_agree([("old_q", "q"), ("old_v", "v")]), _words_agree([("a", "q"), ("b", "v")])
    (True, False)
    """
    olds, news = ([_words(name) for name in side] for side in zip(*rows, strict=True))
    holders: dict[str, list[int]] = defaultdict(list)
    for at, found in enumerate(news):
        for word in found:
            holders[word].append(at)
    holders = {word: each for word, each in holders.items() if len(each) < len(news)}
    if sum(len(holders.get(word, ())) for found in olds for word in found) > _MOST_WORDS:
        return False
    for at, found in enumerate(olds):
        like = Counter(other for word in found for other in holders.get(word, ()))
        if like.pop(at, 0) <= max(like.values(), default=0):
            return False
    return True


def _series_agree(rows: Sequence[tuple[str, str]]) -> bool:
    """The same, and a number says something inside of one series of names alone.

    >>> _series_agree([("layer1", "dense_1"), ("fc2", "dense_2")])
    False
    """
    stems = {tuple(re.sub(r"_?\d+", "", name) for name in row) for row in rows}
    alike = len(stems) == 1 or _words_agree([(old, new) for old, new in stems])
    return alike and _words_agree(rows)


def _words(name: str) -> set[str]:
    return {*re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())}
