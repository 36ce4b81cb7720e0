"""The values of an open checkpoint of any format, by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np

    from tfckpt.errors import CheckpointError
    from tfckpt.stored.bundles.index import BundleEntry


class StoredValues:
    """What a format says of an open checkpoint, by key."""

    @property
    def digest(self) -> str:
        """SHA-256 that identifies the checkpoint, in hexadecimal."""
        raise NotImplementedError

    @property
    def missing_files(self) -> Mapping[str, int]:
        """Path of each missing file → how many values it has."""
        return {}

    @property
    def sizes(self) -> Mapping[str, int]:
        """Key → size in bytes of all that is stored, if that is more than the named values."""
        return {}

    def lost(self, _: str) -> CheckpointError | None:
        """The error for a value whose file is missing."""
        return None

    def checksum(self, _: str) -> int | None:
        """The CRC-32C of a value's bytes, if the format has one."""
        return None

    def plain(self, _: str) -> BundleEntry | None:
        """How a value is stored whose stored bytes are those of its array."""
        return None

    def read(self, key: str) -> np.ndarray:
        """The value of a key, after a check of its checksum if the format has one."""
        raise NotImplementedError

    def fetch(self, wanted: Iterable[tuple[str, np.ndarray | None]]) -> None:
        """Read values into arrays of their bytes; None checks the stored bytes only."""
        for key, into in wanted:
            value = self.read(key)
            if into is not None:
                into[:] = value.reshape(-1).view(into.dtype)

    def verify(self, keys: Iterable[str]) -> None:
        """Check the stored bytes of these values."""
        self.fetch((key, None) for key in keys)

    def close(self) -> None:
        raise NotImplementedError
