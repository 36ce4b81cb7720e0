"""Which types may become which: as a policy has it, and as NumPy has it.

NumPy does not know bfloat16, and what it needs to be asked is not needed for a plan; so its rules
stand here as they are, by kind and size.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_REAL = ("float", "bfloat", "int", "uint")
_COMPLEX = "complex"
_ORDER = {"bool": 0, "uint": 1, "int": 2, "float": 3, "complex": 4}
# The bits of the widest whole numbers that NumPy lets into each float.
_WHOLE = {"bfloat16": 8, "float16": 8, "float32": 16, "float64": 64}
_BELOW = {
    "bfloat16": {"bfloat16"},
    "float16": {"float16"},
    "float32": {"bfloat16", "float16", "float32"},
    "float64": {"bfloat16", "float16", "float32", "float64"},
}
# From here on a number is nearer to infinity than to the largest that the type has.
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
    """Whether values of one type can become another without ceasing to be what they are.

    >>> castable("float32", "bfloat16"), castable("bool", "int32"), castable("float32", "complex64")
    (True, True, True)
    >>> castable("string", "int64"), castable("complex64", "float32"), castable("int32", "bool")
    (False, False, False)
    """
    if new.startswith(_COMPLEX):
        return old == "bool" or old.startswith((*_REAL, _COMPLEX))
    return new.startswith(_REAL) and (old == "bool" or old.startswith(_REAL))


def can_cast(old: str, new: str, casting: str) -> bool:
    """What ``numpy.can_cast`` says; ``any`` is what NumPy calls unsafe, between numbers and bools.

    >>> can_cast("float64", "float32", "safe"), can_cast("float64", "float32", "same_kind")
    (False, True)
    >>> can_cast("float32", "int32", "same_kind"), can_cast("float32", "int32", "any")
    (False, True)
    """
    there, here = _type(old), _type(new)
    if there is None or here is None:
        return old == new
    if casting == "any":
        return True
    if casting == "same_kind" and _ORDER[there.kind] <= _ORDER[here.kind]:
        return True
    return old == new or _safe(old, there, new, here)


def is_real(dtype: str) -> bool:
    """Whether it is a type of numbers with fractions."""
    return dtype.startswith(("float", "bfloat"))


def holds(dtype: str, number: float) -> bool:
    """Whether a type has room for a number, rounded if it has fractions.

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
    found = re.fullmatch(r"b?(uint|int|float|complex)(\d+)", dtype)
    return _Type(found[1], int(found[2])) if found else None


def _safe(old: str, there: _Type, new: str, here: _Type) -> bool:
    if there.kind == "bool":
        return True
    if here.kind == "complex" and there.kind != "complex":
        new, here = f"float{here.bits // 2}", _Type("float", here.bits // 2)
    if here.kind == "float" and there.kind == "float":
        return old in _BELOW[new]
    if here.kind == "float":
        return there.kind in {"int", "uint"} and there.bits <= _WHOLE[new]
    wider = there.bits < here.bits and (there.kind, here.kind) == ("uint", "int")
    return wider or (there.kind == here.kind and there.bits <= here.bits)
