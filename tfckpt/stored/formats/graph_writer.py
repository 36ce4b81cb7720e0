"""The object graph of a checkpoint that tfckpt rewrites: pruned, or built from canonical names.

A graph of the source is kept with its keys, so that plain TensorFlow still finds the values that
are left; nodes of values that were left out lose their value. For values without a graph one is
built: a node for each component of their canonical names, from the root down, so that
``model/dense/kernel`` is the attribute ``kernel`` of ``dense`` of ``model``. Plain
``tf.train.Checkpoint`` restores it into objects with such attributes, and tfckpt by its names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.names import MODEL
from tfckpt.stored.bundles.keys import ATTRIBUTES, escape
from tfckpt.stored.formats.graph_reader import VARIABLE_VALUE
from tfckpt.stored.io.messages import Message, ObjectGraph, drop

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


def key_of(name: str) -> str:
    """The key of a value in a graph that is built from names.

    >>> key_of("model/a.b/kernel")
    'model/a..b/kernel/.ATTRIBUTES/VARIABLE_VALUE'
    """
    return f"{'/'.join(map(escape, name.split('/')))}{ATTRIBUTES}{VARIABLE_VALUE}"


def prune(graph: Message, keys: Collection[str]) -> None:
    """Take out the values of these keys, and the edges to nodes left without a value.

    TensorFlow silently counts a variable as restored if its node has no value.
    """
    emptied = set()
    for index, node in enumerate(graph.nodes):
        if drop(node.attributes, lambda a: a.checkpoint_key in keys) and not node.attributes:
            emptied.add(index)
    if emptied:
        for node in graph.nodes:
            drop(node.children, lambda c: c.node_id in emptied)
            drop(node.slot_variables, lambda s: s.slot_variable_node_id in emptied)
        _update_presence(graph.nodes)


def graph_of_names(names: Iterable[str]) -> Message:
    """A graph with a node for each component of the names.

    >>> graph = graph_of_names(["step", "model/a"])
    >>> [(child.local_name, child.node_id) for child in graph.nodes[0].children]
    [('step', 1), ('model', 2)]
    """
    graph = ObjectGraph()
    children: list[dict[str, int]] = [{}]
    nodes = [graph.nodes.add()]
    for name in names:
        index = 0
        for part in name.split("/"):
            if part not in children[index]:
                children[index][part] = len(children)
                nodes[index].children.add(node_id=len(children), local_name=part)
                children.append({})
                nodes.append(graph.nodes.add())
            index = children[index][part]
        nodes[index].attributes.add(
            name=VARIABLE_VALUE,
            full_name=name.removeprefix(f"{MODEL}/"),
            checkpoint_key=key_of(name),
        )
    for node in nodes:
        node.has_checkpoint_values.value = bool(node.children or node.attributes)
    return graph


def _update_presence(nodes: Sequence[Message]) -> None:
    """Update ``has_checkpoint_values``, where set: whether a node or one below it has a value.

    As ``add_checkpoint_values_check`` in tensorflow/python/checkpoint/util.py does it.
    """
    parents: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for child in node.children:
            parents.setdefault(child.node_id, []).append(index)
    todo = [
        index
        for index, node in enumerate(nodes)
        if node.attributes or node.slot_variables or node.HasField("registered_saver")
    ]
    with_values = set(todo)
    while todo:
        above = set(parents.get(todo.pop(), ())) - with_values
        with_values |= above
        todo.extend(above)
    for index, node in enumerate(nodes):
        if node.HasField("has_checkpoint_values"):
            node.has_checkpoint_values.value = index in with_values
