"""Digests of what feeds each layer of a functional model, and of what it feeds.

Two layers of one class can be swapped in the code while their automatic names and the order of the
model's layers stay the same. Only their connections distinguish them then: to a named layer, an
input, an output. A layer without weights and with one input is skipped, so that an additional ReLU
or Dropout makes no difference; one with several inputs counts with its class and input indices.

The graph comes from a live model, or from a configuration that Keras wrote. The latter does not
have unused outputs of a call, so these are ignored in both.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.inventory import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from tfckpt.core.names import Node


class Wires(NamedTuple):
    """Digests of what feeds a layer, and of what it feeds."""

    fed: str
    feeds: str


class Tensor(NamedTuple):
    """An output of a call of a layer, by Keras's (layer, call, output) indices."""

    layer: Hashable
    call: int
    output: int


class LayerCall(NamedTuple):
    """A call of a layer: its class and inputs."""

    cls: str
    inputs: Sequence[Tensor]


@dataclasses.dataclass(frozen=True)
class Graph:
    """A functional model; ``call`` returns the call that outputs a tensor, None if unknown."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    call: Callable[[Tensor], LayerCall | None]

    @cached_property
    def calls(self) -> list[tuple[list[Tensor], LayerCall]]:
        """Those between inputs and outputs in topological order, each with its used outputs."""
        return _calls(self)


def wires(graph: Graph, nodes: Mapping[Any, Node]) -> dict[int, Wires]:
    """Node id → wires; ``nodes`` maps the layers with weights to their nodes."""
    known = {key: _called(node) for key, node in nodes.items()}
    before, after = _before(graph, known), _after(graph, known)
    fed: dict[Hashable, list[str]] = {}
    feeds: dict[Hashable, list[str]] = {}
    for outputs, call in graph.calls:
        if (layer := outputs[0].layer) in known:
            fed.setdefault(layer, []).append(digest(before[x] for x in call.inputs))
            feeds.setdefault(layer, []).append(digest(after[x] for x in outputs))
    return {id(nodes[key]): Wires(digest(fed[key]), digest(sorted(feeds[key]))) for key in fed}


def on_branches(graph: Graph, groups: Iterable[Collection[Any]]) -> set[Any]:
    """The layers that neither feed nor are fed by another one of their group.

    >>> a, b, c = (Tensor(name, 0, 0) for name in "abc")
    >>> fed = {"a": (), "b": (a,), "c": ()}
    >>> graph = Graph((), (b, c), lambda tensor: LayerCall("Dense", fed[tensor.layer]))
    >>> sorted(on_branches(graph, ["ab", "bc"]))
    ['b', 'c']
    """
    calls = graph.calls
    at = {tensor: index for index, (outputs, _) in enumerate(calls) for tensor in outputs}
    above = [0] * len(calls)  # the bits of the calls that a call depends on
    own: dict[Any, int] = {}
    needed: dict[Any, int] = {}
    for index, (outputs, call) in enumerate(calls):
        for each in (at[tensor] for tensor in call.inputs if tensor in at):
            above[index] |= above[each] | 1 << each
        layer = outputs[0].layer
        own[layer] = own.get(layer, 0) | 1 << index
        needed[layer] = needed.get(layer, 0) | above[index]
    found: set[Any] = set()
    for group in groups:
        layers = sorted(own.keys() & set(group), key=own.__getitem__)
        before = unrelated = 0
        for layer in layers:
            if apart := before & ~needed[layer]:
                unrelated |= apart
                found.add(layer)
            before |= own[layer]
        found.update(layer for layer in layers if own[layer] & unrelated)
    return found


def _called(node: Node) -> str:
    """The name of a layer, or its class if the name is automatic."""
    return f"any {node.base}" if node.base else node.label


def _calls(graph: Graph) -> list[tuple[list[Tensor], LayerCall]]:
    ordered: dict[tuple[Hashable, int], LayerCall] = {}
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
        if key in ordered or (not ready and key in open_):
            continue
        if ready:
            ordered[key] = call
            continue
        open_.add(key)
        todo.append((tensor, True))
        todo.extend((each, False) for each in reversed(call.inputs))
    return [
        ([Tensor(*key, at) for at in range(used[key] + 1)], call) for key, call in ordered.items()
    ]


def _before(graph: Graph, known: Mapping[Hashable, str]) -> dict[Tensor, str]:
    """A description of where each tensor comes from."""
    found = {tensor: f"input {at}" for at, tensor in enumerate(graph.inputs)}
    for outputs, call in graph.calls:
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


def _after(graph: Graph, known: Mapping[Hashable, str]) -> dict[Tensor, str]:
    """A digest of where each tensor goes."""
    uses: dict[Tensor, list[str]] = {}
    for at, tensor in enumerate(graph.outputs):
        uses.setdefault(tensor, []).append(f"output {at}")
    found: dict[Tensor, str] = {}
    for outputs, call in reversed(graph.calls):
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
