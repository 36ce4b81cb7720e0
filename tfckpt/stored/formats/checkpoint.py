"""What every format comes down to once it is open: an inventory, and the values behind it.

Each format has a reader of its own; what restores, shows or compares a checkpoint knows these two
types alone.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from typing_extensions import Self

    from tfckpt.core.inventory import Inventory
    from tfckpt.stored.commits.record import CommitRecord

# What each kind of checkpoint is, as the end of a sentence about its path.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "tfckpt": "written by tfckpt",
        "uncommitted": "written by tfckpt but not committed",
        "tensorflow": "written by TensorFlow",
        "tf1_saver": "written by TF1's Saver, format version 2",
        "tf1_saver_v1": "written by TF1's Saver, format version 1",
        "saved_model": "the variables of a SavedModel",
        "keras": "written by Keras",
        "safetensors": "a safetensors file",
        "keras_h5": "written by Keras, HDF5 format of Keras 2",
        "average": "an average of several checkpoints",
    }
)


class Values(Protocol):
    """The values of an open artefact, by their keys there.

    Attributes:
        missing_files: paths of the files that values are in and that are absent.
    """

    @property
    def missing_files(self) -> tuple[str, ...]: ...

    @property
    def digest(self) -> str:
        """SHA-256 that identifies the artefact, in hexadecimal."""

    def read(self, key: str) -> np.ndarray:
        """The value of a key, its checksum checked where the format has one.

        Raises:
            DamagedCheckpointError: it is not there whole.
        """

    def verify(self, keys: Iterable[str]) -> None:
        """Checks the stored bytes of these values.

        Raises:
            DamagedCheckpointError: the first value that is absent, cut off or altered.
        """

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class StoredCheckpoint:
    """An open checkpoint; a context manager.

    Attributes:
        prefix: its path; without ``.index`` where it has one.
        inventory: its values by canonical name.
        values: the values themselves.
        kind: what it is: a word of :data:`KINDS`.
        record: tfckpt's commit record, or None for what others wrote.
        graph: whether TensorFlow's object graph is in it, by which TensorFlow restores objects.
    """

    prefix: str
    inventory: Inventory
    values: Values
    kind: str
    record: CommitRecord | None = None
    graph: bool = False

    def close(self) -> None:
        self.values.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
