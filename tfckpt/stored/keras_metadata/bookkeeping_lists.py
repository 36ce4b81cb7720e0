"""Bookkeeping that Keras writes into an object graph, which is not part of a variable's name.

In a SavedModel each Keras object has lists of all its variables and a child ``keras_api`` with the
same lists and the metrics (serialized_attributes.py in tf_keras's saving/legacy). TensorFlow 1.13
and 1.14 stored each layer's configuration as a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.stored.io.messages import drop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfckpt.stored.io.messages import Message

KERAS_API = "keras_api"
CONFIG = "OBJECT_CONFIG_JSON"  # tensorflow/python/trackable/constants.py
_METRICS = "metrics"
_LISTS = frozenset({KERAS_API, "variables", "trainable_variables", "regularization_losses"})

Edges = dict[str, int]


def drop_configs(nodes: Iterable[Message]) -> None:
    """Take the configurations of layers out of the nodes of a graph."""
    for node in nodes:
        drop(node.attributes, lambda value: value.name == CONFIG)


def take_bookkeeping(edges: Sequence[Edges]) -> dict[int, Edges]:
    """Remove Keras's lists from the edges of its objects; returns node → removed edges."""
    return {
        index: {edge: own.pop(edge) for edge in _LISTS & own.keys()}
        for index, own in enumerate(edges)
        if KERAS_API in own
    }


def metrics(edges: Sequence[Edges], bookkeeping: Edges) -> Iterator[tuple[str, int]]:
    """Index and node of each metric of a model."""
    listed = edges[bookkeeping[KERAS_API]].get(_METRICS) if bookkeeping else None
    yield from (edges[listed] if listed is not None else {}).items()
