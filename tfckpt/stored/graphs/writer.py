"""The object graph of a checkpoint that tfckpt rewrites: pruned, or built from canonical names.

A graph of the source is kept with its keys, so that plain TensorFlow still finds the values that
are left; nodes of values that were left out lose their value. For values without a graph one is
built: a node for each component of their canonical names, from the root down, so that
``model/dense/kernel`` is the attribute ``kernel`` of ``dense`` of ``model``. Plain
``tf.train.Checkpoint`` restores it into objects with such attributes, and tfckpt by its names.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.core.names import MODEL
from tfckpt.stored.bundles.encoding.graph_proto import Attribute, Child, GraphNode, ObjectGraph
from tfckpt.stored.graphs.keys import ATTRIBUTES, escape
from tfckpt.stored.graphs.reader import VARIABLE_VALUE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


def key_of(name: str) -> str:
    """The key of a value in a graph that is built from names.

    >>> key_of("model/a.b/kernel")
    'model/a..b/kernel/.ATTRIBUTES/VARIABLE_VALUE'
    """
    return f"{'/'.join(map(escape, name.split('/')))}{ATTRIBUTES}{VARIABLE_VALUE}"


def pruned(graph: ObjectGraph, keys: Collection[str]) -> ObjectGraph:
    """The graph without the values of these keys, and without edges to nodes left without a value.

    TensorFlow silently counts a variable as restored if its node has no value.
    """
    emptied: set[int] = set()
    nodes = []
    for index, node in enumerate(graph.nodes):
        kept = tuple(a for a in node.attributes if a.checkpoint_key not in keys)
        if node.attributes and not kept:
            emptied.add(index)
        nodes.append(dataclasses.replace(node, attributes=kept))
    if tuple(nodes) == graph.nodes:
        return graph
    return ObjectGraph(
        _with_presence(
            [
                dataclasses.replace(
                    node,
                    children=tuple(c for c in node.children if c.node_id not in emptied),
                    slot_variables=tuple(
                        s for s in node.slot_variables if s.slot_variable_node_id not in emptied
                    ),
                )
                for node in nodes
            ]
        )
    )


def graph_of_names(names: Iterable[str]) -> ObjectGraph:
    """A graph with a node for each component of the names.

    >>> graph = graph_of_names(["step", "model/a"])
    >>> [(child.local_name, child.node_id) for child in graph.nodes[0].children]
    [('step', 1), ('model', 2)]
    """
    children: list[dict[str, int]] = [{}]
    values: dict[int, Attribute] = {}
    for name in names:
        index = 0
        for part in name.split("/"):
            if part not in children[index]:
                children[index][part] = len(children)
                children.append({})
            index = children[index][part]
        values[index] = Attribute(VARIABLE_VALUE, name.removeprefix(f"{MODEL}/"), key_of(name))
    return ObjectGraph(
        tuple(
            GraphNode(
                tuple(Child(target, edge) for edge, target in edges.items()),
                (values[index],) if index in values else (),
                has_checkpoint_values=bool(edges or index in values),
            )
            for index, edges in enumerate(children)
        )
    )


def _with_presence(nodes: Sequence[GraphNode]) -> tuple[GraphNode, ...]:
    """Update ``has_checkpoint_values``, where set: whether a node or one below it has a value.

    As ``add_checkpoint_values_check`` in tensorflow/python/checkpoint/util.py does it.
    """
    parents: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for child in node.children:
            parents.setdefault(child.node_id, []).append(index)
    todo = [
        i for i, n in enumerate(nodes) if n.attributes or n.slot_variables or n.registered_saver
    ]
    with_values = set(todo)
    while todo:
        above = set(parents.get(todo.pop(), ())) - with_values
        with_values |= above
        todo.extend(above)
    return tuple(
        node
        if node.has_checkpoint_values is None
        else dataclasses.replace(node, has_checkpoint_values=index in with_values)
        for index, node in enumerate(nodes)
    )
