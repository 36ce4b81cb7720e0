"""Which dtypes can be cast to which, by the rules of a policy and of NumPy.

NumPy itself has no bfloat16, and planning should not need ml_dtypes; so this module has NumPy's
rules by kind and size.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_REAL = ("float", "bfloat", "int", "uint")
_COMPLEX = "complex"
_ORDER = {"bool": 0, "uint": 1, "int": 2, "float": 3, "complex": 4}
# Bits of the widest integers that NumPy casts safely to each float.
_WHOLE = {"bfloat16": 8, "float16": 8, "float32": 16, "float64": 64}
_BELOW = {
    "bfloat16": {"bfloat16"},
    "float16": {"float16"},
    "float32": {"bfloat16", "float16", "float32"},
    "float64": {"bfloat16", "float16", "float32", "float64"},
}
# From this magnitude on, a number rounds to infinity.
_INFINITE = {
    "float16": 65520.0,
    "bfloat16": 2.0**128 - 2.0**119,
    "float32": 2.0**128 - 2.0**103,
    "complex64": 2.0**128 - 2.0**103,
}


class _Type(NamedTuple):
    kind: str
    bits: int


def castable(old: str, new: str) -> bool:
    """Whether a cast between the dtypes makes sense at all: no text, no complex to real.

    >>> castable("float32", "bfloat16"), castable("bool", "int32"), castable("float32", "complex64")
    (True, True, True)
    >>> castable("string", "int64"), castable("complex64", "float32"), castable("int32", "bool")
    (False, False, False)
    """
    if new.startswith(_COMPLEX):
        return old == "bool" or old.startswith((*_REAL, _COMPLEX))
    return new.startswith(_REAL) and (old == "bool" or old.startswith(_REAL))


def can_cast(old: str, new: str, casting: str) -> bool:
    """As ``numpy.can_cast``, with bfloat16; ``any`` is NumPy's unsafe, for numbers and bools.

    >>> can_cast("float64", "float32", "safe"), can_cast("float64", "float32", "same_kind")
    (False, True)
    >>> can_cast("float32", "int32", "same_kind"), can_cast("float32", "int32", "any")
    (False, True)
    """
    source, target = _type(old), _type(new)
    if source is None or target is None:
        return old == new
    if casting == "any":
        return True
    if casting == "same_kind" and _ORDER[source.kind] <= _ORDER[target.kind]:
        return True
    return old == new or _safe(old, source, new, target)


def is_real(dtype: str) -> bool:
    """Whether the dtype is a real floating-point type."""
    return dtype.startswith(("float", "bfloat"))


def holds(dtype: str, number: float) -> bool:
    """Whether a dtype can represent a number, rounded for floating-point types.

    >>> holds("int8", 200), holds("int8", 0.5), holds("float16", 1e6), holds("float32", 0.1)
    (False, False, False, True)
    """
    kind = _type(dtype)
    if kind is None:
        return False
    if kind.kind in {"float", "complex"}:
        return abs(number) < _INFINITE.get(dtype, float("inf"))
    signed = kind.kind == "int"
    top = 2 ** (kind.bits - signed)
    return float(number).is_integer() and (-top if signed else 0) <= number < top


def _type(dtype: str) -> _Type | None:
    if dtype == "bool":
        return _Type("bool", 1)
    match = re.fullmatch(r"b?(uint|int|float|complex)(\d+)", dtype)
    return _Type(match[1], int(match[2])) if match else None


def _safe(old: str, source: _Type, new: str, target: _Type) -> bool:
    if source.kind == "bool":
        return True
    if target.kind == "complex" and source.kind != "complex":
        new, target = f"float{target.bits // 2}", _Type("float", target.bits // 2)
    if target.kind == "float" and source.kind == "float":
        return old in _BELOW[new]
    if target.kind == "float":
        return source.kind in {"int", "uint"} and source.bits <= _WHOLE[new]
    wider = source.bits < target.bits and (source.kind, target.kind) == ("uint", "int")
    return wider or (source.kind == target.kind and source.bits <= target.bits)
