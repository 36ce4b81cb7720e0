"""Reads configurations written by Keras, without trusting their types.

The configuration of a functional model has the inputs of each layer call: Keras 3 writes the
arguments of each call, Keras 2 a list of tensors, the first of which has the keyword arguments.

Configurations may have been edited: an entry of an unexpected type counts as missing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import snake_case
from tfckpt.core.names import NodeKind, walk, with_weights
from tfckpt.core.topology import Graph, LayerCall, Tensor, wires
from tfckpt.stored.formats.keras_layers import holds_values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.names import Node

_SIDES = ("input_layers", "output_layers")


def mapping(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping under a key; empty if missing."""
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def text(config: Mapping[str, Any], key: str) -> str:
    """The string under a key; ``""`` if missing."""
    value = config.get(key)
    return value if isinstance(value, str) else ""


def is_trainable(settings: Mapping[str, Any]) -> bool | None:
    """Whether a layer of this configuration was not frozen; None if it does not say."""
    value = settings.get("trainable")
    return value if isinstance(value, bool) else None


def class_of(config: Mapping[str, Any]) -> str:
    """The class of an object, without the package that it is registered under."""
    return text(config, "class_name").rpartition(">")[2]


def wire(configs: Sequence[tuple[Node, Mapping[str, Any]]]) -> None:
    """Set ``wires`` of each model's node: how its layers are connected.

    Skipped if a layer may have weights that the file has elsewhere or not at all, since the live
    model counts that layer among those with weights.
    """
    below = (
        node for model, _ in configs for node in walk(model) if node.kind is not NodeKind.VALUE
    )
    holding = with_weights(model for model, _ in configs)
    elsewhere = {node.label for node in below if node.label and id(node) in holding}
    for model, settings in configs:
        layers = {text(layer, "name"): layer for layer in _layers(settings)}
        weighty = [node for node in model.layers if id(node) in holding]
        nodes = {node.label: node for node in weighty}
        others = layers.keys() - nodes.keys()
        classes = {snake_case(class_of(layers[name])) for name in others}
        complete = len(nodes) == len(weighty) and nodes.keys() <= layers.keys()
        if complete and not others & elsewhere and not any(map(holds_values, classes)):
            with contextlib.suppress(_AmbiguousConfigError, RecursionError):
                model.wires = wires(_graph(settings, layers), nodes)


class _AmbiguousConfigError(Exception):
    """The configuration is ambiguous, or not that of a functional model."""


def _layers(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    layers = settings.get("layers")
    return [each for each in layers if isinstance(each, dict)] if isinstance(layers, list) else []


def _graph(settings: Mapping[str, Any], layers: Mapping[str, Mapping[str, Any]]) -> Graph:
    inbound = {name: layer.get("inbound_nodes") for name, layer in layers.items()}
    nodes = {name: each if isinstance(each, list) else [] for name, each in inbound.items()}
    exact: dict[tuple[str, int], list[Tensor]] = {}
    shifted: dict[tuple[str, int], list[Tensor]] = {}
    for name, calls_of in nodes.items():
        for index, node in enumerate(calls_of):
            into = exact if _is_keras3(node) else shifted
            into[name, index] = tensors = _inputs(node, nodes)
            if not tensors:
                raise _AmbiguousConfigError
    sides = [_tensors(_leaves(settings.get(side)), nodes) for side in _SIDES]
    if not all(sides):
        raise _AmbiguousConfigError
    exact_calls, shifted_calls = _numbers(exact.values()), _numbers([*sides, *shifted.values()])
    first = {
        name: _first_call(len(nodes[name]), exact_calls.get(name, set()), numbers)
        for name, numbers in shifted_calls.items()
    }
    inputs, outputs = (_shifted(first, tensors) for tensors in sides)
    exact |= {call: _shifted(first, tensors) for call, tensors in shifted.items()}
    calls = {call: LayerCall(class_of(layers[call[0]]), tensors) for call, tensors in exact.items()}
    return Graph(inputs, outputs, lambda tensor: calls.get((str(tensor.layer), tensor.call)))


def _is_keras3(node: Any) -> bool:
    return isinstance(node, dict) and node.keys() == {"args", "kwargs"}


def _inputs(node: Any, layer_names: Collection[str]) -> list[Tensor]:
    """The inputs of a layer call, in the same order as in the ``Graph`` of a live model."""
    if _is_keras3(node):
        return _tensors(_leaves([node["args"], node["kwargs"]]), layer_names)
    leaves = list(_leaves(node))  # each has the keyword arguments, if any
    return _tensors([*leaves, *_leaves(leaves[0][3:] if leaves else [])], layer_names)


def _tensors(leaves: Iterable[Sequence[Any]], layer_names: Collection[str]) -> list[Tensor]:
    """The tensors among candidates: a constant may look like one."""
    return [
        Tensor(*leaf[:3]) for leaf in leaves if leaf[0] in layer_names and isinstance(leaf[2], int)
    ]


def _leaves(value: Any) -> Iterator[Sequence[Any]]:
    """``[layer name, call index, output index, …]`` of each tensor in a structure.

    TensorFlow sorts the keys of a dict, Keras 3 does not sort those of an ordered one, and tf_keras
    writes positional arguments as keywords: the order is certain only if the keys are sorted.
    """
    if isinstance(value, list):
        if len(value) in (3, 4) and isinstance(value[0], str) and isinstance(value[1], int):
            yield value
        else:
            for each in value:
                yield from _leaves(each)
    elif isinstance(value, dict):
        kind = value.get("class_name")
        if kind == "__keras_tensor__":
            yield from _leaves(mapping(value, "config").get("keras_history"))
        elif kind == "__tuple__":
            yield from _leaves(value.get("items"))
        elif kind is None:
            leaves_of = {key: list(_leaves(each)) for key, each in value.items()}
            keys = [key for key, leaves in leaves_of.items() if leaves]
            if keys != sorted(keys):
                raise _AmbiguousConfigError
            for key in keys:
                yield from leaves_of[key]


def _numbers(structures: Iterable[Iterable[Tensor]]) -> dict[str, set[int]]:
    """Layer → the indices of its calls whose outputs are among the tensors."""
    calls: dict[str, set[int]] = {}
    for tensor in (tensor for tensors in structures for tensor in tensors):
        calls.setdefault(str(tensor.layer), set()).add(tensor.call)
    return calls


def _first_call(count: int, exact: set[int], shifted: set[int]) -> int:
    """The index of a layer's first call: 1 for an inner model, whose own inputs are call 0.

    Keras 3 counts so in the outputs of the whole model, Keras 2 everywhere. Every call is used.
    """
    if not count:
        return 0
    starts = [at for at in (0, 1) if exact | {each - at for each in shifted} == {*range(count)}]
    if len(starts) != 1:
        raise _AmbiguousConfigError
    return starts[0]


def _shifted(first: Mapping[str, int], tensors: Iterable[Tensor]) -> list[Tensor]:
    return [each._replace(call=each.call - first[str(each.layer)]) for each in tensors]
