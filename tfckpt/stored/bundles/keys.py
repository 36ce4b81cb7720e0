"""Checkpoint keys: the path of an object, then the attribute of it that is stored.

TensorFlow writes ``.`` as ``..`` and ``/`` as ``.S`` in each edge
(tensorflow/python/trackable/trackable_utils.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.io.messages import DecodeError, Message, ObjectGraph

if TYPE_CHECKING:
    from tfckpt.stored.bundles.bundle import Bundle

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
ATTRIBUTES = "/.ATTRIBUTES/"
SLOT = "/.OPTIMIZER_SLOT/"
# Child of the root for what TensorFlow's own graph does not reach; its keys are canonical names.
EXTRA = "_tfckpt"


def object_graph(bundle: Bundle) -> Message:
    """The object graph of a checkpoint; node 0 is the root.

    Raises:
        DamagedCheckpointError: it is no message, or refers to a node that does not exist.
    """
    try:
        graph = ObjectGraph.FromString(bundle.read_string(OBJECT_GRAPH))
        problem = _problem(graph)
    except DecodeError as error:
        problem = str(error)
    if problem:
        message = f"the object graph cannot be read: {problem}"
        raise DamagedCheckpointError(message, path=bundle.prefix, name=OBJECT_GRAPH)
    return graph


def _problem(graph: Message) -> str:
    count = len(graph.nodes)
    for node in graph.nodes:
        for child in node.children:
            if not 0 <= child.node_id < count:
                return f"{child.local_name!r} refers to node {child.node_id} of {count}"
        for slot in node.slot_variables:
            nodes = slot.original_variable_node_id, slot.slot_variable_node_id
            if min(nodes) < 0 or max(nodes) >= count:
                return f"slot {slot.slot_name!r} refers to a node that does not exist"
    return "" if count else "it has no nodes"


def edges(key: str) -> list[str]:
    """The edges from the root to the object that a key belongs to.

    >>> edges("model/a..b/seed.Sdropout/.ATTRIBUTES/VARIABLE_VALUE")
    ['model', 'a.b', 'seed/dropout']
    """
    path = key.partition(ATTRIBUTES)[0]
    return [_unescape(edge) for edge in path.split("/")]


def escape(edge: str) -> str:
    """An edge as written in a key.

    >>> escape("a.b/c")
    'a..b.Sc'
    """
    return edge.replace(".", "..").replace("/", ".S")


def _unescape(edge: str) -> str:
    return re.sub(r"\.\.|\.S", lambda match: "." if match[0] == ".." else "/", edge)
