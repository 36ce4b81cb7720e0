"""What Keras writes into a graph about its own objects, beside what they consist of.

A SavedModel has, at each of Keras's objects, lists of all its variables and a child ``keras_api``
with the same again and the metrics (serialized_attributes.py in tf_keras's saving/legacy);
TensorFlow 1.13 and 1.14 stored each layer's configuration as if it were a value. Neither is part of
a variable's name.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.stored.bundles.encoding.graph_proto import GraphNode

KERAS_API = "keras_api"
CONFIG = "OBJECT_CONFIG_JSON"  # tensorflow/python/trackable/constants.py
_METRICS = "metrics"
_LISTS = frozenset({KERAS_API, "variables", "trainable_variables", "regularization_losses"})

Edges = dict[str, int]


def without_config(node: GraphNode) -> GraphNode:
    """The node without the configuration of the layer that it is."""
    values = tuple(value for value in node.attributes if value.name != CONFIG)
    return node if values == node.attributes else dataclasses.replace(node, attributes=values)


def take_bookkeeping(edges: Sequence[Edges]) -> dict[int, Edges]:
    """Take Keras's lists out of the edges of its objects; node → the edges that were taken."""
    return {
        index: {edge: own.pop(edge) for edge in _LISTS & own.keys()}
        for index, own in enumerate(edges)
        if KERAS_API in own
    }


def metrics(edges: Sequence[Edges], bookkeeping: Edges) -> Iterator[tuple[str, int]]:
    """The number of each metric of a model, and its node."""
    listed = edges[bookkeeping[KERAS_API]].get(_METRICS) if bookkeeping else None
    yield from (edges[listed] if listed is not None else {}).items()
