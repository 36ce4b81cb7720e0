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

from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.graphs.keys import OBJECT_GRAPH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfckpt.stored.artefact import Values
    from tfckpt.stored.bundles.proto import BundleEntry

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


class _Reader:
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
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(values.read_string(OBJECT_GRAPH))
    reader = _Reader(prefix, values.entries)
    with tf.device("/cpu:0"):
        place = tf.constant(prefix)
    coordinator = _Coordinator(
        object_graph_proto=graph,
        save_path=prefix,
        save_path_tensor=place,
        reader=reader,
        restore_op_cache=saver._restore_op_cache,
        graph_view=view,
        options=options,
        saveables_cache=saver._saveables_cache,
    )
    _Position(coordinator, 0).restore(view.root, reader)
    numbers = {child.local_name: child.node_id for child in graph.nodes[0].children}
    for attached in view.attached_dependencies or ():  # the root's children hang on nothing else
        number = None if attached.name == "root" else numbers.get(attached.name)
        if number is not None and number not in coordinator.object_by_proto_id:
            _Position(coordinator, number).restore(attached.ref, reader)
    return _Status(coordinator, feed_dict=None, graph_view=view, options=options)
