"""TensorFlow's delayed restoration, begun without its own reading of what is stored.

``tf.train.Checkpoint.read`` opens the checkpoint, and makes three tables of all values, before it
looks at the first object: of 10,000 values that takes longer than to restore a tenth of them. Their
types and shapes are known here, so its parts are put together as it does
(``TrackableSaver.restore`` of tensorflow/python/checkpoint/checkpoint.py), and look them up where
one is asked for. Those parts are private: where they are not as they are known here, TensorFlow
reads for itself.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.checkpoint import checkpoint as tensorflow_checkpoint
from tensorflow.python.checkpoint import restore as tensorflow_restore

from tfckpt.live.variables.flavours import flavour_of
from tfckpt.live.variables.variables import is_variable
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.graphs.keys import OBJECT_GRAPH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfckpt.stored.bundles.encoding.index_proto import BundleEntry
    from tfckpt.stored.formats.checkpoint import Values

_COORDINATOR = """
    self object_graph_proto save_path save_path_tensor reader restore_op_cache graph_view options
    saveables_cache
"""


def _known(part: str, parameters: str, module: Any = tensorflow_checkpoint) -> Any:
    """A part of TensorFlow's that takes these arguments, None where there is no such."""
    found = getattr(module, part, None)
    told = found and inspect.signature(found.__init__).parameters
    return found if told and [*told] == parameters.split() else None


_Coordinator = _known("_CheckpointRestoreCoordinator", _COORDINATOR)
_Status = _known("CheckpointLoadStatus", "self checkpoint feed_dict graph_view options")
_Position = _known("CheckpointPosition", "self checkpoint proto_id", tensorflow_restore)
_KNOWN = all((_Coordinator, _Status, _Position))


class _Lookup:
    """What TensorFlow has a table for, of each value when it is asked for."""

    def __init__(
        self, entries: Mapping[str, BundleEntry], of: Callable[[BundleEntry], Any]
    ) -> None:
        self._entries = entries
        self._of = of

    def __getitem__(self, key: str) -> Any:
        return self._of(self._entries[key])


class _CheckpointReader:
    """The part of TensorFlow's ``CheckpointReader`` that a restore asks for."""

    def __init__(self, prefix: str, entries: Mapping[str, BundleEntry]) -> None:
        self._prefix = prefix
        self._entries = entries

    def get_variable_to_dtype_map(self) -> _Lookup:
        return _Lookup(self._entries, lambda entry: tf.as_dtype(entry.dtype))

    def get_variable_to_shape_map(self) -> _Lookup:
        return _Lookup(self._entries, lambda entry: list(entry.shape))

    def get_tensor(self, key: str) -> Any:
        return tf.train.load_checkpoint(self._prefix).get_tensor(key)


def bind(saver: Any, prefix: str, values: Values, options: Any) -> Any:
    """Tell TensorFlow which object is which stored one, and which to wait for.

    Args:
        saver: TensorFlow's ``TrackableSaver`` of the objects.
        prefix: by which TensorFlow finds the checkpoint.
        values: what it holds, still open.
        options: ``tf.train.CheckpointOptions``.

    Returns:
        TensorFlow's status.

    Raises:
        DamagedCheckpointError: the object graph is not what its checksum says.
    """
    if not (_KNOWN and isinstance(values, Bundle)):
        return saver.restore(prefix, options)
    view = saver._graph_view
    coordinator, reader = _coordinator(saver, prefix, values, options)
    graph = coordinator.object_graph_proto
    _Position(coordinator, 0).restore(view.root, reader)
    numbers = {child.local_name: child.node_id for child in graph.nodes[0].children}
    for attached in view.attached_dependencies or ():  # the root's children hang on nothing else
        number = None if attached.name == "root" else numbers.get(attached.name)
        if number is not None and number not in coordinator.object_by_proto_id:
            _Position(coordinator, number).restore(attached.ref, reader)
    return _Status(coordinator, feed_dict=None, graph_view=view, options=options)


def bind_some(
    saver: Any,
    prefix: str,
    values: Values,
    options: Any,
    *,
    objects: Iterable[tuple[Sequence[str], Any]],
    variables: Iterable[tuple[Sequence[str], Any]],
) -> Any:
    """The same for some objects alone, each with the edges that lead to it in the checkpoint.

    Keras objects below them are passed over.

    Args:
        saver: as for :func:`bind`, and so ``prefix``, ``values`` and ``options``.
        prefix: of the checkpoint.
        values: of the checkpoint.
        options: of the restore.
        objects: those that are bound.
        variables: those that have been restored, and may have slots.

    Returns:
        TensorFlow's status; None where none of the objects is in the checkpoint.
    """
    if not (_KNOWN and isinstance(values, Bundle)):
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
        _Position(coordinator, number).restore(obj, reader)
    for path, variable in variables if found else ():
        if (at := _follow(edges, path)) is None:
            continue
        if at in coordinator.slot_restorations:
            _Position(coordinator, at).restore(variable, reader)
        coordinator.matched_proto_ids.add(at)  # else it is told to be restored by nothing
    view = saver._graph_view
    status = _Status(coordinator, feed_dict=None, graph_view=view, options=options)
    return status if found else None


def _coordinator(
    saver: Any, prefix: str, values: Bundle, options: Any
) -> tuple[Any, _CheckpointReader]:
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(values.read_string(OBJECT_GRAPH))
    reader = _CheckpointReader(prefix, values.entries)
    with tf.device("/cpu:0"):
        place = tf.constant(prefix)
    coordinator = _Coordinator(
        object_graph_proto=graph,
        save_path=prefix,
        save_path_tensor=place,
        reader=reader,
        restore_op_cache=saver._restore_op_cache,
        graph_view=saver._graph_view,
        options=options,
        saveables_cache=saver._saveables_cache,
    )
    return coordinator, reader


def _follow(edges: Sequence[Mapping[str, int]], path: Iterable[str]) -> int | None:
    """The number of the stored object that a path leads to."""
    number: int | None = 0
    for edge in path:
        number = None if number is None else edges[number].get(edge)
    return number


def _pass_over_keras(
    coordinator: Any, edges: Sequence[Mapping[str, int]], number: int, obj: Any, seen: set[int]
) -> None:
    """Let TensorFlow take the Keras objects below an object for restored."""
    if number in seen:
        return
    seen.add(number)
    children = obj._trackable_children()
    for edge, below in edges[number].items():
        child = children.get(edge)
        if flavour_of(child) is not None:
            coordinator.object_by_proto_id.setdefault(below, child)
        elif child is not None and not is_variable(child):
            _pass_over_keras(coordinator, edges, below, child, seen)
