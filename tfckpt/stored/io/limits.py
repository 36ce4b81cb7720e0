"""How much is read of files that may be forged: the lengths of parts, and what they unpack to.

Compression lets a small file declare values of any size, and formats compress what is compressed
already. So all that the files of a checkpoint declare has one room, whatever it passes through:
:data:`EXPANSION` times their size, or :data:`SMALL` where that is more. There is room for zeros of
any size as DEFLATE packs them, and as Zstandard does beside weights that do not compress.
"""

from __future__ import annotations

from tfckpt.core.text import size
from tfckpt.errors import UnsupportedCheckpointError

EXPANSION = 1100  # DEFLATE reaches 1032 at most
SMALL = 1 << 28

TEXT = 1 << 26  # JSON, which takes thirty times its length in memory
INDEX = 1 << 30  # of a bundle: ten million values
RECORD = 1 << 28  # a million values, at about 200 bytes each
STATE_FILE = 1 << 24
SAVED_MODEL = 1 << 27  # these files have no weights, but may have constants of a graph
WORDS = 1 << 30
PARTS = 100_000  # shards that a file lists, members of an archive
OBJECTS = 1_000_000  # in an HDF5 file
DEPTH = 200


class Room:
    """What the files of a checkpoint may declare in all; ``path`` is for messages.

    >>> room = Room("weights.h5")
    >>> room.add(1 << 30)
    >>> room.take(1 << 40)
    >>> room.take(1 << 42)
    Traceback (most recent call last):
    ...
    tfckpt.errors.UnsupportedCheckpointError: weights.h5: declares 5.0 TiB of values in 1.0 GiB ...
    """

    def __init__(self, path: str, nbytes: int = 0) -> None:
        self._path, self._nbytes, self._taken = path, nbytes, 0

    def add(self, nbytes: int) -> None:
        """Add the size of a file."""
        self._nbytes += nbytes

    def take(self, nbytes: int, name: str = "") -> None:
        """Count what is declared; UnsupportedCheckpointError where there is no room for it."""
        self._taken += nbytes
        if self._taken > max(SMALL, EXPANSION * self._nbytes):
            raise UnsupportedCheckpointError(
                f"declares {size(self._taken)} of values in {size(self._nbytes)} of files, which "
                "tfckpt does not read",
                path=self._path,
                name=name,
                hint="if these are real, save them again without compression",
            )
