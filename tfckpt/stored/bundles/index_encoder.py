"""Encodes the protobuf messages of a checkpoint exactly as protobuf does.

The inverse of :mod:`tfckpt.stored.bundles.encoding.index_proto`: fields in the order of their
numbers, zeros and empty strings omitted, messages that are set written even if empty.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tfckpt.core.dtypes import NUMBERS
from tfckpt.stored.bundles.encoding.index_proto import put_message, put_number, put_text, put_varint
from tfckpt.stored.bundles.index import VERSION

if TYPE_CHECKING:
    from tfckpt.core.inventory import Shape
    from tfckpt.stored.bundles.encoding.graph_proto import GraphNode, ObjectGraph
    from tfckpt.stored.bundles.encoding.index_proto import BundleEntry

# Tags of a BundleEntryProto: varints and one fixed32.
_SHARD, _OFFSET, _SIZE, _CRC32C = b"\x18", b"\x20", b"\x28", b"\x35"


def encode_header(num_shards: int) -> bytes:
    """The first entry of an index; little-endian is the default and not written."""
    return put_number(1, num_shards) + put_message(3, put_number(1, VERSION))


def encode_entry(entry: BundleEntry) -> bytes:
    """The index entry of a value that is stored whole.

    >>> from tfckpt.stored.bundles.encoding.index_proto import BundleEntry, parse_entry
    >>> entry = BundleEntry("float32", (2, 0), 1, 10, 0, 7)
    >>> parse_entry(encode_entry(entry), {}) == entry
    True
    """
    coded = _kind(entry.dtype, entry.shape)
    if entry.shard:
        coded += _SHARD + put_varint(entry.shard)
    if entry.offset:
        coded += _OFFSET + put_varint(entry.offset)
    if entry.nbytes:
        coded += _size(entry.nbytes)
    if entry.crc32c:
        coded += _CRC32C + entry.crc32c.to_bytes(4, "little")
    return coded


@functools.lru_cache(1024)
def _kind(dtype: str, shape: Shape) -> bytes:
    sizes = b"".join(put_message(2, put_number(1, size)) for size in shape)
    return put_number(1, NUMBERS[dtype]) + put_message(2, sizes)


@functools.lru_cache(1024)
def _size(nbytes: int) -> bytes:
    return _SIZE + put_varint(nbytes)


def encode_object_graph(graph: ObjectGraph) -> bytes:
    """The string value of ``_CHECKPOINTABLE_OBJECT_GRAPH``."""
    return b"".join(put_message(1, _node(node)) for node in graph.nodes)


def _node(node: GraphNode) -> bytes:
    parts = [
        put_message(1, put_number(1, child.node_id) + put_text(2, child.local_name))
        for child in node.children
    ]
    for attribute in node.attributes:
        texts = attribute.name, attribute.full_name, attribute.checkpoint_key
        content = b"".join(put_text(field, text) for field, text in enumerate(texts, 1))
        parts.append(put_message(2, content))
    for slot in node.slot_variables:
        numbers = slot.original_variable_node_id, slot.slot_variable_node_id
        name = put_text(2, slot.slot_name)
        parts.append(put_message(3, put_number(1, numbers[0]) + name + put_number(3, numbers[1])))
    if (saver := node.registered_saver) is not None:
        parts.append(put_message(4, put_text(1, saver.name) + put_text(2, saver.object_name)))
    if node.has_checkpoint_values is not None:
        parts.append(put_message(5, put_number(1, int(node.has_checkpoint_values))))
    return b"".join(parts)
