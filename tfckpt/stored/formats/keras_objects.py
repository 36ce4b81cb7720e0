"""Reads a file with a group per object into the tree that :mod:`tfckpt.core.names` names.

Keras 3 writes this layout, and tf_keras for ``.weights.h5`` and ``.keras``: each attribute that is
an object has a group, in which a group ``vars`` has the object's own values by index. Layers in a
model or a list are numbered per class, ``layers/dense_1``; newer files also have their names. What
neither the file nor the configuration has stays open: the name of a layer, the meaning of a value,
the order of layers of different classes.

An optimizer's values are known by their index alone: the iterations, the learning rate unless a
schedule computes it, then the slots, in an order that depends on the class, its settings, the
release and on what was frozen. A live optimizer of the same class has them in the same order.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfckpt.core import names
from tfckpt.core.inventory import Entry, Role, snake_case, weak_base
from tfckpt.core.names import Node, NodeKind
from tfckpt.core.optimizer_names import LOSS_SCALE, optimizer_class, optimizer_value
from tfckpt.stored.formats.keras_config import class_of, is_trainable, mapping, text, wire
from tfckpt.stored.formats.keras_layers import (
    class_and_number,
    own_names,
    part_class,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Inventory
    from tfckpt.stored.formats.checkpoint import Address
    from tfckpt.stored.formats.hdf5 import H5Dataset, H5Group, Hdf5

VARS = "vars"
# Keras 2.12 and 2.13 wrote the second.
SEQUENCES = ("layers", "_layer_checkpoint_dependencies")
OPTIMIZER, METRICS = "optimizer", ("metrics", "_metrics", "_compile_metrics", "_loss_tracker")
_SEED = "seed_generator"
_INNER = "inner_optimizer"
_INSIDE = re.compile(r"container(_[1-9]\d*)?")  # a list in a list
_SCALE = ("iterations", "learning_rate", "step_counter", "dynamic_scale")


def read(reader: ObjectReader, path: str, config: Mapping[str, Any]) -> Inventory:
    """The inventory of a model's file, or of all its shards.

    ``config`` is the model's configuration, empty if there is none.
    """
    root, model = reader.root, reader.model(config)
    wire(reader.configs)
    roots = {names.MODEL: model}
    settings = _optimizer_config(config)
    if (state := root.groups.get(OPTIMIZER)) is not None:
        roots[OPTIMIZER] = _optimizer(reader, state, settings)
    named = names.assign(roots, {names.MODEL})
    entries = (*map(entry, named.values), *_metrics(root))
    batches = accumulation(settings)
    return named.inventory(path, entries, own=reader.orders, accumulation=batches)


def entry(value: names.Name) -> Entry:
    """The entry of a named array."""
    dataset = value.node.value
    return Entry(
        value.name,
        value.role,
        dataset.dtype,
        dataset.shape,
        dataset.nbytes,
        dataset.path,
        value.slot,
        value.of,
    )


def _optimizer(reader: ObjectReader, group: H5Group, config: Mapping[str, Any]) -> Node:
    node = Node(NodeKind.OPTIMIZER)
    if (inner := group.groups.get(_INNER)) is not None:
        take_scale(node, _values(group))
        config, group = mapping(mapping(config, "config"), _INNER), inner
    node.label = snake_case(class_of(config)) or optimizer_class(reader.label(group))
    reader.orders.append((node, [(value, "") for value in fill(node, _values(group))]))
    for name, child in group.groups.items():  # a list of optimizers
        if name != VARS:
            inner_node = Node(NodeKind.GROUP)
            node.children.append((name, inner_node))
            for dataset in child.walk():
                edge = dataset.path.removeprefix(f"{child.path}/")
                inner_node.children.append(
                    (edge, Node(NodeKind.VALUE, role=Role.SLOT, value=dataset))
                )
    return node


def _values(group: H5Group) -> list[H5Dataset]:
    stored = group.groups.get(VARS)
    if stored is None:
        return []
    return [stored.datasets[key] for key in sorted(stored.datasets, key=natural)]


def _metrics(root: H5Group) -> Iterator[Entry]:
    """The metrics that tf_keras stores, by its own edges: it does not store their names."""
    for group in filter(None, map(root.groups.get, METRICS)):
        for data in group.walk():
            name = f"{names.METRICS}/{data.path.removeprefix(group.path + '/')}"
            yield Entry(name, Role.METRIC, data.dtype, data.shape, data.nbytes, data.path)


def _optimizer_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    optimizer = mapping(config, "compile_config").get("optimizer")
    if isinstance(optimizer, str):
        return {"class_name": optimizer}
    return optimizer if isinstance(optimizer, dict) else {}


def accumulation(config: Mapping[str, Any]) -> dict[str, int]:
    """Path of the optimizer → how many batches make an update, if its configuration says so."""
    while inner := mapping(mapping(config, "config"), _INNER):
        config = inner
    batches = mapping(config, "config").get("gradient_accumulation_steps")
    return {OPTIMIZER: batches} if isinstance(batches, int) else {}


def fill(node: Node, values: Sequence[H5Dataset]) -> list[Node]:
    """Add an optimizer's values to its node; returns their nodes in the order of the file."""
    nodes = []
    for index, value in enumerate(values):
        name, role = f"vars/{index}", Role.SLOT
        if index == 0 and value.shape == () and "int" in value.dtype:
            name, role = optimizer_value("iterations")
        elif index == 1 and value.shape == () and (len(values) == 2 or values[2].shape):
            name, role = optimizer_value("learning_rate")
        nodes.append(Node(NodeKind.VALUE, role=role, value=value))
        node.children.append((name, nodes[-1]))
    return nodes


def take_scale(node: Node, values: Sequence[H5Dataset]) -> Sequence[H5Dataset]:
    """Add a loss scale's own values to the node of its optimizer; returns those that follow.

    It has no scale before the first step, when its optimizer has an iteration and a rate at most.
    """
    own = values[: len(_SCALE)]
    if len(own) < 3 or any(value.shape for value in own) or "int" not in own[2].dtype:
        return values
    own = own if len(values) > len(_SCALE) else own[:2]
    group = Node(NodeKind.GROUP)
    for edge, value in zip(_SCALE, own, strict=False):
        name, role = optimizer_value(edge)
        group.children.append((name, Node(NodeKind.VALUE, role=role, value=value)))
    node.children.append((LOSS_SCALE, group))
    return values[len(own) :]


class ObjectReader:
    """Turns groups into nodes; ``files`` are the file or all shards, for the names in attributes.

    What a list, tuple or dict holds, however deeply, is named as the live model's ``addresses``
    say; without such a model, by its number within its class.

    Attributes:
        root: the group of the model.
        orders: nodes of layers, each with its own values in order.
        configs: models whose order of layers is in a configuration, each with it.
    """

    def __init__(
        self,
        files: Sequence[Hdf5],
        root: H5Group,
        bases: Collection[str],
        addresses: Callable[[], Mapping[str, Address]],
    ) -> None:
        self.root = root
        self._files = files
        self._bases = bases
        self._find_addresses = addresses
        self._nodes: dict[str, Node] = {}  # by group
        self._placed: list[tuple[str, Node]] = []  # by the path of the live counterpart
        self.orders: list[tuple[Node, list[tuple[Node, str]]]] = []
        self.configs: list[tuple[Node, Mapping[str, Any]]] = []

    def model(self, config: Mapping[str, Any]) -> Node:
        """The node of the file's model."""
        root = self.root
        node = self._layer(root, snake_case(class_of(config)), config, top=True)
        node.label = self.label(root)
        self._place(node)
        return node

    @cached_property
    def _addresses(self) -> Mapping[str, Address]:
        """What the live model says, if its layers are those of the file.

        The other Keras walks a model in another order.
        """
        found, state = self._find_addresses(), (OPTIMIZER, *METRICS)
        paths = (f"/{dataset.path}".rpartition(f"/{VARS}/")[0][1:] for dataset in self.root.walk())
        groups = {path for path in paths if path.partition("/")[0] not in state}
        return found if groups == {group for group, one in found.items() if one.holds} else {}

    def _place(self, model: Node) -> None:
        """Add the layers with a live counterpart to what holds them there."""
        holders = {names.MODEL: model}
        for group, node in self._nodes.items() if self._placed else ():
            if group in self._addresses:
                holders[self._addresses[group].path] = node
        for path, layer in self._placed:
            node, at, held = layer, path, False
            while at and not held:
                at, _, edge = at.rpartition("/")
                held = at in holders
                holder = holders.setdefault(at, Node(NodeKind.LIST, indexed=edge.isdecimal()))
                holder.children.append((edge, node))
                node = holder
        for holder in holders.values():
            if holder.indexed:
                holder.children.sort(key=lambda child: natural(child[0]))

    def _layer(
        self, group: H5Group, cls: str, config: Mapping[str, Any], *, top: bool = False
    ) -> Node:
        node = Node(NodeKind.GROUP, cls=cls)
        settings = mapping(config, "config")
        node.label = self.label(group) or text(settings, "name")
        node.base = weak_base(node.label, self._bases, cls)
        node.trainable = is_trainable(settings)
        cls = node.cls = cls or node.base
        self._nodes[group.path] = node
        self._own(node, group, settings)
        for name, child in group.groups.items():
            if name == VARS or (top and name in (OPTIMIZER, *METRICS)):
                continue
            if name in SEQUENCES:
                self._add_layers(node, child, settings)
            elif _is_seed(name, child):
                node.children.append((name, self._seed(child)))
            elif _is_list(child) and child.path not in self._addresses:
                if (listed := self._list(child)).children:
                    node.children.append((name, listed))
            else:
                part = name.lstrip("_")
                own = mapping(settings, part)
                inner = own or self._wrapped(settings, part)
                kind = snake_case(class_of(inner)) or part_class(cls, part)
                node.children.append((name, layer := self._layer(child, kind, inner)))
                if not own:
                    layer.trainable = None  # the configuration is that of another one
        return node

    def _wrapped(self, settings: Mapping[str, Any], part: str) -> Mapping[str, Any]:
        """The configuration of a layer that a Bidirectional layer made from its argument."""
        return mapping(settings, "layer") if part in ("forward_layer", "backward_layer") else {}

    def _own(self, node: Node, group: H5Group, settings: Mapping[str, Any]) -> None:
        """Add the layer's own values to its node."""
        stored = group.groups.get(VARS)
        if stored is None:
            return
        numbered = sorted((key for key in stored.datasets if key.isdecimal()), key=natural)
        quantized = any(stored.datasets[key].dtype == "int8" for key in numbered)
        known = None if quantized else own_names(node.cls, len(numbered), settings)
        values = []
        for index, key in enumerate(numbered):
            name = known[index] if known else f"{VARS}/{key}"
            value = Node(NodeKind.VALUE, value=stored.datasets[key])
            node.children.append((name, value))
            values.append(value)
        for key, dataset in stored.datasets.items():
            if not key.isdecimal():  # named by the layer
                node.children.append((key, Node(NodeKind.VALUE, value=dataset)))
        if [str(number) for number in range(len(numbered))] == numbered and numbered:
            self.orders.append((node, [(value, "") for value in values]))

    def _add_layers(self, node: Node, group: H5Group, settings: Mapping[str, Any]) -> None:
        """Add the layers of a functional or sequential model to its node."""
        node.kind = NodeKind.SEQUENCE
        configs = list(_configs(settings))
        settings_of = {name: config for name, config in configs if name in group.groups}
        complete = bool(configs) and all(
            name in settings_of for name, child in group.groups.items() if any(child.walk())
        )
        order = list(settings_of) if complete else sorted(group.groups, key=_by_class(group))
        read = [
            (name, self._layer_in_list(group, name, settings_of.get(name, {}))) for name in order
        ]
        node.layers = [
            layer for name, layer in read if complete or not self._has_place(group, name, layer)
        ]
        if not node.layers:
            node.kind = NodeKind.GROUP
            return
        node.sizes = (len(order),)
        if complete:
            node.order = "keras"
            self.configs.append((node, settings))
        else:
            node.order = "class"

    def _list(self, group: H5Group) -> Node:
        """The node of a list, tuple or dict of layers, whose indices the file does not have."""
        node = Node(NodeKind.LIST, order="class")
        for name in sorted(group.groups, key=_by_class(group)):
            if _INSIDE.fullmatch(name) and VARS not in group.groups[name].groups:
                layer = self._list(group.groups[name])
            else:
                layer = self._layer_in_list(group, name, {})
                if self._has_place(group, name, layer):
                    continue
            node.children.append((name, layer))
        return node

    def _has_place(self, group: H5Group, name: str, layer: Node) -> bool:
        """Whether a layer is added where its live counterpart is, which has no other given name."""
        address = self._addresses.get(group.groups[name].path)
        if address is None or address.by_name:
            return False
        if layer.label not in ("", address.label) and not layer.base:
            return False
        self._placed.append((address.path, layer))
        return True

    def _layer_in_list(self, group: H5Group, name: str, config: Mapping[str, Any]) -> Node:
        cls = snake_case(class_of(config))
        cls = cls or class_and_number(name, group.groups)[0]
        node = self._layer(group.groups[name], cls, config)
        if not node.label:  # only its index within its class is known
            node.base = cls
        return node

    def _seed(self, group: H5Group) -> Node:
        (dataset,) = group.groups[VARS].datasets.values()
        return Node(NodeKind.VALUE, role=Role.SEED, value=dataset)

    def label(self, group: H5Group) -> str:
        """The object's name, which newer files have in the attributes of ``vars``."""
        stored = group.groups.get(VARS)
        if stored is None:
            return ""
        owners = ((file, file.root.find(stored.path)) for file in self._files)
        named = (file.text(own, "name") for file, own in owners if own is not None)
        return next(filter(None, named), "")


def _is_seed(name: str, group: H5Group) -> bool:
    stored = group.groups.get(VARS)
    return _SEED in name and stored is not None and len(stored.datasets) == 1


def _is_list(group: H5Group) -> bool:
    """Whether a group is a list of layers: without values, and with members named after classes.

    In older files a layer without own values looks the same; matching tells the two apart.
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
    """The layers in a model's configuration by the names of their groups in the file."""
    layers = settings.get("layers")
    counts: dict[str, int] = {}
    for layer in layers if isinstance(layers, list) else ():
        if not isinstance(layer, dict) or ".ops" in text(layer, "module"):
            continue
        cls = snake_case(class_of(layer))
        number = counts.get(cls, 0)
        counts[cls] = number + 1
        yield f"{cls}_{number}" if number else cls, layer


def _by_class(group: H5Group) -> Any:
    return lambda name: class_and_number(name, group.groups)


def natural(key: str) -> tuple[int, str]:
    return len(key), key
