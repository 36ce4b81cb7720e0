"""A file laid out by a model's objects → the tree that :mod:`tfckpt.core.names` gives names to.

So write Keras 3, and tf_keras where the name ends with ``.weights.h5`` or ``.keras``: a group for
each object by attribute, in it a group ``vars`` with the object's own values by number. Layers in a
model or a list are numbered class by class, ``layers/dense_1``; newer files note what each is
called. What the file does not tell stays untold: a layer without a name, a value by its number, the
order of layers of two classes, unless the configuration beside it tells them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.automatic_names import snake_case, weak_base
from tfckpt.core.inventory import Role
from tfckpt.core.names import Node, NodeKind
from tfckpt.stored.keras_metadata.config import mapping, text
from tfckpt.stored.keras_metadata.layers import (
    class_and_number,
    own_names,
    part_class,
    parts_in_order,
    trained,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.stored.keras.hdf5 import H5Group, Hdf5

VARS = "vars"
# The second is what Keras 2.12 and 2.13 wrote.
SEQUENCES = ("layers", "_layer_checkpoint_dependencies")
OPTIMIZER, METRICS = "optimizer", ("metrics", "_metrics", "_compile_metrics", "_loss_tracker")
_SEED = "seed_generator"


class ObjectReader:
    """Turns groups into nodes.

    Args:
        files: the file, or all shards, for what their groups are called.
        bases: automatic layer names.

    Attributes:
        orders: node of a layer, by its id → that node, and its own values in order.
        unordered: the ids of stacks and lists whose layers are told class by class.
        listed: the ids of what may be a stack, or a model of which Keras lists the layers.
        called: id of the node of a layer that an attribute leads to → the layer's own name.
        configs: the stacks whose layers' order a configuration tells, each with its own.
    """

    def __init__(self, files: Sequence[Hdf5], bases: Collection[str]) -> None:
        self._files = files
        self._bases = bases
        self.orders: dict[int, tuple[Node, list[Node]]] = {}
        self.unordered: set[int] = set()
        self.listed: set[int] = set()
        self.called: dict[int, str] = {}
        self.configs: list[tuple[Node, Mapping[str, Any]]] = []
        self._trained: dict[int, list[Node] | None] = {}

    def model(self, root: H5Group, config: Mapping[str, Any]) -> Node:
        """The node of the model that the file is of."""
        node = self._layer(root, snake_case(text(config, "class_name")), config, top=True)
        node.label = self.label(root)
        return node

    def trained(self, node: Node) -> list[Node] | None:
        """The values below a node that an optimizer may train, in its order, if that is known."""
        return self._trained.get(id(node))

    def _layer(
        self, group: H5Group, cls: str, config: Mapping[str, Any], *, top: bool = False
    ) -> Node:
        node = Node(NodeKind.GROUP, cls=cls)
        settings = mapping(config, "config")
        node.label = self.label(group) or text(settings, "name")
        node.base = weak_base(node.label, self._bases)
        cls = node.cls = cls or node.base
        own = self._own(node, group, settings)
        below: dict[str, Node] = {}
        for name, child in group.groups.items():
            if name == VARS or (top and name in (OPTIMIZER, *METRICS)):
                continue
            if name in SEQUENCES:
                self._stack(node, child, settings)
            elif _is_seed(name, child):
                node.children.append((name, self._seed(child)))
            elif _is_list(child):
                node.children.append((name, self._list(child)))
                self._trained[id(node)] = None
            else:
                part = name.lstrip("_")
                inner = mapping(settings, part) or self._wrapped(settings, part)
                kind = snake_case(text(inner, "class_name")) or part_class(cls, part)
                below[part] = part_node = self._layer(child, kind, inner)
                self.called[id(part_node)] = part_node.label
                node.children.append((name, part_node))
        self._order(node, own, below)
        return node

    def _wrapped(self, settings: Mapping[str, Any], part: str) -> Mapping[str, Any]:
        """The configuration of a layer that a Bidirectional made of the one it was given."""
        return mapping(settings, "layer") if part in ("forward_layer", "backward_layer") else {}

    def _own(self, node: Node, group: H5Group, settings: Mapping[str, Any]) -> list[Node]:
        """The values of the layer itself."""
        held = group.groups.get(VARS)
        if held is None:
            return []
        numbered = sorted((key for key in held.datasets if key.isdecimal()), key=natural)
        names = own_names(node.cls, len(numbered), settings)
        values = []
        for index, key in enumerate(numbered):
            name = names[index] if names else f"{VARS}/{key}"
            value = Node(NodeKind.VALUE, value=held.datasets[key])
            node.children.append((name, value))
            values.append(value)
        for key, dataset in held.datasets.items():
            if not key.isdecimal():  # a name that the layer gave it
                node.children.append((key, Node(NodeKind.VALUE, value=dataset)))
        if [str(number) for number in range(len(numbered))] == numbered and numbered:
            self.orders[id(node)] = node, values
        return [v for i, v in enumerate(values) if not names or trained(names[i])]

    def _order(self, node: Node, own: list[Node], below: Mapping[str, Node]) -> None:
        if id(node) in self._trained and self._trained[id(node)] is None:
            return
        stacked = self._trained.get(id(node), [])
        order = parts_in_order(node.cls, list(below))
        found: list[Node] | None = [*own, *(stacked or ())]
        for part in order or ():
            inner = self._trained.get(id(below[part]))
            found = None if found is None or inner is None else [*found, *inner]
        known = order is not None and not (stacked and below)
        self._trained[id(node)] = found if known else None

    def _stack(self, node: Node, group: H5Group, settings: Mapping[str, Any]) -> None:
        """The layers of a functional or sequential model."""
        node.kind = NodeKind.SEQUENCE
        self.listed.add(id(node))
        configs = list(_configs(settings))
        told = {name: config for name, config in configs if name in group.groups}
        whole = bool(configs) and all(
            name in told for name, child in group.groups.items() if any(child.walk())
        )
        order = list(told) if whole else sorted(group.groups, key=_by_class(group))
        node.layers = [self._listed(group, name, told.get(name, {})) for name in order]
        if whole:
            self.configs.append((node, settings))
            parts = [self._trained.get(id(layer)) for layer in node.layers]
            known = [part for part in parts if part is not None]
            values = [value for part in known for value in part]
            self._trained[id(node)] = values if len(known) == len(parts) else None
        else:
            self.unordered.add(id(node))
            self._trained[id(node)] = None

    def _list(self, group: H5Group) -> Node:
        """Layers in a list, tuple or dict: their indices are not told."""
        node = Node(NodeKind.LIST)
        self.unordered.add(id(node))
        for name in sorted(group.groups, key=_by_class(group)):
            layer = self._listed(group, name, {})
            layer.told = False
            node.children.append((name, layer))
        return node

    def _listed(self, group: H5Group, name: str, config: Mapping[str, Any]) -> Node:
        cls = snake_case(text(config, "class_name"))
        cls = cls or class_and_number(name, group.groups)[0]
        node = self._layer(group.groups[name], cls, config)
        if not node.label:  # its place among those of its class is all that is known
            node.told, node.base = False, cls
        return node

    def _seed(self, group: H5Group) -> Node:
        (dataset,) = group.groups[VARS].datasets.values()
        return Node(NodeKind.VALUE, role=Role.SEED, value=dataset)

    def label(self, group: H5Group) -> str:
        """What the object is called, which newer files note on its values' group."""
        held = group.groups.get(VARS)
        if held is None:
            return ""
        owners = ((file, file.root.find(held.path)) for file in self._files)
        told = (file.text(own, "name") for file, own in owners if own is not None)
        return next(filter(None, told), "")


def _is_seed(name: str, group: H5Group) -> bool:
    held = group.groups.get(VARS)
    return _SEED in name and held is not None and len(held.datasets) == 1


def _is_list(group: H5Group) -> bool:
    """Whether a group is a list of layers: it holds no values and its members have a class's name.

    In older files a layer without values of its own looks the same; which of the two it is shows
    where it is matched.
    """
    if VARS in group.groups or group.datasets or not group.groups:
        return False
    return all(name not in SEQUENCES for name in group.groups) and not set(group.groups) & {
        "cell",
        "layer",
        "forward_layer",
        "backward_layer",
    }


def _configs(settings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The layers in a model's configuration, by the names of their groups."""
    layers = settings.get("layers")
    counts: dict[str, int] = {}
    for layer in layers if isinstance(layers, list) else ():
        if not isinstance(layer, dict) or ".ops" in text(layer, "module"):
            continue
        cls = snake_case(text(layer, "class_name"))
        number = counts.get(cls, 0)
        counts[cls] = number + 1
        yield f"{cls}_{number}" if number else cls, layer


def _by_class(group: H5Group) -> Any:
    return lambda name: class_and_number(name, group.groups)


def natural(key: str) -> tuple[int, str]:
    return len(key), key
