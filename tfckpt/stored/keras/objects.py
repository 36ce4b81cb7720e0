"""Reads a file with a group per object into the tree that :mod:`tfckpt.core.names` names.

Keras 3 writes this layout, and tf_keras for ``.weights.h5`` and ``.keras``: each attribute that is
an object has a group, in which a group ``vars`` has the object's own values by index. Layers in a
model or a list are numbered per class, ``layers/dense_1``; newer files also have their names. What
neither the file nor the configuration has stays open: the name of a layer, the meaning of a value,
the order of layers of different classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role, snake_case, weak_base
from tfckpt.core.names import Node, NodeKind
from tfckpt.stored.keras_metadata.config import mapping, text
from tfckpt.stored.keras_metadata.layers import (
    class_and_number,
    own_names,
    part_class,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.stored.keras.hdf5 import H5Group, Hdf5

VARS = "vars"
# Keras 2.12 and 2.13 wrote the second.
SEQUENCES = ("layers", "_layer_checkpoint_dependencies")
OPTIMIZER, METRICS = "optimizer", ("metrics", "_metrics", "_compile_metrics", "_loss_tracker")
_SEED = "seed_generator"


class ObjectReader:
    """Turns groups into nodes; ``files`` are the file or all shards, for the names in attributes.

    Attributes:
        orders: id of a layer's node → that node, and its own values in order.
        configs: models whose order of layers is in a configuration, each with it.
    """

    def __init__(self, files: Sequence[Hdf5], bases: Collection[str]) -> None:
        self._files = files
        self._bases = bases
        self.orders: dict[int, tuple[Node, list[Node]]] = {}
        self.configs: list[tuple[Node, Mapping[str, Any]]] = []

    def model(self, root: H5Group, config: Mapping[str, Any]) -> Node:
        """The node of the file's model."""
        node = self._layer(root, snake_case(text(config, "class_name")), config, top=True)
        node.label = self.label(root)
        return node

    def _layer(
        self, group: H5Group, cls: str, config: Mapping[str, Any], *, top: bool = False
    ) -> Node:
        node = Node(NodeKind.GROUP, cls=cls)
        settings = mapping(config, "config")
        node.label = self.label(group) or text(settings, "name")
        node.base = weak_base(node.label, self._bases, cls)
        cls = node.cls = cls or node.base
        self._own(node, group, settings)
        for name, child in group.groups.items():
            if name == VARS or (top and name in (OPTIMIZER, *METRICS)):
                continue
            if name in SEQUENCES:
                self._add_layers(node, child, settings)
            elif _is_seed(name, child):
                node.children.append((name, self._seed(child)))
            elif _is_list(child):
                node.children.append((name, self._list(child)))
            else:
                part = name.lstrip("_")
                inner = mapping(settings, part) or self._wrapped(settings, part)
                kind = snake_case(text(inner, "class_name")) or part_class(cls, part)
                node.children.append((name, self._layer(child, kind, inner)))
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
        names = None if quantized else own_names(node.cls, len(numbered), settings)
        values = []
        for index, key in enumerate(numbered):
            name = names[index] if names else f"{VARS}/{key}"
            value = Node(NodeKind.VALUE, value=stored.datasets[key])
            node.children.append((name, value))
            values.append(value)
        for key, dataset in stored.datasets.items():
            if not key.isdecimal():  # named by the layer
                node.children.append((key, Node(NodeKind.VALUE, value=dataset)))
        if [str(number) for number in range(len(numbered))] == numbered and numbered:
            self.orders[id(node)] = node, values

    def _add_layers(self, node: Node, group: H5Group, settings: Mapping[str, Any]) -> None:
        """Add the layers of a functional or sequential model to its node."""
        node.kind = NodeKind.SEQUENCE
        configs = list(_configs(settings))
        settings_of = {name: config for name, config in configs if name in group.groups}
        complete = bool(configs) and all(
            name in settings_of for name, child in group.groups.items() if any(child.walk())
        )
        order = list(settings_of) if complete else sorted(group.groups, key=_by_class(group))
        node.layers = [
            self._layer_in_list(group, name, settings_of.get(name, {})) for name in order
        ]
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
            layer = self._layer_in_list(group, name, {})
            node.children.append((name, layer))
        return node

    def _layer_in_list(self, group: H5Group, name: str, config: Mapping[str, Any]) -> Node:
        cls = snake_case(text(config, "class_name"))
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
        names = (file.text(own, "name") for file, own in owners if own is not None)
        return next(filter(None, names), "")


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
        cls = snake_case(text(layer, "class_name"))
        number = counts.get(cls, 0)
        counts[cls] = number + 1
        yield f"{cls}_{number}" if number else cls, layer


def _by_class(group: H5Group) -> Any:
    return lambda name: class_and_number(name, group.groups)


def natural(key: str) -> tuple[int, str]:
    return len(key), key
