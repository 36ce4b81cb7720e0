"""A description → the object graph that plain TensorFlow writes of the model, as tfckpt reads it.

The graph is simulated: what Keras shows TensorFlow of its objects, and the names of variables,
which are all that tells the names of layers. ``stored.graphs`` reads it as it reads a file's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from tfckpt.core import names
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.stored.formats.graph_reader import VARIABLE_VALUE, GraphReader
from tfckpt.stored.io.messages import ObjectGraph
from zoo.pairs.describe import ATTRIBUTED, Item
from zoo.pairs.objects import VARIABLES, Objects, Value, attributes, keys

# Variables that Keras 3 keeps under a private name.
_PRIVATE = {"dense": ("kernel",), "conv": ("kernel",), "embedding": ("embeddings",)}


@dataclasses.dataclass(frozen=True)
class Written:
    """What a file has."""

    inventory: Inventory  # as tfckpt names its values
    whose: dict[str, Value]  # canonical name of each value of a layer → the value
    words: set[str]  # in the names of its variables


def written(saved: Objects, live: Inventory) -> Written:
    """A checkpoint of plain TensorFlow, opened to be restored into the ``live`` objects."""
    graph = _ObjectGraph(saved)
    bases = {x.cls for held in live.containers.values() for x in held.layers if x.auto}
    reader = GraphReader(graph.graph, bases)
    nodes, keras_roots = reader.roots(live.roots)
    named = names.assign(nodes, keras_roots)
    entries = {
        each.name: Entry(each.name, each.role, "float32", shape, 4 * math.prod(shape))
        for each in named.values
        if (shape := graph.values[each.node.value].shape)
    }
    entries["save_counter"] = Entry("save_counter", Role.STATE, "int64", (), 8)
    inventory = Inventory(
        "a checkpoint of TensorFlow",
        entries,
        named.containers,
        named.aliases,
        roots=reader.live_roots,
        private=named.private,
    )
    whose = {each.name: graph.values[each.node.value] for each in named.values}
    return Written(inventory, whose, graph.words)


class _ObjectGraph:
    """The graph in the making: each node after those that it leads to, the root first."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._keras3 = objects.flavour == "keras"
        self.graph = ObjectGraph()
        self._root = self.graph.nodes.add()
        self.values: dict[str, Value] = {}  # by checkpoint key
        self.words: set[str] = set()
        model = self._layer(objects.item, (), frozen=False)
        self._root.children.add(node_id=model, local_name=names.MODEL)

    def _add(self, edges: Iterable[tuple[str, int]]) -> int:
        added = self.graph.nodes.add()
        for edge, node in edges:
            added.children.add(node_id=node, local_name=edge)
        return len(self.graph.nodes) - 1

    def _layer(self, item: Item, scopes: tuple[str, ...], *, frozen: bool) -> int:
        """A layer that is built in the scopes; ``frozen`` if no layer opens another one."""
        name = str(item.name)
        own = scopes if frozen else (*scopes, name)
        if item.op in ATTRIBUTED:
            # Keras 3 builds all layers inside of a layer in the scope of the outermost.
            return self._attributed(item, own, frozen=self._keras3)
        if item.op not in ("sequential", "functional"):
            edges = []
            for variable, shape in VARIABLES.get(item.op, {}).items():
                private = self._keras3 and variable in _PRIVATE.get(item.op, ())
                value = Value(item.uid, variable, shape)
                edges.append((f"_{variable}" if private else variable, self._variable(value, own)))
            return self._add(edges)
        if item.op == "functional" or not self._keras3:  # built where it is made
            own, frozen = (), False
        elif item.uid in self._objects.built_early:
            own, frozen = (name,), False
        layers = [(e, self._layer(e, own, frozen=frozen)) for e in self._objects.layers(item)]
        return self._listed(item, layers)

    def _listed(self, model: Item, layers: list[tuple[Item, int]]) -> int:
        """A functional or sequential model."""
        nodes = [node for _, node in layers]
        if self._keras3 or model.op == "functional":
            nodes = [self._add(()), *nodes]  # the input
        if self._keras3:
            operations = self._add((str(at), node) for at, node in enumerate(nodes))
            found = self._add([("_operations", operations)])
            return found if model.op == "functional" else self._add([("_functional", found)])
        weighty = [node for each, node in layers if self._objects.holds_weights(each)]
        edges = [(f"layer_with_weights-{at}", node) for at, node in enumerate(weighty)]
        return self._add([*edges, *((f"layer-{at}", node) for at, node in enumerate(nodes))])

    def _attributed(self, item: Item, scopes: tuple[str, ...], *, frozen: bool) -> int:
        edges = []
        for attribute, held in attributes(item):
            if held[0].form == "one":
                edges.append((attribute, self._layer(held[0], scopes, frozen=frozen)))
            elif not self._keras3:  # Keras 3 shows TensorFlow no list and no dict
                inside = [self._layer(each, scopes, frozen=frozen) for each in held]
                edges.append((attribute, self._add(zip(keys(held), inside, strict=True))))
        return self._add(edges)

    def _variable(self, value: Value, scopes: tuple[str, ...]) -> int:
        key = f"{value.uid}/{value.name}"
        self.values[key] = value
        self.words.update(scopes)
        full_name = "/".join((*scopes, value.name))
        stored = self.graph.nodes.add().attributes.add(name=VARIABLE_VALUE)
        stored.full_name, stored.checkpoint_key = full_name, key
        return len(self.graph.nodes) - 1
