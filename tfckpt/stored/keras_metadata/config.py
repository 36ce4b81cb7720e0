"""What a configuration that Keras wrote has under a key, where it is of the kind it should be.

Of a functional model it tells what each layer was called on: as Keras 3 writes that, with the
arguments of each call, or as Keras 2 did, with a list of tensors, the first of which has the
keyword arguments.

Anybody may have edited it: what is of another kind is as good as not there.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfckpt.core.automatic_names import snake_case
from tfckpt.core.names import NodeKind, holds_weights, walk
from tfckpt.core.topology import Graph, LayerCall, Tensor, wires
from tfckpt.stored.keras_metadata.layers import holds_values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.names import Node

_SIDES = ("input_layers", "output_layers")


def mapping(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A part of it; empty where there is none."""
    found = config.get(key)
    return found if isinstance(found, dict) else {}


def text(config: Mapping[str, Any], key: str) -> str:
    """A text in it; ``""`` where there is none."""
    found = config.get(key)
    return found if isinstance(found, str) else ""


def wire(configs: Sequence[tuple[Node, Mapping[str, Any]]]) -> None:
    """Note at the node of each functional model how its layers are wired.

    Not where a layer may have weights that the file holds elsewhere, or not at all: in a live model
    it counts among those that have some.

    Args:
        configs: nodes of functional and sequential models, each with its configuration.
    """
    below = (
        node for stack, _ in configs for node in walk(stack) if node.kind is not NodeKind.VALUE
    )
    elsewhere = {node.label for node in below if node.label and holds_weights(node)}
    for stack, settings in configs:
        layers = {text(layer, "name"): layer for layer in _layers(settings)}
        nodes = {node.label: node for node in stack.layers if holds_weights(node)}
        others = layers.keys() - nodes.keys()
        classes = {snake_case(_class(layers[name])) for name in others}
        distinct = len(nodes) == sum(map(holds_weights, stack.layers))
        whole = distinct and nodes.keys() <= layers.keys()
        if whole and not others & elsewhere and not any(map(holds_values, classes)):
            with contextlib.suppress(_AmbiguousConfigError, RecursionError):
                stack.wires = wires(_graph(settings, layers), nodes)


class _AmbiguousConfigError(Exception):
    """The configuration may be read in two ways, or is not one of a functional model."""


def _layers(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    layers = settings.get("layers")
    return [each for each in layers if isinstance(each, dict)] if isinstance(layers, list) else []


def _class(layer: Mapping[str, Any]) -> str:
    return text(layer, "class_name").rpartition(">")[2]


def _graph(settings: Mapping[str, Any], layers: Mapping[str, Mapping[str, Any]]) -> Graph:
    found = {name: layer.get("inbound_nodes") for name, layer in layers.items()}
    nodes = {name: each if isinstance(each, list) else [] for name, each in found.items()}
    exact: dict[tuple[str, int], list[Tensor]] = {}
    shifted: dict[tuple[str, int], list[Tensor]] = {}
    for name, called in nodes.items():
        for at, node in enumerate(called):
            into = exact if _is_keras3(node) else shifted
            into[name, at] = tensors = _inputs(node, nodes)
            if not tensors:
                raise _AmbiguousConfigError
    ends = [_tensors(_leaves(settings.get(side)), nodes) for side in _SIDES]
    if not all(ends):
        raise _AmbiguousConfigError
    clear, others = _numbers(exact.values()), _numbers([*ends, *shifted.values()])
    first = {
        name: _first_call(len(nodes[name]), clear.get(name, set()), numbers)
        for name, numbers in others.items()
    }
    inputs, outputs = (_since(first, tensors) for tensors in ends)
    exact |= {call: _since(first, tensors) for call, tensors in shifted.items()}
    calls = {call: LayerCall(_class(layers[call[0]]), tensors) for call, tensors in exact.items()}
    return Graph(inputs, outputs, lambda tensor: calls.get((str(tensor.layer), tensor.call)))


def _is_keras3(node: Any) -> bool:
    return isinstance(node, dict) and node.keys() == {"args", "kwargs"}


def _inputs(node: Any, known: Collection[str]) -> list[Tensor]:
    """What a layer was called on, as ``Graph`` of a live model has it."""
    if _is_keras3(node):
        return _tensors(_leaves([node["args"], node["kwargs"]]), known)
    leaves = list(_leaves(node))  # each has the keyword arguments, if there are any
    return _tensors([*leaves, *_leaves(leaves[0][3:] if leaves else [])], known)


def _tensors(leaves: Iterable[Sequence[Any]], known: Collection[str]) -> list[Tensor]:
    """The tensors among what may be some: a constant may look like one."""
    return [Tensor(*leaf[:3]) for leaf in leaves if leaf[0] in known and isinstance(leaf[2], int)]


def _leaves(value: Any) -> Iterator[Sequence[Any]]:
    """A layer's name, the number of its call and of the output, for each tensor in a structure.

    TensorFlow sorts the keys of a dict, Keras 3 those of an ordered one not, and tf_keras tells
    arguments without names as keywords: their order is clear where it is that of the keys.
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
            found = {key: list(_leaves(each)) for key, each in value.items()}
            keys = [key for key, leaves in found.items() if leaves]
            if keys != sorted(keys):
                raise _AmbiguousConfigError
            for key in keys:
                yield from found[key]


def _numbers(told: Iterable[Iterable[Tensor]]) -> dict[str, set[int]]:
    """Layer → the numbers of its calls that tensors are outputs of."""
    found: dict[str, set[int]] = {}
    for tensor in (tensor for tensors in told for tensor in tensors):
        found.setdefault(str(tensor.layer), set()).add(tensor.call)
    return found


def _first_call(count: int, exact: set[int], shifted: set[int]) -> int:
    """What number the first of a layer's calls has: 1 for a model, whose own inputs are call 0.

    Keras 3 counts so for what the whole model gives out, Keras 2 always. Each call is used.
    """
    if not count:
        return 0
    starts = [at for at in (0, 1) if exact | {each - at for each in shifted} == {*range(count)}]
    if len(starts) != 1:
        raise _AmbiguousConfigError
    return starts[0]


def _since(first: Mapping[str, int], tensors: Iterable[Tensor]) -> list[Tensor]:
    return [each._replace(call=each.call - first[str(each.layer)]) for each in tensors]
