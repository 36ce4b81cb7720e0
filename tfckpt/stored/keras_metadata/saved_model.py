"""Names and configurations of a SavedModel's objects, from the metadata that Keras 2 wrote.

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
from tfckpt.errors import CheckpointError
from tfckpt.stored.bundles.encoding.index_proto import (
    WireError,
    as_message,
    as_number,
    as_text,
    fields,
)
from tfckpt.stored.io.files import content, join
from tfckpt.stored.keras_metadata.config import mapping, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.stored.io.files import Files

# These files have no weights, but may have constants of a graph.
_MAX_BYTES = 1 << 27
_DEEPEST = 64
_SAVED_MODEL, _METADATA = "saved_model.pb", "keras_metadata.pb"

Path = tuple[str, ...]


class Metadata(NamedTuple):
    """Keras's metadata of an object; an optimizer's ``name`` is its class."""

    name: str
    config: Mapping[str, Any]


def read_metadata(directory: str, files: Files) -> Mapping[Path, Metadata]:
    """Edges from the model to one of its objects → Keras's metadata of it."""
    for name, read in ((_METADATA, _from_metadata), (_SAVED_MODEL, _from_graph)):
        with contextlib.suppress(OSError, CheckpointError, WireError):
            if metadata := dict(read(content(join(directory, name), files, _MAX_BYTES))):
                return metadata
    return {}


def _from_metadata(data: bytes) -> Iterator[tuple[Path, Metadata]]:
    for number, node in fields(data):
        if number == 1:
            inner = dict(fields(as_message(node)))
            path = tuple(as_text(inner.get(3, b"")).split(".")[1:])
            yield from _parsed(path, as_message(inner.get(5, b"")))


def _from_graph(data: bytes) -> Iterator[tuple[Path, Metadata]]:
    graph = _first(_first(data, 2), 7)
    nodes = [as_message(node) for number, node in fields(graph) if number == 1]
    todo: deque[tuple[Path, int]] = deque([((), 0)] if nodes else [])
    seen = {0}
    while todo:
        path, index = todo.popleft()
        for number, value in fields(nodes[index]):
            inner = dict(fields(as_message(value))) if number in (1, 4) else {}
            if number == 4:
                yield from _parsed(path, as_message(inner.get(3, b"")))
            elif number == 1:
                child = as_number(inner.get(1, 0), len(nodes))
                if child not in seen and len(path) < _DEEPEST:
                    seen.add(child)
                    todo.append(((*path, as_text(inner.get(2, b""))), child))


def _first(data: bytes, wanted: int) -> bytes:
    return next((as_message(value) for number, value in fields(data) if number == wanted), b"")


def _parsed(path: Path, metadata: bytes) -> Iterator[tuple[Path, Metadata]]:
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
