"""Starts TensorFlow's delayed restoration without its own reading of the checkpoint.

``tf.train.Checkpoint.read`` opens the checkpoint and builds three tables of all values before the
first object: for 10,000 values that takes longer than restoring a tenth of them. Here the dtypes
and shapes are already read, so TensorFlow's private parts are assembled as in
``TrackableSaver.restore`` (tensorflow/python/checkpoint/checkpoint.py), with look-ups instead of
tables. If those parts do not have the expected arguments, TensorFlow reads for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tfckpt.live.private.tensorflow import Coordinator, Position, Status, binds, caches_of, view_of
from tfckpt.live.variables.flavors import flavor_of
from tfckpt.live.variables.variables import is_variable
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.graphs.keys import OBJECT_GRAPH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfckpt.stored.bundles.index import BundleEntry
    from tfckpt.stored.formats.checkpoint import Values


class _Lookup:
    """A table of all values, computed on look-up."""

    def __init__(
        self, entries: Mapping[str, BundleEntry], compute: Callable[[BundleEntry], Any]
    ) -> None:
        self._entries = entries
        self._compute = compute

    def __getitem__(self, key: str) -> Any:
        return self._compute(self._entries[key])


class _CheckpointReader:
    """The methods of TensorFlow's ``CheckpointReader`` that a restore uses."""

    def __init__(self, prefix: str, entries: Mapping[str, BundleEntry]) -> None:
        self._prefix = prefix
        self._entries = entries

    def get_variable_to_dtype_map(self) -> _Lookup:
        return _Lookup(self._entries, lambda entry: tf.as_dtype(entry.dtype))

    def get_variable_to_shape_map(self) -> _Lookup:
        return _Lookup(self._entries, lambda entry: list(entry.shape))

    def get_tensor(self, key: str) -> Any:
        return tf.train.load_checkpoint(self._prefix).get_tensor(key)


def bind_some(
    saver: Any,
    prefix: str,
    values: Values,
    options: Any,
    *,
    objects: Iterable[tuple[Sequence[str], Any]],
    variables: Iterable[tuple[Sequence[str], Any]],
) -> Any:
    """Bind some objects, each with its path of edges in the checkpoint, to what is stored.

    Keras objects below them are skipped. ``variables`` are already restored, but may have slots.
    Returns TensorFlow's status, or None if none of the objects is in the checkpoint.
    """
    if not (binds(saver) and isinstance(values, Bundle)):
        return None
    coordinator, reader = _coordinator(saver, prefix, values, options)
    edges = [
        {child.local_name: child.node_id for child in node.children}
        for node in coordinator.object_graph_proto.nodes
    ]
    found = [(n, obj) for path, obj in objects if (n := _follow(edges, path)) is not None]
    for number, obj in found:
        _pass_over_keras(coordinator, edges, number, obj, set())
    for number, obj in found:
        Position(coordinator, number).restore(obj, reader)
    for path, variable in variables if found else ():
        if (node_id := _follow(edges, path)) is None:
            continue
        if node_id in coordinator.slot_restorations:
            Position(coordinator, node_id).restore(variable, reader)
        coordinator.matched_proto_ids.add(node_id)  # otherwise it counts as not restored
    view = view_of(saver)
    status = Status(coordinator, feed_dict=None, graph_view=view, options=options)
    return status if found else None


def _coordinator(
    saver: Any, prefix: str, values: Bundle, options: Any
) -> tuple[Any, _CheckpointReader]:
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(values.read_string(OBJECT_GRAPH))
    reader = _CheckpointReader(prefix, values.entries)
    with tf.device("/cpu:0"):
        path_tensor = tf.constant(prefix)
    coordinator = Coordinator(
        object_graph_proto=graph,
        save_path=prefix,
        save_path_tensor=path_tensor,
        reader=reader,
        options=options,
        **caches_of(saver),
    )
    return coordinator, reader


def _follow(edges: Sequence[Mapping[str, int]], path: Iterable[str]) -> int | None:
    """The node number at the end of a path, or None."""
    number: int | None = 0
    for edge in path:
        number = None if number is None else edges[number].get(edge)
    return number


def _pass_over_keras(
    coordinator: Any, edges: Sequence[Mapping[str, int]], number: int, obj: Any, seen: set[int]
) -> None:
    """Mark the Keras objects below an object as restored for TensorFlow."""
    if number in seen:
        return
    seen.add(number)
    children = tf.train.TrackableView.children(obj)
    for edge, below in edges[number].items():
        child = children.get(edge)
        if flavor_of(child) is not None:
            coordinator.object_by_proto_id.setdefault(below, child)
        elif child is not None and not is_variable(child):
            _pass_over_keras(coordinator, edges, below, child, seen)
