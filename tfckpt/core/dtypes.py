"""The dtypes of TensorFlow: numbers, sizes, NumPy's for each, and which can be cast to which.

NumPy knows bfloat16 and the other small dtypes by ml_dtypes. Both are imported where an array is
made, so that an index can be read without them.

A cast may round. Refused are a finite number that becomes infinite, and a number that the integer
dtype does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.errors import UnsupportedCheckpointError

if TYPE_CHECKING:
    import numpy as np

# Number in protocol buffers, bytes of an element in a checkpoint, 0 where elements differ in size:
# https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/types.proto
_TYPES = {
    "float32": (1, 4),
    "float64": (2, 8),
    "int32": (3, 4),
    "uint8": (4, 1),
    "int16": (5, 2),
    "int8": (6, 1),
    "string": (7, 0),
    "complex64": (8, 8),
    "int64": (9, 8),
    "bool": (10, 1),
    "qint8": (11, 1),
    "quint8": (12, 1),
    "qint32": (13, 4),
    "bfloat16": (14, 2),
    "qint16": (15, 2),
    "quint16": (16, 2),
    "uint16": (17, 2),
    "complex128": (18, 16),
    "float16": (19, 2),
    "resource": (20, 0),
    "variant": (21, 0),
    "uint32": (22, 4),
    "uint64": (23, 8),
    "float8_e5m2": (24, 1),
    "float8_e4m3fn": (25, 1),
    "float8_e4m3fnuz": (26, 1),
    "float8_e4m3b11fnuz": (27, 1),
    "float8_e5m2fnuz": (28, 1),
    "int4": (29, 1),
    "uint4": (30, 1),
    "int2": (31, 1),
    "uint2": (32, 1),
    "float4_e2m1fn": (33, 1),
}
DTYPES = {number: name for name, (number, _) in _TYPES.items()}
NUMBERS = {name: number for number, name in DTYPES.items()}
ITEM_BYTES = {name: nbytes for name, (_, nbytes) in _TYPES.items() if nbytes}
QUANTIZED = {"qint8": "i1", "quint8": "u1", "qint16": "i2", "quint16": "u2", "qint32": "i4"}

_WHOLE = ("int", "uint")
_FLOAT = ("float", "bfloat")
_COMPLEX = ("complex",)
_ORDER = (("bool",), ("uint",), ("int",), _FLOAT, _COMPLEX)
_PART = 1 << 20


class LostNumberError(ValueError):
    """A dtype cannot hold a number."""


def numpy_dtype(dtype: str) -> np.dtype:
    """NumPy's dtype for TensorFlow's: structured for quantized ones, object for strings.

    >>> numpy_dtype("bfloat16").itemsize
    2
    """
    import numpy as np

    if dtype == "string":
        return np.dtype(object)
    if dtype in QUANTIZED:
        return np.dtype([(dtype, QUANTIZED[dtype])])
    if dtype == "bfloat16" or ITEM_BYTES[dtype] == 1:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype, dtype))
    return np.dtype(dtype)


def dtype_name(dtype: np.dtype) -> str:
    """TensorFlow's name for a NumPy dtype.

    >>> import numpy as np
    >>> dtype_name(np.dtype("<f4")), dtype_name(np.dtype(object))
    ('float32', 'string')
    """
    if dtype.hasobject:
        return "string"
    name = dtype.names[0] if dtype.names else dtype.name
    if ITEM_BYTES.get(name) != dtype.itemsize:
        raise UnsupportedCheckpointError(f"TensorFlow has no dtype for NumPy's {dtype}")
    return name


def is_real(dtype: str) -> bool:
    """Whether the dtype is a real floating-point type."""
    return dtype.startswith(_FLOAT)


def castable(old: str, new: str) -> bool:
    """Whether a cast between the dtypes makes sense at all: no text, no complex to real.

    >>> castable("float32", "bfloat16"), castable("bool", "int32"), castable("float32", "complex64")
    (True, True, True)
    >>> castable("string", "int64"), castable("complex64", "float32"), castable("int32", "bool")
    (False, False, False)
    """
    real = (*_WHOLE, *_FLOAT)
    if new.startswith(_COMPLEX):
        return old.startswith(("bool", *real, *_COMPLEX))
    return new.startswith(real) and old.startswith(("bool", *real))


def can_cast(old: str, new: str, casting: str) -> bool:
    """As ``numpy.can_cast``, with bfloat16; ``any`` is NumPy's unsafe, for numbers and bools.

    >>> can_cast("float64", "float32", "safe"), can_cast("float64", "float32", "same_kind")
    (False, True)
    >>> can_cast("float32", "int32", "same_kind"), can_cast("float32", "int32", "any")
    (False, True)
    """
    import numpy as np

    source, target = _order(old), _order(new)
    if old == new or source < 0 or target < 0:
        return old == new
    # bfloat16 has no kind in NumPy, so NumPy does not know what same_kind means for it
    if casting == "any" or (casting == "same_kind" and source <= target):
        return True
    exact = numpy_dtype(new)
    # ml_dtypes calls any cast to its smaller dtypes safe
    return (exact.isbuiltin == 1 or new == "bfloat16") and np.can_cast(
        numpy_dtype(old), exact, "safe"
    )


def _order(dtype: str) -> int:
    return next((n for n, kind in enumerate(_ORDER) if dtype.startswith(kind)), -1)


def holds(dtype: str, number: float) -> bool:
    """Whether a dtype can represent a finite number, rounded for floating-point types.

    >>> holds("int8", 200), holds("int8", 0.5), holds("float16", 1e6), holds("float32", 0.1)
    (False, False, False, True)
    """
    import numpy as np

    if dtype == "bool":
        return number in (0, 1)
    if dtype.startswith(_WHOLE):
        limits = _limits(numpy_dtype(dtype))
        return float(number).is_integer() and bool(limits.min <= number <= limits.max)
    with np.errstate(over="ignore"):
        return _order(dtype) >= 0 and bool(
            np.isfinite(np.float64(number).astype(numpy_dtype(dtype)))
        )


def cast(value: np.ndarray, dtype: np.dtype, *, lossy: bool = False) -> np.ndarray:
    """An array in another dtype; strings stay as they are.

    With ``lossy``, fractions and imaginary parts are cut off, integers wrap, and too large numbers
    become infinite. Casts without a defined result are still refused.

    >>> import numpy as np
    >>> cast(np.array([0.1], np.float32), numpy_dtype("bfloat16"))
    array([0.100098], dtype=bfloat16)
    >>> cast(np.array([200, 100], np.uint8), np.dtype("int8"))
    Traceback (most recent call last):
    tfckpt.core.dtypes.LostNumberError: int8 cannot hold 200, which is uint8 in the checkpoint
    """
    import numpy as np

    if value.dtype in (dtype, object):
        return value
    if lossy and value.dtype.kind == "c" and dtype.kind not in "cb":
        value = value.real
    if value.size <= _PART:
        return _cast_part(value, dtype, lossy=lossy)
    result = np.empty(value.shape, dtype)
    old, new = np.ascontiguousarray(value).reshape(-1), result.reshape(-1)
    for start in range(0, old.size, _PART):
        part = slice(start, start + _PART)
        new[part] = _cast_part(old[part], dtype, lossy=lossy)
    return result


def _cast_part(old: np.ndarray, dtype: np.dtype, *, lossy: bool) -> np.ndarray:
    import numpy as np

    with np.errstate(all="ignore"):
        new = old.astype(dtype)
        held = _held(old, new, lossy=lossy)
    if held is not None and not held.all():
        lost = f"{old[~held][0]}, which is {old.dtype.name} in the checkpoint"
        raise LostNumberError(f"{dtype.name} cannot hold {lost}")
    return new


def _held(old: np.ndarray, new: np.ndarray, *, lossy: bool) -> np.ndarray | None:
    """Which elements survive a cast, apart from rounding; None for all."""
    import numpy as np

    if not new.dtype.name.startswith(_WHOLE):
        return None if lossy else np.asarray(np.isfinite(new) == np.isfinite(old))
    if old.dtype.name.startswith(("bool", *_WHOLE)):
        # a wrapped number converts back to itself, but its sign differs
        return None if lossy else (new.astype(old.dtype) == old) & ((new < 0) == (old < 0))
    limits = _limits(new.dtype)
    wide = old if old.dtype.itemsize >= 4 else old.astype(np.float32)
    whole = np.trunc(wide) if lossy else new.astype(wide.dtype)
    # out of range, C leaves the result undefined: it may be the greatest number
    held = (whole >= float(limits.min)) if lossy else (whole == wide)
    return held & (wide < float(limits.max + 1))


def _limits(dtype: np.dtype) -> Any:
    import ml_dtypes

    return ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
