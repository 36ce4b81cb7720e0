"""A description → what tfckpt knows of the model, without Keras: what it collects, and records.

Keras's part is simulated: the names it generates, the order and the connections of layers, what it
keeps where. tfckpt's part is its own code: names are assigned by ``core.names``, and a record is
what it reads from the record that it writes. ``tests/property/test_simulated_pairs.py``
compares all of it with real models.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from tfckpt.core import names, topology
from tfckpt.core.inventory import Entry, Inventory, Role, Root, digest, weak_base
from tfckpt.core.names import Node, NodeKind
from tfckpt.core.topology import Graph, LayerCall, Tensor, on_branches, wires
from tfckpt.live import traits
from tfckpt.stored.commits import record_file
from zoo.pairs.build import WIDTH, WORDS, NotAModelError
from zoo.pairs.describe import ATTRIBUTED, AUTOMATIC, Item, copied, generated, walk

SEQUENCES = ("sequential", "functional")

# Of each layer of ``zoo.pairs.build``: its variables and their shapes.
VARIABLES: dict[str, dict[str, tuple[int, ...]]] = {
    "dense": {"kernel": (WIDTH, WIDTH), "bias": (WIDTH,)},
    "conv": {"kernel": (1, WIDTH, WIDTH), "bias": (WIDTH,)},
    "batch_norm": dict.fromkeys(("gamma", "beta", "moving_mean", "moving_variance"), (WIDTH,)),
    "layer_norm": dict.fromkeys(("gamma", "beta"), (WIDTH,)),
    "separable": {
        "depthwise_kernel": (1, WIDTH, 1),
        "pointwise_kernel": (1, WIDTH, WIDTH),
        "bias": (WIDTH,),
    },
    "prelu": {"alpha": (1, WIDTH)},
    "embedding": {"embeddings": (WORDS, WIDTH)},
}
_INPUT = "input"  # what stands for a functional model's input


class Value(NamedTuple):
    """A variable: the number of its layer, its name there and its shape."""

    uid: int
    name: str
    shape: tuple[int, ...]


class Objects:
    """A model as Keras makes it of a description, and as tfckpt sees it.

    ``counts`` are those of the names that Keras has generated in the process; they go on. Where two
    layers have one name, it is a NotAModelError.
    """

    item: Item  # the description with all names
    built_early: set[int]  # see `_Naming`
    whose: dict[str, Value]  # by the canonical name of each value of a layer
    collected: Inventory  # of the live model

    def __init__(self, description: Item, counts: Counter[str], flavour: str) -> None:
        self.item = copied(description)
        self.flavour = flavour
        naming = _Naming(counts, flavour)
        naming.make(self.item)
        naming.call(self.item)
        self._inputs = naming.inputs
        self.built_early = naming.built_early
        self._items = {each.uid: each for each in walk(self.item)}
        for each in walk(self.item):
            called = [layer.name for layer in each.inside]
            if each.op in SEQUENCES and len({*called}) < len(called):
                raise NotAModelError(f"not unique: {called}")
        self._nodes: dict[int, Node] = {}
        self._graphs: dict[int, Graph] = {}
        root = self._node(self.item)
        for each in self._items.values():
            if each.op == "functional" or (each.op == "sequential" and flavour == "tf_keras"):
                self._wire(each)
        given = self._given_names(counts)
        for uid, node in self._nodes.items():
            node.settings = self._settings(uid)
            node.given = not node.base or id(node) in given
            node.trainable = True  # no edit freezes one
        self._named = names.assign({names.MODEL: root}, {names.MODEL})
        self._paths = {
            uid: self._named.paths[id(node)]
            for uid, node in self._nodes.items()
            if id(node) in self._named.paths
        }
        self.whose = {
            named.name: value
            for named in self._named.values
            if isinstance(value := named.node.value, Value)
        }
        self.collected = self._inventory()

    def layers(self, item: Item) -> list[Item]:
        """The layers of a functional or sequential model in Keras's order, without the input."""
        if item.op == "sequential":
            return item.inside
        ordered = _keras_order(self._graphs[item.uid], {each.uid for each in item.inside})
        return [self._items[uid] for uid in ordered]

    def holds_weights(self, item: Item) -> bool:
        return bool(_shapes(self._nodes[item.uid]))

    def _node(self, item: Item) -> Node:
        node = self._nodes[item.uid] = Node(
            NodeKind.SEQUENCE if item.op in SEQUENCES else NodeKind.GROUP,
            label=str(item.name),
            base=weak_base(str(item.name), _bases(item.op)),
            cls=AUTOMATIC[item.op],
        )
        inner = {each.uid: self._node(each) for each in item.inside}
        if item.op in SEQUENCES:
            node.layers = list(inner.values())
        else:
            node.children = [(edge, _container(held, inner)) for edge, held in attributes(item)]
        for name, shape in VARIABLES.get(item.op, {}).items():
            value = Value(item.uid, name, shape)
            node.children.append((name, Node(NodeKind.VALUE, value=value)))
        if item.op == "dropout" and self.flavour == "keras":
            seed = Node(NodeKind.VALUE, role=Role.SEED)
            node.children.append(("seed_generator", seed))
        return node

    def _wire(self, item: Item) -> None:
        """How the layers of a functional model are connected."""
        calls: dict[Hashable, LayerCall] = {}
        before: tuple[int, ...] = ()
        for each in item.inside:
            fed = each.inputs if item.op == "functional" else before
            inputs = [Tensor(uid, 0, 0) for uid in fed or (_INPUT,)]
            calls[each.uid] = LayerCall(each.op.capitalize(), inputs)
            before = (each.uid,)
        outputs = item.outputs if item.op == "functional" else before
        self._graphs[item.uid] = Graph(
            [Tensor(_INPUT, 0, 0)],
            [Tensor(uid, 0, 0) for uid in outputs],
            lambda tensor: calls.get(tensor.layer),
        )
        node = self._nodes[item.uid]
        inner = {each.uid: self._nodes[each.uid] for each in item.inside}
        weighty = {uid: each for uid, each in inner.items() if _shapes(each)}
        node.wires = wires(self._graphs[item.uid], weighty)
        node.layers = [inner[each.uid] for each in self.layers(item)]
        size = len(item.inside) + (item.op == "functional")  # the input
        node.sizes = (size, size)
        alike: dict[Any, list[int]] = {}
        for uid, each in weighty.items():
            alike.setdefault((each.base or each.cls, _shapes(each)), []).append(uid)
        for uid in on_branches(self._graphs[item.uid], alike.values()):
            self._nodes[uid].beside = True

    def _given_names(self, counts: Counter[str]) -> set[int]:
        """The ids of the nodes of layers that a user gave a name that looks automatic."""
        found: set[int] = set()
        counted = SimpleNamespace(counted=lambda base: 1 if base == _INPUT else counts[base])
        for item in self._items.values():
            judged = [self._nodes[each.uid] for each in (item, *item.inside)]
            # Keras 3's input layer has a generated name, tf_keras's one that looks like none.
            if item.op in SEQUENCES and self.flavour == "keras":
                judged.append(Node(NodeKind.GROUP, label=_INPUT, base=_INPUT))
            found |= traits._chosen(judged, counted)
        return found

    def _inventory(self) -> Inventory:
        """What tfckpt collects of the live model (``live/objects``)."""
        return Inventory(
            "the live objects",
            {value.name: _entry(value) for value in self._named.values},
            self._named.containers,
            self._named.aliases,
            complete=True,
            roots={names.MODEL: Root(names.MODEL, names.MODEL)},
            listings={
                self._paths[each.uid]: tuple(self._members(each))
                for each in self._items.values()
                if each.op == "net"
            },
            private=self._named.private,
        )

    def _settings(self, uid: int) -> str:
        """Layers of a class are made alike; a functional model also keeps names of its layers."""
        item, kept = self._items[uid], []
        if uid in self._graphs:
            kept = [str(self._items[int(str(t.layer))].name) for t in self._graphs[uid].outputs]
            kept += [self._inputs[uid]] if self.flavour == "tf_keras" else []
        return digest([AUTOMATIC[item.op], *kept])

    def _members(self, model: Item) -> Iterable[str]:
        """The paths of the layers that a subclassed model lists, in Keras's order."""
        for _, held in attributes(model):
            by_key = held[0].form == "dict" and self.flavour == "tf_keras"
            for each in sorted(held, key=lambda layer: layer.key) if by_key else held:
                if _shapes(self._nodes[each.uid]):
                    yield self._paths[each.uid]


def _shapes(layer: Node) -> tuple[str, ...]:
    values = (each.value for each in names.walk(layer) if each.kind is NodeKind.VALUE)
    return tuple(sorted(str(value.shape) for value in values if isinstance(value, Value)))


def _keras_order(graph: Graph, layers: set[Hashable]) -> list[Hashable]:
    """The layers by their distance from the outputs, then as Keras visits them.

    See ``map_graph`` in keras/src/ops/function.py.
    """
    calls = topology._calls(graph)
    at = {tensor: index for index, (outputs, _) in enumerate(calls) for tensor in outputs}
    distance = [0] * len(calls)
    for index in range(len(calls) - 1, -1, -1):
        for tensor in calls[index][1].inputs:
            if tensor in at:
                distance[at[tensor]] = max(distance[at[tensor]], distance[index] + 1)
    found: dict[Hashable, int] = {}
    for (outputs, _), far in zip(calls, distance, strict=True):
        if (layer := outputs[0].layer) in layers:
            found[layer] = max(far, found.get(layer, 0))
    return sorted(found, key=found.__getitem__, reverse=True)


class _Naming:
    """The names that Keras generates, as ``zoo.pairs.build`` makes and calls the layers.

    ``inputs``: number of a functional or sequential model → tf_keras's name of its input.
    ``built_early``: the numbers of the sequential models of Keras 3 that are built as soon as they
    are made, because their first layer says the shape of what goes in.
    """

    def __init__(self, counts: Counter[str], flavour: str) -> None:
        self._counts = counts
        self._automatic = AUTOMATIC if flavour == "keras" else {**AUTOMATIC, "functional": "model"}
        self._builds_functional = flavour == "keras"
        self._called: set[int] = set()
        self.inputs: dict[int, str] = {}
        self.built_early: set[int] = set()

    def make(self, item: Item) -> None:
        if item.op == "functional":
            self._counts["input"] += 1
            self.inputs[item.uid] = f"input_{self._counts['input']}"
        if item.op in ATTRIBUTED:  # made before its layers
            self._name(item)
        for each in item.inside:
            self.make(each)
            if item.op == "functional":
                self.call(each)
        if item.op not in ATTRIBUTED:
            self._name(item)
        if item.op == "sequential":
            self.inputs[item.uid] = f"{self._first(item)}_input"
            if len(item.inside) > 1 and self._shows_shape(item.inside[0]):
                self.built_early.add(item.uid)
                self.call(item)

    def _shows_shape(self, layer: Item) -> bool:
        """Whether it says the shape of what goes in."""
        return layer.op == "functional" or (layer.op == "sequential" and layer.uid in self._called)

    def call(self, item: Item) -> None:
        """Build what is built with the first call: a Sequential of Keras 3 makes a Functional."""
        if item.op == "functional" or item.uid in self._called:
            return
        self._called.add(item.uid)
        for each in item.inside:
            self.call(each)
        if item.op == "sequential" and self._builds_functional:
            self._counts["functional"] += 1

    def _first(self, item: Item) -> str:
        """The name of a sequential model's first layer, or of the input of a functional one."""
        inner = item.inside[0]
        while inner.op == "sequential":
            inner = inner.inside[0]
        return self.inputs[inner.uid] if inner.op == "functional" else str(item.inside[0].name)

    def _name(self, item: Item) -> None:
        if item.name is None:
            item.name = generated(self._automatic[item.op], self._counts)


def attributes(item: Item) -> list[tuple[str, list[Item]]]:
    """The attributes of a subclassed model or layer, in the order in which they are assigned."""
    held: dict[str, list[Item]] = {}
    if item.op in ATTRIBUTED:
        for each in item.inside:
            held.setdefault(each.attribute, []).append(each)
    return list(held.items())


def keys(held: list[Item]) -> list[str]:
    """The indices or keys of the layers in a list or dict."""
    return [each.key if each.form == "dict" else str(at) for at, each in enumerate(held)]


def recorded(collected: Inventory) -> Inventory:
    """What tfckpt's record of a save has of the live objects."""
    counter = Entry("save_counter", Role.STATE, "int64", (), 8)
    saved = dataclasses.replace(
        collected,
        entries={**collected.entries, counter.name: counter},
        roots={**collected.roots, counter.name: Root(counter.name)},
    )
    content = record_file.render(record_file.CommitRecord(1, saved, "", record_file.now()))
    return record_file.parse(content, "", "a checkpoint of tfckpt").inventory


def _bases(op: str) -> set[str]:
    """What the automatic names of a layer may begin with."""
    return {AUTOMATIC[op], *(("functional", "model") if op in SEQUENCES else ())}


def _container(held: list[Item], nodes: Mapping[int, Node]) -> Node:
    """What stands at an attribute: a layer, or a list or dict of layers."""
    inside = [nodes[each.uid] for each in held]
    if held[0].form == "one":
        return inside[0]
    children = list(zip(keys(held), inside, strict=True))
    return Node(NodeKind.LIST, indexed=held[0].form == "list", children=children)


def _entry(named: names.Name) -> Entry:
    if named.role is Role.SEED:
        return Entry(named.name, named.role, "int64", (2,), 16)
    shape = named.node.value.shape
    return Entry(named.name, named.role, "float32", shape, 4 * math.prod(shape))
