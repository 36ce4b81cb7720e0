"""Computes a checksum of each value that does not depend on the format it is stored in.

It is the CRC-32C of the bytes, little-endian and in C order. TensorFlow's index contains it, so two
TensorFlow checkpoints are compared without reading their data.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import google_crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np

    from tfckpt.core.inventory import Entry
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint

_CHUNK = 1 << 24
_FEW = 16


def checksums(
    stored: StoredCheckpoint,
    entries: Iterable[Entry],
    advance: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, int]:
    """Name → checksum of each tensor; ``advance`` receives bytes read and to be read in total."""
    values = stored.values
    stored_crcs = {
        entry: values.checksum(entry.key) for entry in entries if entry.shape is not None
    }
    done, total = 0, sum(entry.nbytes for entry, crc in stored_crcs.items() if crc is None)
    result = {}
    for entry, crc in stored_crcs.items():
        if crc is None:
            advance(done, total)
            done += entry.nbytes
        result[entry.name] = checksum(values.read(entry.key)) if crc is None else crc
    return result


def checksum(array: np.ndarray) -> int:
    """The checksum of an array.

    >>> import numpy as np
    >>> checksum(np.zeros(3, "float32")) == checksum(np.zeros((3, 1), ">f4"))
    True
    """
    import numpy as np

    if array.dtype.hasobject:
        text = b"".join(b"%d:%b" % (len(one), one) for one in array.reshape(-1).tolist())
        return int(google_crc32c.value(text))
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    crc = 0
    for start in range(0, raw.size, _CHUNK):
        crc = google_crc32c.extend(crc, raw[start : start + _CHUNK])
    return int(crc)


def is_distinctive(entry: Entry, crc: int) -> bool:
    """Whether equal checksums mean equal origin: false for zeros, ones and scalars.

    >>> from tfckpt.core.inventory import Entry, Role
    >>> import numpy as np
    >>> bias = Entry("model/a/bias", Role.WEIGHT, "float32", (8,), 32)
    >>> [is_distinctive(bias, checksum(np.full(8, n, "float32"))) for n in (0, 1, 2)]
    [False, False, True]
    """
    if entry.dtype in ("string", "") or entry.shape == ():
        return False
    return entry.nbytes >= _FEW and crc not in _plain(entry.dtype, entry.nbytes)


@functools.cache
def _plain(dtype: str, nbytes: int) -> tuple[int, ...]:
    import numpy as np

    from tfckpt.core.dtypes import ITEM_BYTES, QUANTIZED, numpy_dtype

    if nbytes > _CHUNK or dtype in QUANTIZED or not ITEM_BYTES.get(dtype):
        return (int(google_crc32c.value(bytes(nbytes))),) if nbytes <= _CHUNK else ()
    count = nbytes // ITEM_BYTES[dtype]
    return tuple(checksum(np.full(count, n, numpy_dtype(dtype))) for n in (0, 1))
