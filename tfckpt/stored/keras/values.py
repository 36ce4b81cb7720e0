"""The values of Keras's files by their keys: in one HDF5 file, in shards or in an archive."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.io.files import digest_of, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import ExitStack

    import numpy as np

    from tfckpt.stored.io.files import Handle
    from tfckpt.stored.keras.hdf5 import Hdf5


class KerasValues:
    """The values of open HDF5 files."""

    missing_files = ()  # opening fails if a shard is missing

    def __init__(
        self,
        path: str,
        owners: Mapping[str, Hdf5],
        handles: Sequence[Handle],
        closing: ExitStack,
        checks: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._path = path
        self._owners = owners
        self._handles = handles
        self._closing = closing
        self._checks = list(checks)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content of all files, concatenated."""
        with reading(self._path):
            return digest_of(self._handles)

    def read(self, key: str) -> np.ndarray:
        """The value of a key."""
        self._checked()
        if (owner := self._owners.get(key)) is None:
            raise DamagedCheckpointError(
                "the file does not contain this value", path=self._path, name=key
            )
        return owner.read(key)

    def verify(self, keys: Iterable[str]) -> None:
        """Read these values; Keras's HDF5 files have no checksums, an archive has one."""
        for key in keys:
            self.read(key)

    def close(self) -> None:
        self._closing.close()

    def _checked(self) -> None:
        while self._checks:
            self._checks[-1]()
            self._checks.pop()
