"""What feeds each layer of a functional model, and what it feeds, as far as weights go.

Two layers of one class may change places while their names, which Keras counts, and the order of
the model's layers, which follows its graph, stay as they were. What is on the other side of their
connections is then all that tells them apart: a layer with a name, an input, an output. A layer
without weights that has one input is looked through, so that a ReLU or a Dropout more is no
difference; one that has several counts with its class and the place of each.

The graph is that of a live model, or of a configuration that Keras wrote. Outputs of a call that
nothing uses are not in the latter; they count in neither.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.names import holds_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from tfckpt.core.names import Node


class Wires(NamedTuple):
    """What feeds a layer, and what it feeds: digests."""

    fed: str
    feeds: str


class Tensor(NamedTuple):
    """An output of a call of a layer, as Keras tells it."""

    layer: Hashable
    call: int
    output: int


class LayerCall(NamedTuple):
    """A call of a layer: the layer's class, and what it was called on."""

    cls: str
    inputs: Sequence[Tensor]


class Graph(NamedTuple):
    """A functional model.

    Attributes:
        inputs: in order.
        outputs: likewise.
        call: the call that a tensor is an output of, None where that is not known.
    """

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    call: Callable[[Tensor], LayerCall | None]


_Calls = list[tuple[list[Tensor], LayerCall]]


def digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def wires(graph: Graph, nodes: Mapping[Any, Node]) -> dict[int, Wires]:
    """Id of the node of each layer with weights in a functional model → its wires.

    Args:
        graph: the model.
        nodes: layer → what it is to the naming.
    """
    calls = _calls(graph)
    known = {key: _called(node) for key, node in nodes.items() if holds_weights(node)}
    before = _before(graph, calls, known)
    after = _after(graph, calls, known)
    fed: dict[Hashable, list[str]] = {}
    feeds: dict[Hashable, list[str]] = {}
    for outputs, call in calls:
        if (layer := outputs[0].layer) in known:
            fed.setdefault(layer, []).append(digest(before[x] for x in call.inputs))
            feeds.setdefault(layer, []).append(digest(after[x] for x in outputs))
    return {id(nodes[key]): Wires(digest(fed[key]), digest(sorted(feeds[key]))) for key in fed}


def _called(node: Node) -> str:
    """The name that a layer was given, or its kind."""
    return f"any {node.base}" if node.base else node.label


def _calls(graph: Graph) -> _Calls:
    """The calls that lead from the inputs to the outputs, each after those that it needs.

    Each with its outputs as far as they are used.
    """
    found: dict[tuple[Hashable, int], LayerCall] = {}
    used: dict[tuple[Hashable, int], int] = {}
    starts = set(graph.inputs)
    todo = [(tensor, False) for tensor in reversed(graph.outputs)]
    open_: set[tuple[Hashable, int]] = set()
    while todo:
        tensor, ready = todo.pop()
        if tensor in starts or (call := graph.call(tensor)) is None:
            continue
        key = tensor.layer, tensor.call
        used[key] = max(used.get(key, 0), tensor.output)
        if key in found or (not ready and key in open_):
            continue
        if ready:
            found[key] = call
            continue
        open_.add(key)
        todo.append((tensor, True))
        todo.extend((each, False) for each in reversed(call.inputs))
    return [
        ([Tensor(*key, at) for at in range(used[key] + 1)], call) for key, call in found.items()
    ]


def _before(graph: Graph, calls: _Calls, known: Mapping[Hashable, str]) -> dict[Tensor, str]:
    """What each tensor comes from."""
    found = {tensor: f"input {at}" for at, tensor in enumerate(graph.inputs)}
    for outputs, call in calls:
        sources = [found.setdefault(each, "") for each in call.inputs]
        if (layer := outputs[0].layer) in known:
            source = known[layer]
        elif len(sources) == 1:
            source = sources[0]
        else:
            source = digest([call.cls, *sources])
        for at, tensor in enumerate(outputs):
            found[tensor] = f"{source} {at}" if at else source
    return found


def _after(graph: Graph, calls: _Calls, known: Mapping[Hashable, str]) -> dict[Tensor, str]:
    """What each tensor goes into."""
    uses: dict[Tensor, list[str]] = {}
    for at, tensor in enumerate(graph.outputs):
        uses.setdefault(tensor, []).append(f"output {at}")
    found: dict[Tensor, str] = {}
    for outputs, call in reversed(calls):
        for each in outputs:
            found[each] = digest(sorted(uses.get(each, ())))
        beyond = digest(found[each] for each in outputs)
        for at, tensor in enumerate(call.inputs):
            if (layer := outputs[0].layer) in known:
                through = [f"{known[layer]} {at}"]
            elif len(call.inputs) == len(outputs) == 1:
                through = uses.get(outputs[0], [])
            else:
                through = [digest([call.cls, str(at), beyond])]
            uses.setdefault(tensor, []).extend(through)
    return found
