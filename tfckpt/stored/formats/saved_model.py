"""Opens the variables of a SavedModel, which are a bundle, with the metadata that Keras 2 wrote.

Keras 2 wrote each object's class and name as JSON: into ``saved_model.pb`` up to TensorFlow 2.4
(``SavedUserObject.metadata`` of saved_object_graph.proto), into ``keras_metadata.pb`` since
(tf_keras/protobuf/saved_metadata.proto). Only names and configurations are read, no functions.
Metadata that cannot be read is not an error: it only helps to match layers.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.inventory import snake_case
from tfckpt.core.names import OPTIMIZER
from tfckpt.core.optimizer_names import optimizer_class
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.formats.keras_config import mapping, text
from tfckpt.stored.formats.tensorflow import open_bundle
from tfckpt.stored.io import limits
from tfckpt.stored.io.explain import SAVED_MODEL, VARIABLES
from tfckpt.stored.io.files import content, join
from tfckpt.stored.io.messages import DecodeError, KerasMetadata, SavedModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.stored.formats.checkpoint import Opening, StoredCheckpoint
    from tfckpt.stored.io.files import Files

_DEEPEST = 64
_SAVED_MODEL, _METADATA = "saved_model.pb", "keras_metadata.pb"

Path = tuple[str, ...]


class Metadata(NamedTuple):
    """Keras's metadata of an object; an optimizer's ``name`` is its class."""

    name: str
    config: Mapping[str, Any]


def open_saved_model(path: str, opening: Opening) -> StoredCheckpoint:
    """Open the variables of a SavedModel, given by its directory or the prefix of its variables."""
    directory = path.rstrip("/").removesuffix(VARIABLES)
    prefix = directory + VARIABLES
    if not opening.files.exists(index_path(prefix)):
        message = "is a SavedModel without variables: 'variables/variables.index' is missing"
        hint = "Copy the directory 'variables' too; a frozen model has none and cannot be read."
        raise DamagedCheckpointError(message, path=directory, hint=hint)
    metadata = read_metadata(directory, opening.files)
    return open_bundle(prefix, opening, kind=SAVED_MODEL, metadata=metadata)


def read_metadata(directory: str, files: Files) -> Mapping[Path, Metadata]:
    """Edges from the model to one of its objects → Keras's metadata of it."""
    for name, read in ((_METADATA, _from_metadata), (_SAVED_MODEL, _from_graph)):
        with contextlib.suppress(OSError, CheckpointError, DecodeError):
            if metadata := dict(read(content(join(directory, name), files, limits.SAVED_MODEL))):
                return metadata
    return {}


def _from_metadata(data: bytes) -> Iterator[tuple[Path, Metadata]]:
    for node in KerasMetadata.FromString(data).nodes:
        yield from _parsed(tuple(node.node_path.split(".")[1:]), node.metadata)


def _from_graph(data: bytes) -> Iterator[tuple[Path, Metadata]]:
    graphs = SavedModel.FromString(data).meta_graphs
    nodes = list(graphs[0].object_graph_def.nodes) if graphs else []
    todo: deque[tuple[Path, int]] = deque([((), 0)] if nodes else [])
    seen = {0}
    while todo:
        path, index = todo.popleft()
        yield from _parsed(path, nodes[index].user_object.metadata)
        for child in nodes[index].children:
            target = child.node_id
            if 0 <= target < len(nodes) and target not in seen and len(path) < _DEEPEST:
                seen.add(target)
                todo.append(((*path, child.local_name), target))


def _parsed(path: Path, metadata: str) -> Iterator[tuple[Path, Metadata]]:
    """The metadata of an object and, if it is a compiled model, of its optimizer."""
    try:
        document = json.loads(metadata) if metadata else None
    except (ValueError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    if name := text(document, "name"):
        yield path, Metadata(name, mapping(document, "config"))
    config = mapping(mapping(document, "training_config"), "optimizer_config")
    cls = text(config, "class_name")
    if label := optimizer_class(snake_case(cls.rpartition(">")[2])):
        yield (*path, OPTIMIZER), Metadata(label, config)
