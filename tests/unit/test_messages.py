"""TensorFlow's messages as they are declared here, against its own."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt.core.dtypes import DTYPES
from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.keys import OBJECT_GRAPH, object_graph
from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.io import messages

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")

THEIRS = {
    "BundleHeader": ("tensorflow.core.protobuf.tensor_bundle_pb2", "BundleHeaderProto"),
    "BundleEntry": ("tensorflow.core.protobuf.tensor_bundle_pb2", "BundleEntryProto"),
    "ObjectGraph": (
        "tensorflow.core.protobuf.trackable_object_graph_pb2",
        "TrackableObjectGraph",
    ),
    "CheckpointState": ("tensorflow.python.training.checkpoint_state_pb2", "CheckpointState"),
    "SavedTensorSlices": ("tensorflow.core.util.saved_tensor_slice_pb2", "SavedTensorSlices"),
    "SavedModel": ("tensorflow.core.protobuf.saved_model_pb2", "SavedModel"),
    "KerasMetadata": ("tf_keras.protobuf.saved_metadata_pb2", "SavedMetadata"),
}


def their(name: str) -> Any:
    module, cls = THEIRS[name]
    return getattr(importlib.import_module(module), cls)


def kind(field: Any) -> tuple[Any, ...]:
    shown = field.TYPE_INT32 if field.type == field.TYPE_ENUM else field.type
    if field.is_repeated and shown in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        shown = field.TYPE_BYTES  # as which a packed list is stored
    if shown == field.TYPE_DOUBLE and field.name.endswith("timestamps"):
        shown = field.TYPE_BYTES
    return field.number, field.is_repeated, shown, field.has_presence


def compare(ours: Any, theirs: Any) -> None:
    for field in ours.fields:
        other = theirs.fields_by_name[field.name]
        assert kind(field) == kind(other), field.full_name
        if field.message_type:
            compare(field.message_type, other.message_type)


@pytest.mark.parametrize("name", THEIRS)
def test_messages_are_declared_as_tensorflow_declares_them(name: str) -> None:
    compare(getattr(messages, name).DESCRIPTOR, their(name).DESCRIPTOR)


def test_dtypes_are_those_of_tensorflow() -> None:
    assert {n: tf.dtypes.as_dtype(n).name for n in DTYPES} == DTYPES


def written(path: Any, graph: bytes) -> str:
    prefix = str(path / "ckpt")
    with BundleWriter(prefix) as writer:
        writer.add(OBJECT_GRAPH, np.array(graph, object))
        writer.finish()
    return prefix


def graph_of(path: Any, graph: bytes) -> Any:
    with Bundle.open(written(path, graph)) as bundle:
        return object_graph(bundle)


def graph(**changes: int) -> Any:
    message = their("ObjectGraph")()
    root, variable, _ = (message.nodes.add() for _ in range(3))
    root.children.add(node_id=1, local_name="kernel")
    root.children.add(node_id=changes.get("child", 2), local_name="Ä/ö")
    root.slot_variables.add(
        original_variable_node_id=1, slot_name="m", slot_variable_node_id=changes.get("slot", 2)
    )
    variable.attributes.add(name="VARIABLE_VALUE", full_name="d/kernel", checkpoint_key="k/.A/V")
    variable.has_checkpoint_values.value = True
    return message


def test_an_object_graph_reads_as_tensorflow_wrote_it(tmp_path) -> None:
    message = graph()
    read = graph_of(tmp_path, message.SerializeToString())
    assert str(read) == str(message)
    assert read.SerializeToString() == message.SerializeToString()


@pytest.mark.parametrize("change", [{"child": 3}, {"slot": 2**30}, {"child": -1}, {"slot": -1}])
def test_a_reference_to_a_node_that_is_none_is_damage(tmp_path, change: dict[str, int]) -> None:
    with pytest.raises(DamagedCheckpointError, match="object graph") as caught:
        graph_of(tmp_path, graph(**change).SerializeToString())
    assert caught.value.path == str(tmp_path / "ckpt")


@given(data=st.data())
def test_a_graph_cut_anywhere_and_any_bytes_are_a_graph_or_damage(
    tmp_path_factory, data: Any
) -> None:
    whole = graph().SerializeToString()
    cut = st.integers(0, len(whole)).map(lambda end: whole[:end])
    content = data.draw(cut | st.binary(max_size=80))
    try:
        read = graph_of(tmp_path_factory.mktemp("graph"), content)
    except DamagedCheckpointError:
        return
    assert read.nodes
    assert str(read) == str(their("ObjectGraph").FromString(content)) or not content
