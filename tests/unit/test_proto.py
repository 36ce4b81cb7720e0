"""The hand-written decoder against TensorFlow's own messages."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt.core.dtypes import DTYPES
from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.encoding.graph_proto import parse_object_graph
from tfckpt.stored.bundles.encoding.index_proto import Extent, WireError, parse_entry, parse_header

bundle_pb2 = pytest.importorskip("tensorflow.core.protobuf.tensor_bundle_pb2")
graph_pb2 = pytest.importorskip("tensorflow.core.protobuf.trackable_object_graph_pb2")

POSITIVE32 = st.integers(0, 2**31 - 1)
POSITIVE64 = st.integers(0, 2**63 - 1)
SIZES = st.lists(POSITIVE64, max_size=5)
EXTENTS = st.lists(st.tuples(POSITIVE64, st.none() | POSITIVE64), min_size=1, max_size=3)


@given(
    dtype=st.sampled_from(sorted(DTYPES)),
    sizes=SIZES,
    shard=POSITIVE32,
    offset=POSITIVE64,
    size=POSITIVE64,
    crc=st.integers(0, 2**32 - 1),
    slices=st.lists(EXTENTS, max_size=3),
)
def test_an_entry_reads_as_tensorflow_wrote_it(
    dtype: int, sizes: list[int], shard: int, offset: int, size: int, crc: int, slices: list[Any]
) -> None:
    message = bundle_pb2.BundleEntryProto(
        dtype=dtype, shard_id=shard, offset=offset, size=size, crc32c=crc
    )
    message.shape.SetInParent()
    for one in sizes:
        message.shape.dim.add(size=one)
    for extents in slices:
        part = message.slices.add()
        for start, length in extents:
            extent = part.extent.add(start=start)
            if length is not None:
                extent.length = length
    entry = parse_entry(message.SerializeToString(), {})
    assert entry.shape == tuple(sizes)
    assert (entry.shard, entry.offset, entry.nbytes, entry.crc32c) == (shard, offset, size, crc)
    assert entry.slices == tuple(
        tuple(Extent(start, -1 if length is None else length) for start, length in extents)
        for extents in slices
    )


def test_dtypes_are_those_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    assert {n: tf.dtypes.as_dtype(n).name for n in DTYPES} == DTYPES


def test_a_header_reads_as_tensorflow_wrote_it() -> None:
    message = bundle_pb2.BundleHeaderProto(num_shards=3, endianness=1)
    message.version.producer = 1
    message.version.min_consumer = 2
    message.version.bad_consumers.extend([4, 300])
    header = parse_header(message.SerializeToString())
    assert (header.num_shards, header.big_endian) == (3, True)
    assert (header.versions.producer, header.versions.min_consumer) == (1, 2)
    assert header.versions.bad_consumers == (4, 300)


def graph(**changes: int) -> Any:
    message = graph_pb2.TrackableObjectGraph()
    root, variable, slot = (message.nodes.add() for _ in range(3))
    root.children.add(node_id=1, local_name="kernel")
    root.children.add(node_id=changes.get("child", 2), local_name="Ä/ö")
    root.slot_variables.add(
        original_variable_node_id=1, slot_name="m", slot_variable_node_id=changes.get("slot", 2)
    )
    variable.attributes.add(name="VARIABLE_VALUE", full_name="d/kernel", checkpoint_key="k/.A/V")
    variable.has_checkpoint_values.value = True
    slot.registered_saver.name = "Saver"
    slot.registered_saver.object_name = "obj"
    slot.has_checkpoint_values.value = False
    return message


def test_an_object_graph_reads_as_tensorflow_wrote_it() -> None:
    message = graph()
    read = parse_object_graph(message.SerializeToString())
    assert len(read.nodes) == len(message.nodes)
    for node, expected in zip(read.nodes, message.nodes, strict=True):
        assert [(c.node_id, c.local_name) for c in node.children] == [
            (c.node_id, c.local_name) for c in expected.children
        ]
        assert [(a.name, a.full_name, a.checkpoint_key) for a in node.attributes] == [
            (a.name, a.full_name, a.checkpoint_key) for a in expected.attributes
        ]
        assert [
            (s.original_variable_node_id, s.slot_name, s.slot_variable_node_id)
            for s in node.slot_variables
        ] == [
            (s.original_variable_node_id, s.slot_name, s.slot_variable_node_id)
            for s in expected.slot_variables
        ]
    assert [node.has_checkpoint_values for node in read.nodes] == [None, True, False]
    assert read.nodes[0].registered_saver is None
    assert (read.nodes[2].registered_saver.name, read.nodes[2].registered_saver.object_name) == (
        "Saver",
        "obj",
    )


@pytest.mark.parametrize("change", [{"child": 3}, {"slot": 2**30}, {"child": -1}])
def test_a_reference_to_a_node_that_is_none_is_damage(change: dict[str, int]) -> None:
    data = graph(**change).SerializeToString()
    with pytest.raises(DamagedCheckpointError, match="object graph") as caught:
        parse_object_graph(data, path="run/ckpt-1", name="_CHECKPOINTABLE_OBJECT_GRAPH")
    assert caught.value.path == "run/ckpt-1"


def test_a_graph_cut_inside_a_node_is_damage() -> None:
    data = graph(child=1, slot=1).SerializeToString()
    for length in range(3, len(data[: data.index(b"d/kernel")])):
        with pytest.raises(DamagedCheckpointError):
            parse_object_graph(data[:length])


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_the_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        parse_header(data)
    with contextlib.suppress(WireError):
        parse_entry(data, {})
    with contextlib.suppress(DamagedCheckpointError):
        parse_object_graph(data)
