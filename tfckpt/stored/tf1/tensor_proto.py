"""The elements of a ``TensorProto`` in TF1's format version 1: a field for each kind of dtype.

The field of each dtype is in tensorflow/core/util/saved_tensor_slice_util.h. Small integers are
stored as varints, half floats as the integers of the same bits.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tfckpt.core.dtypes import numpy_dtype
from tfckpt.stored.bundles.encoding.index_proto import WireError, as_message, fields
from tfckpt.stored.bundles.index import element_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from tfckpt.core.inventory import Shape

_STRING = 8
_FIXED = {5: 4, 6: 8, 9: 4, 12: 8}
_MAX_VARINT = 10

# Dtype → the number of its field.
FIELDS: Mapping[str, int] = MappingProxyType(
    {
        "float32": 5,
        "float64": 6,
        **dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32"), 7),
        **dict.fromkeys(("qint8", "quint8", "qint16", "quint16", "qint32"), 7),
        "string": _STRING,
        "complex64": 9,
        "int64": 10,
        "bool": 11,
        "complex128": 12,
        **dict.fromkeys(("float16", "bfloat16"), 13),
        "uint32": 16,
        "uint64": 17,
    }
)


def array_of(data: bytes, dtype: str, shape: Shape) -> np.ndarray:
    """The array in a TensorProto, whose own dtype and shape the writer leaves out.

    Raises:
        WireError: the number of elements does not match the shape.

    >>> array_of(bytes([0x3A, 2, 3, 4]), "uint8", (2,)).tolist()
    [3, 4]
    """
    import numpy as np

    number = FIELDS[dtype]
    stored = [value for each, value in fields(data) if each == number]
    count = element_count(shape)
    if number == _STRING:
        _check(len(stored), count)
        strings = np.empty(count, object)
        strings[:] = [as_message(value) for value in stored]
        return strings.reshape(shape)
    if number in _FIXED:
        size = _FIXED[number]
        content = b"".join(
            value if isinstance(value, bytes) else value.to_bytes(size, "little")
            for value in stored
        )
        kind = numpy_dtype(dtype)
        _check(len(content) / kind.itemsize, count)
        # a copy, so that the result is writable
        return (
            np.frombuffer(bytearray(content), kind.newbyteorder("<"))
            .astype(kind, copy=False)
            .reshape(shape)
        )
    numbers = np.concatenate(
        [np.empty(0, np.uint64)]
        + [
            _varints(value) if isinstance(value, bytes) else np.array([value], np.uint64)
            for value in stored
        ]
    )
    _check(len(numbers), count)
    return _cast(numbers, dtype, number).reshape(shape)


def _check(stored: float, count: int) -> None:
    if stored != count:
        raise WireError(f"the value has {stored:g} elements, but its shape needs {count}")


def _varints(content: bytes) -> np.ndarray:
    """Decode all packed varints at once."""
    import numpy as np

    raw = np.frombuffer(content, np.uint8)
    last = np.flatnonzero(raw < 128)
    if not len(raw):
        return np.empty(0, np.uint64)
    if not len(last) or last[-1] != len(raw) - 1:
        raise WireError("a number is truncated")
    lengths = np.diff(last, prepend=-1)
    if lengths.max() > _MAX_VARINT:
        raise WireError("a number has more than 64 bits")
    starts = last - lengths + 1
    total = np.zeros(len(last), np.uint64)
    for position in range(int(lengths.max())):
        longer = lengths > position
        bits = raw[starts[longer] + position].astype(np.uint64) & np.uint64(127)
        total[longer] |= bits << np.uint64(7 * position)
    return total


def _cast(numbers: np.ndarray, dtype: str, field: int) -> np.ndarray:
    """The numbers as the dtype; one that does not fit is refused."""
    import numpy as np

    kind = numpy_dtype(dtype)
    if kind == np.dtype(bool):
        return numbers.astype(bool)
    if field == FIELDS["float16"]:
        narrow = numbers.astype(np.uint16)
        fits = narrow == numbers
    else:
        inner = np.dtype(kind[0]) if kind.names else kind
        wide = numbers.view(np.int64) if inner.kind == "i" else numbers
        narrow = wide.astype(inner)
        fits = narrow == wide
    if not np.all(fits):
        raise WireError(f"an element is out of the range of {dtype}")
    return narrow.view(kind)
