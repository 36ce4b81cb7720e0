"""TensorFlow's protobuf messages, without TensorFlow, whose own classes import all of it.

The fields that tfckpt reads or writes are declared in one table, in a pool of their own; other
fields are kept as unknown ones. Both programs parse by protobuf, so both read the same from any
bytes. Sources: tensor_bundle.proto, trackable_object_graph.proto, checkpoint_state.proto,
saved_model.proto, saved_object_graph.proto, and Keras's saved_metadata.proto.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DecodeError", "Message", "drop"]

# `*`: repeated, `?`: known whether it is set.
_MESSAGES = """
VersionDef           producer:int32=1 min_consumer:int32=2 bad_consumers:int32*=3
BundleHeader         num_shards:int32=1 endianness:int32=2 version:VersionDef=3
Dim                  size:int64=1
Shape                dim:Dim*=2 unknown_rank:bool=3
Extent               start:int64=1 length:int64?=2
Slice                extent:Extent*=1
BundleEntry          dtype:int32=1 shape:Shape=2 shard_id:int32=3 offset:int64=4 size:int64=5
                     crc32c:fixed32=6 slices:Slice*=7

Child                node_id:int32=1 local_name:string=2
Attribute            name:string=1 full_name:string=2 checkpoint_key:string=3
SlotVariable         original_variable_node_id:int32=1 slot_name:string=2
                     slot_variable_node_id:int32=3
RegisteredSaver      name:string=1 object_name:string=2
Presence             value:bool=1
GraphNode            children:Child*=1 attributes:Attribute*=2 slot_variables:SlotVariable*=3
                     registered_saver:RegisteredSaver=4 has_checkpoint_values:Presence=5
ObjectGraph          nodes:GraphNode*=1

CheckpointState      model_checkpoint_path:string=1 all_model_checkpoint_paths:string*=2
                     all_model_checkpoint_timestamps:double*=3 last_preserved_timestamp:double=4

KerasObject          node_path:string=3 identifier:string=4 metadata:string=5
KerasMetadata        nodes:KerasObject*=1
UserObject           metadata:string=3
SavedObject          children:Child*=1 user_object:UserObject=4
SavedObjectGraph     nodes:SavedObject*=1
MetaGraph            object_graph_def:SavedObjectGraph=7
SavedModel           meta_graphs:MetaGraph*=2
"""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="tfckpt.proto", package="tfckpt", syntax="proto3"
    )
    for word in _MESSAGES.split():
        name, _, declared = word.partition(":")
        if not declared:
            message = file.message_type.add(name=name)
            continue
        kind, _, number = declared.partition("=")
        field = message.field.add(name=name, number=int(number))
        field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
        if kind.endswith("?"):
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        kind = kind.rstrip("*?")
        if kind[0].isupper():
            field.type, field.type_name = field.TYPE_MESSAGE, f".tfckpt.{kind}"
        else:
            field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptors = (pool.FindMessageTypeByName(f"tfckpt.{m.name}") for m in file.message_type)
    return {each.name: message_factory.GetMessageClass(each) for each in descriptors}


def drop(repeated: Any, condition: Callable[[Message], bool]) -> bool:
    """Take elements out of a repeated field; returns whether there were such."""
    kept = [each for each in repeated if not condition(each)]
    dropped = len(kept) < len(repeated)
    if dropped:
        kept = copy.deepcopy(kept)  # deleted elements may lose their content
        del repeated[:]
        repeated.extend(kept)
    return dropped


_CLASSES = _classes()
BundleEntry: Any = _CLASSES["BundleEntry"]
BundleHeader: Any = _CLASSES["BundleHeader"]
CheckpointState: Any = _CLASSES["CheckpointState"]
GraphNode: Any = _CLASSES["GraphNode"]
KerasMetadata: Any = _CLASSES["KerasMetadata"]
ObjectGraph: Any = _CLASSES["ObjectGraph"]
SavedModel: Any = _CLASSES["SavedModel"]
