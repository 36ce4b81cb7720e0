"""What feeds each layer of a functional model, and what it feeds, as far as weights go.

Two layers of one class may change places while their names, which Keras counts, and the order of
the model's layers, which follows its graph, stay as they were. What is on the other side of their
connections is then all that tells them apart: a layer with a name, an input, an output. A layer
without weights that has one input is looked through, so that a ReLU or a Dropout more is no
difference; one that has several counts with its class and the place of each.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from tfckpt.names import holds_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfckpt.live.flavours import Flavour
    from tfckpt.names import Node


class Wires(NamedTuple):
    """What feeds a layer, and what it feeds: digests."""

    fed: str
    feeds: str


class _Call(NamedTuple):
    """One call of a layer in the graph."""

    layer: Any
    inputs: Sequence[Any]
    outputs: Sequence[Any]


def digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def wires(model: Any, nodes: Mapping[int, Node | None], flavour: Flavour) -> dict[int, Wires]:
    """Id of each layer with weights in a functional model → its wires.

    Args:
        model: built by calls of layers on each other's outputs.
        nodes: id of a layer → what it is to the naming.
        flavour: of the model.
    """
    calls = _calls(model, flavour)
    holding = ((key, node) for key, node in nodes.items() if node and holds_weights(node))
    known = {key: _called(node) for key, node in holding}
    before = _before(model, calls, known)
    after = _after(model, calls, known)
    fed: dict[int, list[str]] = {}
    feeds: dict[int, list[str]] = {}
    for call in calls:
        if id(call.layer) in known:
            fed.setdefault(id(call.layer), []).append(digest(before[id(x)] for x in call.inputs))
            feeds.setdefault(id(call.layer), []).append(digest(after[id(x)] for x in call.outputs))
    return {key: Wires(digest(fed[key]), digest(sorted(feeds[key]))) for key in fed}


def _called(node: Node) -> str:
    """The name that a layer was given, or its kind."""
    return f"any {node.base}" if node.base else node.label


def _calls(model: Any, flavour: Flavour) -> list[_Call]:
    """The calls that lead from the inputs to the outputs, each after those that it needs."""
    found: dict[int, _Call] = {}
    starts = {id(tensor) for tensor in model.inputs}
    todo = [(tensor, False) for tensor in reversed(model.outputs)]
    open_: set[int] = set()
    while todo:
        tensor, ready = todo.pop()
        if id(tensor) in starts:
            continue
        layer, index, _ = getattr(tensor, "_keras_history", (None, 0, 0))
        if layer is None:
            continue
        node = layer._inbound_nodes[index]
        if id(node) in found or (not ready and id(node) in open_):
            continue
        inputs = list(flavour.inputs(node))
        if ready:
            found[id(node)] = _Call(layer, inputs, tf.nest.flatten(node.outputs))
            continue
        open_.add(id(node))
        todo.append((tensor, True))
        todo.extend((each, False) for each in reversed(inputs))
    return list(found.values())


def _before(model: Any, calls: Iterable[_Call], known: Mapping[int, str]) -> dict[int, str]:
    """Id of each tensor → what it comes from."""
    found = {id(tensor): f"input {at}" for at, tensor in enumerate(model.inputs)}
    for call in calls:
        sources = [found.setdefault(id(each), "") for each in call.inputs]
        if id(call.layer) in known:
            source = known[id(call.layer)]
        elif len(sources) == 1:
            source = sources[0]
        else:
            source = digest([type(call.layer).__name__, *sources])
        for at, tensor in enumerate(call.outputs):
            found[id(tensor)] = f"{source} {at}" if at else source
    return found


def _after(model: Any, calls: Sequence[_Call], known: Mapping[int, str]) -> dict[int, str]:
    """Id of each tensor → what it goes into."""
    uses: dict[int, list[str]] = {}
    for at, tensor in enumerate(model.outputs):
        uses.setdefault(id(tensor), []).append(f"output {at}")
    found: dict[int, str] = {}
    for call in reversed(calls):
        for each in call.outputs:
            found[id(each)] = digest(sorted(uses.get(id(each), ())))
        beyond = digest(found[id(each)] for each in call.outputs)
        for at, tensor in enumerate(call.inputs):
            if id(call.layer) in known:
                through = [f"{known[id(call.layer)]} {at}"]
            elif len(call.inputs) == len(call.outputs) == 1:
                through = uses.get(id(call.outputs[0]), [])
            else:
                through = [digest([type(call.layer).__name__, str(at), beyond])]
            uses.setdefault(id(tensor), []).extend(through)
    return found
