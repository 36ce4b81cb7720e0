"""`tfckpt inspect --graph`: TensorFlow's object graph, as stored in the checkpoint.

Each object is printed at its shortest path from the root; every other edge to it is a line with
the number of its node.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import printable
from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.stored.bundles.encoding.graph_proto import parse_object_graph
from tfckpt.stored.graphs.keys import OBJECT_GRAPH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.stored.bundles.encoding.graph_proto import GraphNode, ObjectGraph
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint

_INDENT = "  "


def show_graph(checkpoint: StoredCheckpoint) -> None:
    """Print the graph, one line per object, value and edge."""
    print("\n".join(map(printable, _lines(_graph(checkpoint)))))


def graph_document(checkpoint: StoredCheckpoint) -> list[dict[str, Any]]:
    """The nodes, in the order of their numbers."""
    return [
        {
            "node": number,
            "children": {child.local_name: child.node_id for child in node.children},
            "values": [
                {"name": value.name, "full_name": value.full_name, "key": value.checkpoint_key}
                for value in node.attributes
            ],
            "slots": [
                {
                    "slot": slot.slot_name,
                    "variable": slot.original_variable_node_id,
                    "node": slot.slot_variable_node_id,
                }
                for slot in node.slot_variables
            ],
            "saver": node.registered_saver.name if node.registered_saver else None,
        }
        for number, node in enumerate(_graph(checkpoint).nodes)
    ]


def _graph(checkpoint: StoredCheckpoint) -> ObjectGraph:
    if not checkpoint.graph:
        raise UnsupportedCheckpointError("has no object graph", path=checkpoint.prefix)
    content = bytes(checkpoint.values.read(OBJECT_GRAPH).item())
    return parse_object_graph(content, path=checkpoint.prefix, name=OBJECT_GRAPH)


def _lines(graph: ObjectGraph) -> Iterator[str]:
    parents = _shortest_path_edges(graph)
    pending = [(0, 0, "root")]
    while pending:
        depth, number, label = pending.pop()
        indent = _INDENT * depth
        node = graph.nodes[number]
        yield f"{indent}{label}  #{number}"
        yield from (f"{indent}{_INDENT}{line}" for line in _node_lines(node))
        nested = []
        for child in node.children:
            if parents.get(child.node_id) == (number, child.local_name):
                nested.append((depth + 1, child.node_id, child.local_name))
            else:
                yield f"{indent}{_INDENT}{child.local_name} → #{child.node_id}"
        pending.extend(reversed(nested))


def _node_lines(node: GraphNode) -> Iterator[str]:
    for value in node.attributes:
        full = f" {value.full_name}" if value.full_name else ""
        yield f"= {value.name}{full}: {value.checkpoint_key}"
    for slot in node.slot_variables:
        variable = slot.original_variable_node_id
        yield f"slot {slot.slot_name} of #{variable} → #{slot.slot_variable_node_id}"
    if node.registered_saver:
        yield f"saved by {node.registered_saver.name}"


def _shortest_path_edges(graph: ObjectGraph) -> dict[int, tuple[int, str]]:
    """Node → its parent and edge on the shortest path from the root."""
    parents: dict[int, tuple[int, str]] = {0: (0, "")}
    queue = deque([0])
    while queue:
        number = queue.popleft()
        for child in graph.nodes[number].children:
            if child.node_id not in parents:
                parents[child.node_id] = number, child.local_name
                queue.append(child.node_id)
    return parents
