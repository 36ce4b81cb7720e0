r"""Canonical names: one name per value, whoever wrote it.

Other modules turn a checkpoint's object graph and live objects into the same tree of
:class:`Node`\ s, and this module names the values. So a name does not depend on the Keras flavor,
on where a graph traversal reached the object first, on private attribute names or on how many
models the process has built.

The grammar::

    <root>/<component>/…/<variable>     model/encoder/dense/kernel
    <optimizer>/<slot>/<variable>       optimizer/momentum/encoder/dense/kernel
    <optimizer>/iterations              optimizer/iterations, optimizer/learning_rate
    <optimizer>/loss_scale/<value>      optimizer/loss_scale/dynamic_scale
    seed/<layer>                        seed/encoder/dropout
    metrics/<metric>/<variable>         metrics/accuracy/total

A component is the layer's name in a functional or sequential model (a *layer sequence*), and the
attribute, list index or dict key everywhere else, without leading underscores; attributes that had
one are recorded beside the names, because ``_head`` and ``head`` differ if a class has both.
Automatic layer names (``dense_3``) are renumbered in each sequence in the order of creation, which
their own numbers tell, else as they are listed; layers with weights first, because TensorFlow does
not save the others. A slash in a layer's name becomes ``_``, since Keras 3
does not allow it; in a key it becomes ``%2F``, as ``a/b`` is ``['a']['b']``. A list or dict of
layers is also a layer sequence, by index or key, with the names that the user chose.
The name of an object is the shortest path to it, then the first in alphabetical order; other paths
become aliases. With several models, seeds and metrics are under their owner:
``generator/seed/dropout``. ``model/`` is omitted from a slot's variable.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from enum import Enum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.inventory import (
    ATTRIBUTES,
    DICT,
    LIST,
    SEQUENCE,
    VARIABLE,
    Container,
    Inventory,
    Layer,
    Ordered,
    Role,
    given_name,
    name_number,
)
from tfckpt.core.text import free_name
from tfckpt.errors import NamingError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Entry

MODEL, OPTIMIZER, SEED, METRICS = "model", "optimizer", "seed", "metrics"
# A root object that is a value itself; TensorFlow's graph has this edge from the root to itself.
ROOT = "root"

# tf_keras has `depthwise_kernel` where Keras 3 has `kernel`; SeparableConv, which has a pointwise
# kernel beside it, keeps both names in both flavors.
_DEPTHWISE, _POINTWISE, _KERNEL = "depthwise_kernel", "pointwise_kernel", "kernel"
# Variables that Keras 3 keeps under a private name, tf_keras under a public one.
_OF_KERAS = ("bias", "diag", "embeddings", "kernel")


class NodeKind(Enum):
    """How the children of a node are named."""

    GROUP = "group"  # children by attribute
    LIST = "list"  # or a tuple or dict: children by index or key, in order
    SEQUENCE = "stack"  # a functional or sequential model: ordered layers, and perhaps attributes
    OPTIMIZER = "optimizer"
    VALUE = "value"


class Slot(NamedTuple):
    """One optimizer variable that belongs to a model variable."""

    slot: str
    of: Node
    value: Node


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """One object, live or stored.

    Attributes:
        kind: how its children are named.
        label: the layer's own name, an optimizer's class in snake case, a variable's own path;
            ``""`` if unknown.
        base: for a layer, its automatic name without the number, ``""`` for a chosen name.
        cls: for a layer, its class in snake case, ``""`` if unknown.
        given: whether a user chose the layer's name, if that is known.
        settings: digest of a layer's configuration.
        beside: whether a layer like it is on another branch of a functional model.
        trainable: whether a layer is not frozen, if that is known.
        role: for a value.
        value: an object of the caller, returned with the name.
        layers: the layers of a sequence, in order.
        wires: by id of a layer, what feeds it and what it feeds, if known.
        sizes: how many layers a sequence has, as in a container.
        order: what the order of the layers in a sequence or list says, as in a container.
        children: edge → node, for everything else.
        asides: edge → node that is named by another edge.
        metrics: a model's metrics by name.
        slots: an optimizer's slots.
        other: another possible name of the layer, if the file is ambiguous.
        indexed: whether the children of a ``LIST`` are identified by index.
    """

    kind: NodeKind
    label: str = ""
    base: str = ""
    cls: str = ""
    given: bool | None = None
    settings: str = ""
    beside: bool = False
    trainable: bool | None = None
    role: Role = Role.WEIGHT
    value: Any = None
    layers: list[Node] = dataclasses.field(default_factory=list)
    wires: Mapping[int, tuple[str, str]] = dataclasses.field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    order: str = "all"
    children: list[tuple[str, Node]] = dataclasses.field(default_factory=list)
    asides: list[tuple[str, Node]] = dataclasses.field(default_factory=list)
    metrics: list[tuple[str, Node]] = dataclasses.field(default_factory=list)
    slots: list[Slot] = dataclasses.field(default_factory=list)
    other: str = ""
    indexed: bool = False


class Name(NamedTuple):
    """A named value."""

    name: str
    node: Node
    role: Role
    slot: str = ""
    of: str = ""


@dataclasses.dataclass(frozen=True)
class Names:
    """The result of :func:`assign`; fields as in :class:`tfckpt.core.inventory.Inventory`.

    ``paths`` has the canonical path of every node, by the node's id.
    """

    values: tuple[Name, ...]
    containers: Mapping[str, Container]
    aliases: Mapping[str, str]
    optimizers: Mapping[str, str]
    paths: Mapping[int, str]
    private: Mapping[str, str]

    def inventory(
        self,
        source: str,
        entries: Iterable[Entry],
        own: Iterable[tuple[Node, Sequence[tuple[Node, str]]]] = (),
        deep: Iterable[tuple[Node, Sequence[tuple[Node, str]]]] = (),
        **others: Any,
    ) -> Inventory:
        """The inventory of these names; ``own`` and ``deep`` are nodes with values in order."""
        canonical = {id(value.node): value.name for value in self.values}
        own_orders, deep_orders = (
            {
                self.paths[id(node)]: tuple(Ordered(canonical[id(v)], path) for v, path in values)
                for node, values in orders
            }
            for orders in (own, deep)
        )
        return Inventory(
            source,
            {entry.name: entry for entry in entries},
            self.containers,
            self.aliases,
            self.optimizers,
            own_orders=own_orders,
            deep_orders=deep_orders,
            **others,
        )


def escaped(key: str) -> str:
    """A dict key or attribute, escaped as one component of a name.

    >>> escaped("a/b"), escaped("100%"), escaped("a%2Fb")
    ('a%2Fb', '100%', 'a%252Fb')
    """
    return re.sub("%(?=2F|25)", "%25", key).replace("/", "%2F")


def with_weights(roots: Iterable[Node]) -> set[int]:
    """The ids of the nodes that have a weight anywhere below them (a seed is not a weight)."""
    above: dict[int, list[int]] = {}
    found, seen, stack = list[int](), set[int](), list(roots)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.kind is NodeKind.VALUE:
            if node.role is Role.WEIGHT:
                found.append(id(node))
            continue
        below = [child for _, child in node.children]
        below += node.layers
        for child in below:
            if child.kind is not NodeKind.OPTIMIZER:
                above.setdefault(id(child), []).append(id(node))
        stack += below
        if node.asides or node.metrics:
            stack += [child for _, child in (*node.asides, *node.metrics)]
    holding = set(found)
    while found:
        new = [one for one in above.get(found.pop(), ()) if one not in holding]
        holding.update(new)
        found.extend(new)
    return holding


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, each once, without optimizers and metrics."""
    seen, stack = {id(node)}, [node]
    while stack:
        node = stack.pop()
        yield node
        for child in (*node.layers, *(child for _, child in node.children)):
            if id(child) not in seen and child.kind is not NodeKind.OPTIMIZER:
                seen.add(id(child))
                stack.append(child)


def assign(roots: Mapping[str, Node], keras_roots: Collection[str] = ()) -> Names:
    """Names for every value below the roots.

    ``roots`` maps first components to nodes, ``""`` to an object whose children are first
    components. ``keras_roots`` are the roots that are Keras models: their seeds and metrics are
    named ``seed/…`` and ``metrics/…``, below the root unless it is ``model``.
    """
    refuse_reserved(roots, keras_roots)
    return _Naming(keras_roots).run(roots)


def refuse_reserved(roots: Collection[str], keras_roots: Collection[str]) -> None:
    """Raise where the first component of an object is one of the model's own values."""
    if MODEL in keras_roots and (taken := {SEED, METRICS} & set(roots)):
        raise NamingError(
            f"the keyword {min(taken)!r} is reserved for the model's own {min(taken)} values; "
            "use another keyword"
        )


class _Naming:
    """One run of the naming: breadth first, so that the shortest path is the name."""

    def __init__(self, keras_roots: Collection[str]) -> None:
        self._keras_roots = set(keras_roots)
        self._names: dict[int, str] = {}  # id of node → canonical path
        self._values: dict[str, Name] = {}
        self._containers: dict[str, Container] = {}
        self._private: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._optimizers: dict[str, Node] = {}
        self._asides: list[tuple[str, Node, str]] = []
        self._holding: set[int] = set()

    def run(self, roots: Mapping[str, Node]) -> Names:
        self._holding = with_weights(roots.values())
        lone = {MODEL} if MODEL in self._keras_roots else set()
        for names in (lone, set(roots) - lone):
            self._walk([(path, roots[path], "") for path in sorted(names)])
        while self._asides:
            asides, self._asides = self._asides, []
            self._walk(asides)
        for path, optimizer in self._optimizers.items():
            self._name_slots(path, optimizer)
        return Names(
            tuple(self._values.values()),
            self._containers,
            self._used_aliases(),
            {path: node.label for path, node in self._optimizers.items()},
            self._names,
            self._private,
        )

    def _used_aliases(self) -> dict[str, str]:
        """The aliases that lead to a value, directly or through another alias."""
        aliases: dict[str, str] = {}
        if not self._aliases:
            return aliases
        known, paths, holding = -1, set(self._values), set[str]()
        while len(aliases) > known:
            known = len(aliases)
            for path in paths:
                above = path
                while above and above not in holding:
                    holding.add(above)
                    above = above.rpartition("/")[0]
            aliases = {path: k for path, k in self._aliases.items() if k in holding}
            paths = set(aliases)
        return aliases

    def _walk(self, level: list[tuple[str, Node, str]]) -> None:
        while level:
            below: list[tuple[str, Node, str]] = []
            for path, node, owner in level:
                below.extend(self._visit(path, node, owner))
            level = below

    def _visit(self, path: str, node: Node, owner: str) -> Iterable[tuple[str, Node, str]]:
        """Name a node, and return its children, with the owner's path if one is its only seed."""
        if (known := self._names.get(id(node))) is not None:
            if known not in {path, ""}:
                self._aliases[path] = known
            return ()
        self._names[id(node)] = path
        if node.kind is NodeKind.VALUE:
            self._add(self._value_name(path, node, owner), node, node.role)
            return ()
        if node.kind is NodeKind.OPTIMIZER:
            self._optimizers[path] = node
            return self._children(path, node)
        for name, metric in node.metrics:
            self._name_metric(path, name, metric)
        children: list[tuple[str, Node, str]] = []
        if node.kind is NodeKind.SEQUENCE:
            children.extend(self._layers(path, node))
        children.extend(self._children(path, node))
        self._asides.extend((_join(path, edge), child, "") for edge, child in node.asides)
        return children

    def _layers(self, path: str, sequence: Node) -> Iterator[tuple[str, Node, str]]:
        attributes, given = set[str](), set[str]()
        for layer in sequence.layers:
            if not layer.base:
                given.add(layer.label)
        listed = frozenset(map(id, sequence.layers))
        for edge, child in sequence.children:
            if id(child) not in listed:
                attributes.add(edge.lstrip("_"))
        taken = given | attributes
        layers = sorted(sequence.layers, key=self._holds, reverse=True)
        unnumbered = {layer.base for layer in layers if not layer.label}
        created = [-1 if x.base in unnumbered else name_number(x.label) for x in layers]
        counts: Counter[str] = Counter()
        components: dict[int, str] = {}
        for index in sorted(
            range(len(layers)), key=lambda i: (not self._holds(layers[i]), created[i])
        ):
            layer = layers[index]
            component = _one_level(layer.label) or f"layer_with_weights-{index}"
            base = layer.base or (component if component in attributes else "")
            while base:
                number = counts[base]
                counts[base] += 1
                component = f"{base}_{number}" if number else base
                if component not in taken:
                    break
            components[index] = component
        named = []
        for index, layer in enumerate(layers):
            component = components[index]
            named.append((component, layer))
            yield _join(path, component), layer, ""
        self._hold(
            path,
            sequence,
            SEQUENCE,
            (_row(*each, sequence.wires) for each in named if self._is_layer(each[1])),
        )
        self._also_called(path, named)

    def _hold(self, path: str, node: Node, kind: str, rows: Iterable[Layer]) -> None:
        if path and (layers := tuple(rows)):
            self._containers[path] = Container(kind, layers, node.order, node.sizes)

    def _also_called(self, path: str, named: list[tuple[str, Node]]) -> None:
        """Aliases for other names of the layers that no other layer has."""
        taken = {component for component, _ in named}
        for component, layer in named:
            for name in {layer.label, layer.other} - {"", *taken}:
                if not layer.base:
                    self._aliases[_join(path, name)] = _join(path, component)

    def _children(self, path: str, node: Node) -> Iterator[tuple[str, Node, str]]:
        edges = {edge for edge, _ in node.children}
        seeds = sum(child.role is Role.SEED for _, child in node.children)
        taken: dict[str, int] = {}
        named = []
        for edge, child in sorted(node.children, key=lambda item: (len(item[0]), item[0])):
            component = edge.lstrip("_")
            if component == _DEPTHWISE and not edges & {_POINTWISE, _KERNEL, "_" + _KERNEL}:
                component = _KERNEL
            if not component or taken.setdefault(component, id(child)) != id(child):
                component = edge  # the object has both `_x` and `x`
            if (
                edge == "_" + component
                and node.kind is not NodeKind.OPTIMIZER
                and self._holds(child)
                and not (child.kind is NodeKind.VALUE and edge.endswith(_OF_KERAS))
            ):
                self._private[_join(path, component)] = edge
            named.append((component, child))
        if node.kind is NodeKind.LIST:
            self._hold(path, node, LIST if node.indexed else DICT, self._listed(node, named))
        elif node.kind is NodeKind.GROUP:
            self._hold(
                path,
                node,
                ATTRIBUTES,
                (_row(*each) for each in sorted(dict(named).items()) if self._is_layer(each[1])),
            )
        for component, child in sorted(named, key=itemgetter(0)):
            lone = child.role is Role.SEED and seeds == 1
            yield _join(path, component), child, path if lone else ""

    def _listed(self, node: Node, named: Iterable[tuple[str, Node]]) -> Iterator[Layer]:
        """The layers in a list or dict, in order, and the variables in a list."""
        components = {id(child): component for component, child in named}
        called = Counter(given_name(child.label) for _, child in node.children)
        for child in {id(child): child for _, child in node.children}.values():
            component = components[id(child)]
            if child.role is Role.WEIGHT and child.kind is NodeKind.VALUE and component.isdecimal():
                own = given_name(child.label)
                own = own if called[own] == 1 else ""
                yield Layer(component, own, given=bool(own), cls=VARIABLE)
            elif self._is_layer(child):
                yield _row(component, child)

    def _is_layer(self, node: Node) -> bool:
        return node.kind not in (NodeKind.VALUE, NodeKind.OPTIMIZER) and self._holds(node)

    def _holds(self, node: Node) -> bool:
        return id(node) in self._holding

    def _value_name(self, path: str, node: Node, owner: str) -> str:
        root = path.partition("/")[0]
        if node.role is not Role.SEED or root not in self._keras_roots:
            return path
        below = owner if "/" in owner else path
        return self._special(root, SEED, below.partition("/")[2])

    def _special(self, root: str, kind: str, rest: str) -> str:
        return f"{kind}/{rest}" if root == MODEL else f"{root}/{kind}/{rest}"

    def _name_metric(self, path: str, name: str, metric: Node) -> None:
        root, _, rest = path.partition("/")
        special = root in self._keras_roots
        prefix = self._special(root, METRICS, _join(rest, name)) if special else _join(path, name)
        for edge, value in metric.children:
            if id(value) not in self._names:
                self._names[id(value)] = f"{prefix}/{edge}"
                self._add(f"{prefix}/{edge}", value, Role.METRIC)

    def _name_slots(self, path: str, optimizer: Node) -> None:
        for slot, of, value in optimizer.slots:
            variable = self._names.get(id(of), of.label)
            short = variable.removeprefix(MODEL + "/")
            if id(value) not in self._names:
                self._names[id(value)] = name = f"{path}/{slot}/{short}"
                self._add(name, value, Role.SLOT, slot, variable)

    def _add(self, name: str, node: Node, role: Role, slot: str = "", of: str = "") -> None:
        if name in self._values:  # two values with one name: a key with a slash
            name = free_name(name, self._values.__contains__)
        self._values[name] = Name(name, node, role, slot, of)


def _row(place: str, node: Node, wires: Mapping[int, tuple[str, str]] | None = None) -> Layer:
    """A layer as it stands in a container."""
    own, auto = _one_level(node.label), bool(node.base and node.label)
    return Layer(
        place,
        own,
        auto,
        node.given if node.given is not None or auto or not own else True,
        node.base or node.cls,
        name_number(own) if auto else -1,
        *(wires or {}).get(id(node), ("", "")),
        node.settings,
        node.beside,
        trainable=node.trainable,
    )


def _one_level(label: str) -> str:
    """A layer's name as one component: Keras 3 has `conv1_conv` for tf_keras's `conv1/conv`."""
    return label.replace("/", "_")


def _join(path: str, component: str) -> str:
    return f"{path}/{component}" if path else component
