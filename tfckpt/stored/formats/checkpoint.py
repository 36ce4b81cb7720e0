"""An open checkpoint of any format: an inventory, and access to the values.

Each format has its own reader; restore, inspection and comparison use only what is here.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.values import StoredValues
from tfckpt.stored.io.files import digest_of, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import ExitStack

    import numpy as np
    from typing_extensions import Self

    from tfckpt.core.inventory import Inventory, Root
    from tfckpt.stored.bundles.bundle import Bundle
    from tfckpt.stored.commits.record_file import CommitRecord
    from tfckpt.stored.io.files import Files, Handle


class Address(NamedTuple):
    """Where a layer is in a live model.

    Attributes:
        path: its canonical path.
        label: its own name.
        by_name: whether a name of it identifies it there, not its place in a list.
        holds: whether it has values of its own.
    """

    path: str
    label: str
    by_name: bool
    holds: bool


class Opening(NamedTuple):
    """What a reader needs besides the path: names of the live objects, and the file system.

    ``addresses`` gives the group of a file of Keras → the live layer that Keras would write there.
    """

    roots: Mapping[str, Root] | None
    bases: Collection[str]
    addresses: Callable[[], Mapping[str, Address]]
    files: Files


# A description of each kind of checkpoint, to follow its path and a colon.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "tfckpt": "written by tfckpt",
        "uncommitted": "written by tfckpt but not committed",
        "tensorflow": "written by TensorFlow",
        "tf1_saver": "written by TF1's Saver",
        "saved_model": "the variables of a SavedModel",
        "keras": "written by Keras",
        "safetensors": "a safetensors file",
        "orbax": "written by Keras's OrbaxCheckpoint",
        "keras_h5": "written by Keras, HDF5 format of Keras 2",
    }
)


@dataclasses.dataclass(frozen=True)
class StoredCheckpoint:
    """An open checkpoint; a context manager.

    Attributes:
        prefix: its path, without ``.index``.
        inventory: its values by canonical name.
        values: the values themselves.
        kind: a key of :data:`KINDS`.
        record: tfckpt's commit record; None if another program wrote the checkpoint.
        graph: the bundle with TensorFlow's object graph, which TensorFlow needs to restore objects;
            None without one.
    """

    prefix: str
    inventory: Inventory
    values: StoredValues
    kind: str
    record: CommitRecord | None = None
    graph: Bundle | None = None

    def close(self) -> None:
        self.values.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reader(Protocol):
    """An open file."""

    def read(self, key: str, /) -> np.ndarray:
        """The value of a key that the file has."""


class FileValues(StoredValues):
    """The values of open files without an index in common, each of which reads its own."""

    def __init__(
        self,
        path: str,
        readers: Iterable[tuple[Reader, Iterable[str]]],
        handles: Sequence[Handle],
        closing: ExitStack,
    ) -> None:
        self._path = path
        self._handles = handles
        self._closing = closing
        self._owners: dict[str, Reader] = {}
        for reader, keys in readers:
            for key in keys:
                if self._owners.setdefault(key, reader) is not reader:
                    raise DamagedCheckpointError("is in two shards", path=path, name=key)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content of all files, concatenated."""
        with reading(self._path):
            return digest_of(self._handles)

    def read(self, key: str) -> np.ndarray:
        if (owner := self._owners.get(key)) is None:
            message = "the file does not contain this value"
            raise DamagedCheckpointError(message, path=self._path, name=key)
        return owner.read(key)

    def close(self) -> None:
        self._closing.close()
