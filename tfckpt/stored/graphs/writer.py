"""The object graph of a checkpoint that tfckpt writes: pruned from another's, or made of names.

A checkpoint that had one keeps it, with its keys, so that plain TensorFlow finds what is left where
it found it before; the nodes of what was left out have no value any more. For values that come
without a graph one is made: a node for each component of their canonical names, from the root down,
so that ``model/dense/kernel`` is reached as an attribute ``kernel`` of ``dense`` of ``model``.
Plain ``tf.train.Checkpoint`` restores that into objects of this shape, and tfckpt by its names.
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
    """The key of a value in a graph that is made of names.

    >>> key_of("model/a.b/kernel")
    'model/a..b/kernel/.ATTRIBUTES/VARIABLE_VALUE'
    """
    return f"{'/'.join(map(escape, name.split('/')))}{ATTRIBUTES}{VARIABLE_VALUE}"


def pruned(graph: ObjectGraph, keys: Collection[str]) -> ObjectGraph:
    """The graph without the values of these keys; nothing leads to a node that has none left.

    TensorFlow takes a variable that meets a node without a value for restored, and says nothing.
    """
    lost: set[int] = set()
    nodes = []
    for index, node in enumerate(graph.nodes):
        kept = tuple(a for a in node.attributes if a.checkpoint_key not in keys)
        if node.attributes and not kept:
            lost.add(index)
        nodes.append(dataclasses.replace(node, attributes=kept))
    if tuple(nodes) == graph.nodes:
        return graph
    return ObjectGraph(
        _with_presence(
            [
                dataclasses.replace(
                    node,
                    children=tuple(c for c in node.children if c.node_id not in lost),
                    slot_variables=tuple(
                        s for s in node.slot_variables if s.slot_variable_node_id not in lost
                    ),
                )
                for node in nodes
            ]
        )
    )


def made_of(names: Iterable[str]) -> ObjectGraph:
    """A graph in which each component of the names is a node.

    >>> graph = made_of(["step", "model/a"])
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
    """Each node says whether it or anything that it leads to has a value, where nodes say so.

    As ``add_checkpoint_values_check`` of tensorflow/python/checkpoint/util.py has it.
    """
    parents: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for child in node.children:
            parents.setdefault(child.node_id, []).append(index)
    todo = [
        i for i, n in enumerate(nodes) if n.attributes or n.slot_variables or n.registered_saver
    ]
    having = set(todo)
    while todo:
        above = set(parents.get(todo.pop(), ())) - having
        having |= above
        todo.extend(above)
    return tuple(
        node
        if node.has_checkpoint_values is None
        else dataclasses.replace(node, has_checkpoint_values=index in having)
        for index, node in enumerate(nodes)
    )
