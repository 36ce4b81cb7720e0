"""An ``.h5`` file as Keras 2 wrote them, and Keras 3 still does: weights alone, or a whole model.

The root, or its group ``model_weights``, lists the model's layers, and each layer's group its
values with those of all layers inside, trainable ones first, by the names that the variables had:
``bidirectional/forward_lstm/lstm_cell/kernel:0``. These names are of scopes, not of attributes, so
below a layer they are words of the file; a value's place in the layer's list says which it is.
A whole model's file has its configuration too, which tells the order of layers in inner models.

Keras 1 laid its values out otherwise, and Theano's and CNTK's kernels are flipped: refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tfckpt.core import names
from tfckpt.core.automatic_names import snake_case, weak_base
from tfckpt.core.inventory import Inventory, Ordered
from tfckpt.core.names import Node, NodeKind
from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.keras.model import entry
from tfckpt.stored.keras.slots import optimizer_node
from tfckpt.stored.keras_metadata.config import mapping, text, wire
from tfckpt.stored.keras_metadata.layers import attributes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.stored.keras.hdf5 import H5Dataset, H5Group, Hdf5

_LAYERS, _VALUES, _INNER = "layer_names", "weight_names", "model_weights"
_TOP, _STATE = "top_level_model_weights", "optimizer_weights"
_MODELS = frozenset({"Functional", "Model", "Sequential"})
_FLIPPED = ("theano", "cntk")


def is_legacy(root: H5Group) -> bool:
    """Whether a file lists layers, or values of layers, as one of Keras 2 does."""
    listing = {_LAYERS, f"{_LAYERS}0"} & root.attributes
    inner = (group.attributes & {_VALUES, f"{_VALUES}0"} for group in root.groups.values())
    return _INNER in root.groups or bool(listing) or any(inner)


def read(file: Hdf5, path: str, bases: Collection[str]) -> Inventory:
    """The inventory of such a file.

    Raises:
        DamagedCheckpointError: a layer or value that it lists is not there.
        UnsupportedCheckpointError: Keras 1 wrote it, or a backend with kernels of its own.
    """
    return _H5Reader(file, path, bases).read()


class _H5Reader:
    def __init__(self, file: Hdf5, path: str, bases: Collection[str]) -> None:
        self._file = file
        self._path = path
        self._bases = bases
        self._top = file.root.groups.get(_INNER, file.root)
        self._deep: list[tuple[Node, list[tuple[Node, str]]]] = []
        self._own: list[tuple[Node, list[tuple[Node, str]]]] = []
        self._configs: list[tuple[Node, Mapping[str, Any]]] = []

    def read(self) -> Inventory:
        self._check_writer()
        config = self._json("model_config")
        model = self._model(config)
        wire(self._configs)
        roots = {names.MODEL: model}
        if (state := self._file.root.groups.get(_STATE)) is not None:
            listed = self._listed(state)
            settings = mapping(self._json("training_config"), "optimizer_config")
            variables = [
                (value, path) for _, found in self._deep + self._own for value, path in found
            ]
            roots[names.OPTIMIZER], made = optimizer_node(listed, settings, variables)
            if any(name.startswith("vars/") for name, _ in roots[names.OPTIMIZER].children):
                self._own.append((roots[names.OPTIMIZER], made))
        named = names.assign(roots, {names.MODEL})
        called = {id(value.node): value.name for value in named.values}
        own, deep = (
            {
                named.paths[id(node)]: tuple(Ordered(called[id(v)], path) for v, path in found)
                for node, found in orders
            }
            for orders in (self._own, self._deep)
        )
        return Inventory(
            self._path,
            {value.name: entry(value) for value in named.values},
            named.sequences,
            named.aliases,
            named.optimizers,
            own_orders=own,
            deep_orders=deep,
            listed=frozenset({names.MODEL} & named.sequences.keys()),
        )

    def _check_writer(self) -> None:
        version = self._file.text(self._top, "keras_version") or "1"
        if version.partition(".")[0] == "1":
            message = "was written by Keras 1, whose weight layout differs"
            hint = "Load it with Keras 2 (up to 2.15, or tf_keras) and save it again."
            raise UnsupportedCheckpointError(message, path=self._path, hint=hint)
        backend = self._file.text(self._top, "backend") or ""
        if backend in _FLIPPED:
            message = (
                f"was written with the {backend!r} backend, whose convolution kernels are flipped"
            )
            hint = "Load it with Keras 2 on that backend; save it with the TensorFlow backend."
            raise UnsupportedCheckpointError(message, path=self._path, hint=hint)

    def _model(self, config: Mapping[str, Any]) -> Node:
        model = Node(NodeKind.SEQUENCE, label=text(mapping(config, "config"), "name"))
        self._configs.append((model, mapping(config, "config")))
        configs = dict(_layers(config))
        for name in self._names(self._top, _LAYERS):
            if (group := self._top.find(name)) is None:
                message = f"lists the layer {name!r} but has no group of that name"
                raise DamagedCheckpointError(message, path=self._path, name=name)
            layer = self._layer(name, configs.get(name, {}))
            listed = self._listed(group)
            self._hang(layer, name, listed, configs.get(name, {}))
            model.layers.append(layer)
        if (own := self._top.groups.get(_TOP)) is not None:
            values = [(Node(NodeKind.VALUE, value=data), path) for path, data in self._listed(own)]
            model.children.extend((path.rpartition("/")[2], value) for value, path in values)
            self._own.append((model, values))
        return model

    def _layer(self, name: str, config: Mapping[str, Any]) -> Node:
        node = Node(NodeKind.GROUP, label=name, cls=snake_case(text(config, "class_name")))
        node.base = weak_base(name, self._bases)
        return node

    def _listed(self, group: H5Group) -> list[tuple[str, H5Dataset]]:
        """The values that a group lists, by their names without the number of the output."""
        found = []
        for name in self._names(group, _VALUES):
            if (dataset := group.dataset(name)) is None:
                message = f"the group lists {name!r} but does not contain it"
                raise DamagedCheckpointError(message, path=self._path, name=group.path)
            found.append((re.sub(r":\d+$", "", name), dataset))
        if len({id(dataset) for _, dataset in found}) != len(found):
            message = "the group lists a value twice"
            raise DamagedCheckpointError(message, path=self._path, name=group.path)
        return found

    def _names(self, group: H5Group, attribute: str) -> list[str]:
        """What a group lists; one that holds values must list something."""
        found = self._file.texts(group, attribute)
        if found is None and any(True for _ in group.walk()):
            message = (
                f"the group holds values but lacks the attribute {attribute!r}, which lists them"
            )
            raise DamagedCheckpointError(message, path=self._path, name=group.path)
        return found or []

    def _hang(
        self,
        layer: Node,
        name: str,
        listed: Sequence[tuple[str, H5Dataset]],
        config: Mapping[str, Any],
    ) -> None:
        """Hang a layer's values below it, by scope, or by inner layer where those are known."""
        values = [(Node(NodeKind.VALUE, value=dataset), path) for path, dataset in listed]
        self._deep.append((layer, values))
        cls = layer.cls or layer.base
        below = ((value, _below(path.split("/"), name)) for value, path in values)
        relative = [(value, attributes(cls, parts)) for value, parts in below]
        self._spread(layer, relative, config)

    def _spread(
        self, node: Node, values: Sequence[tuple[Node, list[str]]], config: Mapping[str, Any]
    ) -> None:
        inner = dict(_layers(config)) if text(config, "class_name") in _MODELS else {}
        if inner and all(len(parts) > 1 and parts[0] in inner for _, parts in values):
            node.kind = NodeKind.SEQUENCE
            self._configs.append((node, mapping(config, "config")))
            for name, settings in inner.items():
                layer = self._layer(name, settings)
                cls = layer.cls or layer.base
                held = [(v, attributes(cls, parts[1:])) for v, parts in values if parts[0] == name]
                self._spread(layer, held, settings)
                node.layers.append(layer)
            return
        groups: dict[tuple[str, ...], Node] = {(): node}
        for value, parts in values:
            for end in range(1, len(parts)):
                path = tuple(parts[:end])
                if path not in groups:
                    groups[path] = Node(NodeKind.GROUP)
                    groups[path[:-1]].children.append((path[-1], groups[path]))
            groups[tuple(parts[:-1])].children.append((parts[-1], value))

    def _json(self, name: str) -> Mapping[str, Any]:
        try:
            found = json.loads(self._file.text(self._file.root, name) or "{}")
        except (ValueError, RecursionError) as error:
            message = f"its {name!r} attribute is not valid JSON: {error}"
            raise DamagedCheckpointError(message, path=self._path) from None
        return found if isinstance(found, dict) else {}


def _below(parts: list[str], layer: str) -> list[str]:
    """What stands behind the layer's own name in a variable's."""
    if layer in parts[:-1]:
        return parts[parts.index(layer) + 1 :]
    return parts


def _layers(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The layers in a model's configuration by name; of a sequential one's it once was the list."""
    settings = config.get("config")
    found = settings.get("layers") if isinstance(settings, dict) else settings
    for layer in found if isinstance(found, list) else ():
        if isinstance(layer, dict) and (name := text(mapping(layer, "config"), "name")):
            yield name, layer
