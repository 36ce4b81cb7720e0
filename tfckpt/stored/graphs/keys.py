"""Checkpoint keys: the path of an object, then the attribute of it that is stored.

TensorFlow writes ``.`` as ``..`` and ``/`` as ``.S`` in each edge
(tensorflow/python/trackable/trackable_utils.py).
"""

from __future__ import annotations

import re

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
ATTRIBUTES = "/.ATTRIBUTES/"
SLOT = "/.OPTIMIZER_SLOT/"
# Child of the root for what TensorFlow's own graph does not reach; its keys are canonical names.
EXTRA = "_tfckpt"


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
