"""``.h5`` files in the format of Keras 2, which Keras 3 still writes: weights, or a whole model.

The root, or its group ``model_weights``, lists the model's layers. Each layer's group lists its
values and those of its inner layers, trainable ones first, by the variables' own names:
``bidirectional/forward_lstm/lstm_cell/kernel:0``. These names consist of scopes, not attributes, so
values match by their index in the layer's list. The file of a whole model also has the model's
configuration, from which the order of layers in inner models is read.

Refused are files of Keras 1, whose layout differs, and of Theano and CNTK, whose kernels are
flipped.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tfckpt.core import names
from tfckpt.core.inventory import snake_case, weak_base
from tfckpt.core.names import Node, NodeKind
from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.formats.keras_config import class_of, is_trainable, mapping, text, wire
from tfckpt.stored.formats.keras_layers import attributes
from tfckpt.stored.formats.keras_objects import accumulation, entry, fill, take_scale

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Inventory
    from tfckpt.stored.formats.hdf5 import H5Dataset, H5Group, Hdf5

_LAYERS, _VALUES, _INNER = "layer_names", "weight_names", "model_weights"
_INNER_OPTIMIZER = "inner_optimizer"
_TOP, _STATE = "top_level_model_weights", "optimizer_weights"
_MODELS = frozenset({"Functional", "Model", "Sequential"})
_FLIPPED = ("theano", "cntk")


def is_legacy(root: H5Group) -> bool:
    """Whether a file lists layers, or values of layers, in the format of Keras 2."""
    listing = {_LAYERS, f"{_LAYERS}0"} & root.attributes
    inner = (group.attributes & {_VALUES, f"{_VALUES}0"} for group in root.groups.values())
    return _INNER in root.groups or bool(listing) or any(inner)


def read(file: Hdf5, path: str, bases: Collection[str]) -> Inventory:
    """The inventory of such a file."""
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
        self._batches: dict[str, int] = {}

    def read(self) -> Inventory:
        self._check_writer()
        config = self._json("model_config")
        model = self._model(config)
        wire(self._configs)
        roots = {names.MODEL: model}
        if (state := self._file.root.groups.get(_STATE)) is not None:
            roots[names.OPTIMIZER] = self._optimizer(state)
        named = names.assign(roots, {names.MODEL})
        entries, batches = map(entry, named.values), self._batches
        return named.inventory(self._path, entries, self._own, self._deep, accumulation=batches)

    def _optimizer(self, group: H5Group) -> Node:
        config = mapping(self._json("training_config"), "optimizer_config")
        self._batches = accumulation(config)
        scaled = not config
        while inner := mapping(mapping(config, "config"), _INNER_OPTIMIZER):
            config, scaled = inner, True
        label = snake_case(class_of(config))  # tf_keras: `Custom>Adam`
        node = Node(NodeKind.OPTIMIZER, label=label)
        listed = self._listed(group)
        values: Sequence[H5Dataset] = [value for _, value in listed]
        values = take_scale(node, values) if scaled else values
        names_of = [path for path, _ in listed][-len(values) :]
        self._own.append((node, list(zip(fill(node, values), names_of, strict=True))))
        return node

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
        label = text(mapping(config, "config"), "name")
        model = Node(NodeKind.SEQUENCE, label=label, order="keras")
        self._configs.append((model, mapping(config, "config")))
        configs = dict(_layers(config))
        for name in self._names(self._top, _LAYERS):
            if (group := self._top.find(name)) is None:
                message = f"lists the layer {name!r} but has no group of that name"
                raise DamagedCheckpointError(message, path=self._path, name=name)
            layer = self._layer(name, configs.get(name, {}))
            listed = self._listed(group)
            self._add_values(layer, name, listed, configs.get(name, {}))
            model.layers.append(layer)
        model.sizes = (len(model.layers),)
        if (own := self._top.groups.get(_TOP)) is not None:
            values = [(Node(NodeKind.VALUE, value=data), path) for path, data in self._listed(own)]
            model.children.extend((path.rpartition("/")[2], value) for value, path in values)
            self._own.append((model, values))
        return model

    def _layer(self, name: str, config: Mapping[str, Any]) -> Node:
        node = Node(NodeKind.GROUP, label=name, cls=snake_case(class_of(config)))
        node.base = weak_base(name, self._bases, node.cls)
        node.trainable = is_trainable(mapping(config, "config"))
        return node

    def _listed(self, group: H5Group) -> list[tuple[str, H5Dataset]]:
        """The values that a group lists, by their names without ``:0``."""
        listed = []
        for name in self._names(group, _VALUES):
            if (dataset := group.dataset(name)) is None:
                message = f"the group lists {name!r} but does not contain it"
                raise DamagedCheckpointError(message, path=self._path, name=group.path)
            listed.append((re.sub(r":\d+$", "", name), dataset))
        if len({id(dataset) for _, dataset in listed}) != len(listed):
            message = "the group lists a value twice"
            raise DamagedCheckpointError(message, path=self._path, name=group.path)
        return listed

    def _names(self, group: H5Group, attribute: str) -> list[str]:
        """The names in a group's list; a group that holds values must have the list."""
        listed = self._file.texts(group, attribute)
        if listed is None and any(True for _ in group.walk()):
            message = (
                f"the group holds values but lacks the attribute {attribute!r}, which lists them"
            )
            raise DamagedCheckpointError(message, path=self._path, name=group.path)
        return listed or []

    def _add_values(
        self,
        layer: Node,
        name: str,
        listed: Sequence[tuple[str, H5Dataset]],
        config: Mapping[str, Any],
    ) -> None:
        """Add a layer's values to its node, by scope, or by inner layer where these are known."""
        values = [(Node(NodeKind.VALUE, value=dataset), path) for path, dataset in listed]
        self._deep.append((layer, values))
        cls = layer.cls or layer.base
        below = ((value, _below(path.split("/"), name)) for value, path in values)
        relative = [(value, attributes(cls, parts)) for value, parts in below]
        self._spread(layer, relative, config)

    def _spread(
        self, node: Node, values: Sequence[tuple[Node, list[str]]], config: Mapping[str, Any]
    ) -> None:
        inner = dict(_layers(config)) if class_of(config) in _MODELS else {}
        if inner and all(len(parts) > 1 and parts[0] in inner for _, parts in values):
            node.kind = NodeKind.SEQUENCE
            self._configs.append((node, mapping(config, "config")))
            for name, settings in inner.items():
                layer = self._layer(name, settings)
                cls = layer.cls or layer.base
                held = [(v, attributes(cls, parts[1:])) for v, parts in values if parts[0] == name]
                self._spread(layer, held, settings)
                node.layers.append(layer)
            node.sizes = (len(inner),)
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
            document = json.loads(self._file.text(self._file.root, name) or "{}")
        except (ValueError, RecursionError) as error:
            message = f"its {name!r} attribute is not valid JSON: {error}"
            raise DamagedCheckpointError(message, path=self._path) from None
        return document if isinstance(document, dict) else {}


def _below(parts: list[str], layer: str) -> list[str]:
    """The components of a variable's name after the layer's own name."""
    if layer in parts[:-1]:
        return parts[parts.index(layer) + 1 :]
    return parts


def _layers(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The layers in a model's configuration by name; old sequential models have the bare list."""
    settings = config.get("config")
    layers = settings.get("layers") if isinstance(settings, dict) else settings
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and (name := text(mapping(layer, "config"), "name")):
            yield name, layer
