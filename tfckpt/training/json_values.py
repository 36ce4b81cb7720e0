"""Encodes Python values as JSON that decodes to equal values of the same types and order.

A type that JSON does not have is a mapping with one key that begins with ``$`` and names the type:
a NumPy scalar or small array, infinity, NaN, a tuple, a dict whose order a commit record would not
keep. Decoding creates numbers, strings, containers and arrays of numbers, and nothing else.

An array of more than some numbers is not in the JSON: ``store`` gets it, and says its key. Refused:
any other object, deep nesting, and large arrays without ``store``. A record may come from anybody,
so decoding accepts only the types and sizes that encoding writes.
"""

from __future__ import annotations

import base64
import collections
import datetime
import decimal
import math
import pathlib
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Store = Callable[[np.ndarray[Any, Any]], str]

MAX_DEPTH = 20  # a tuple takes two
MAX_ELEMENTS = 10_000
_INLINE = 64  # numbers of an array, where others can be stored
MAX_BITS = 1 << 14
MAX_RANK = 32
_WIDTHS = (8, 16, 32, 64)
_PLAIN_INT = 1 << 63  # a record refuses numbers of more than twenty digits
# Numbers of at most eight bytes; not strings, whose dtype name sets the memory they take.
_DTYPES = {
    **{f"{kind}{bits}": np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in _WIDTHS},
    **{f"float{bits}": np.dtype(f"float{bits}") for bits in _WIDTHS[1:]},
    "bool": np.dtype(bool),
    **{
        name: np.dtype(kind)
        for name, kind in vars(ml_dtypes).items()
        if isinstance(kind, type) and issubclass(kind, np.generic) and np.dtype(kind).kind in "fV"
    },
}
_OF_MSGSPEC = (
    *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta),
    *(decimal.Decimal, uuid.UUID),
)
VALUES = (*_OF_MSGSPEC, range, pathlib.Path)  # of the standard library
_NONFINITE = {repr(value): value for value in (math.inf, -math.inf, math.nan)}


class NoJSONError(ValueError):
    """Says where in a value, and why: ``['seen'][3] is a object``."""


def encode(value: Any, depth: int = 0, store: Store | None = None) -> Any:
    """A value as JSON.

    >>> encode({"best": float("inf"), "wait": 2})
    {'best': {'$float': 'inf'}, 'wait': 2}
    >>> encode([np.float32(0.25)])
    [{'$float32': 0.25}]
    """
    if depth > MAX_DEPTH:
        raise NoJSONError(f" has more than {MAX_DEPTH} levels")
    if callable(getattr(value, "numpy", None)):  # a tensor or variable
        value = value.numpy()
    kind, inner = type(value), partial(_inside, depth=depth + 1, store=store)
    if _is_json(value):
        return value
    if kind is list:
        return [inner(item, f"[{index}]") for index, item in enumerate(value)]
    if kind is dict:
        keys = [_inside(key, " has a key that", depth + 1) for key in value]
        pairs = zip(keys, (inner(item, f"[{key!r}]") for key, item in value.items()), strict=True)
        plain = all(type(key) is str and not key.startswith("$") for key in value)
        in_order = plain and list(value) == sorted(value)
        return dict(pairs) if in_order else {"$dict": [*map(list, pairs)]}
    if isinstance(value, np.generic):
        return {f"${value.dtype.name}": _number(value)}
    if isinstance(value, np.ndarray):
        return _array(value, store)
    if kind not in _PARTS:
        raise NoJSONError(f" is a {kind.__name__}")
    tag, parts = _PARTS[kind]
    return {tag: inner(parts(value), "")}


def _array(value: np.ndarray[Any, Any], store: Store | None) -> Any:
    if value.dtype.hasobject:
        raise NoJSONError(" is an array of objects")
    if store is not None and value.size > _INLINE and value.dtype.kind in "biufcV":
        return {"$stored": store(value)}
    if value.size > MAX_ELEMENTS:
        raise NoJSONError(f" is an array of {value.size} elements")
    return {"$array": [value.dtype.name, list(value.shape), [*map(_number, value.flat)]]}


def decode(
    value: Any, depth: int = 0, stored: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> Any:
    """The value that was encoded; ``stored`` has the arrays by their keys.

    >>> decode({"best": {"$float": "inf"}, "wait": 2})
    {'best': inf, 'wait': 2}
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return [decode(item, depth + 1, stored) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: decode(item, depth + 1, stored) for key, item in value.items()}
    ((_, inner),) = value.items()
    if tag == "$dict":
        each = partial(decode, depth=depth + 1)
        return {each(key): each(item, stored=stored) for key, item in inner}
    if tag in _MADE_OF:
        return _MADE_OF[tag](decode(inner, depth + 1, stored))
    kept = tag == "$stored"
    return np.array((stored or {})[inner]) if kept else _dtype(tag[1:]).type(_element(inner))


def _inside(value: Any, where: str, depth: int, store: Store | None = None) -> Any:
    try:
        return encode(value, depth, store)
    except NoJSONError as error:
        raise NoJSONError(f"{where}{error}") from None


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NoJSONError(" is a string that UTF-8 cannot encode") from None
        return True
    if kind is int:
        return bool(-_PLAIN_INT <= value < _PLAIN_INT)
    return value is None or kind is bool or (kind is float and math.isfinite(value))


def _digits(value: int) -> str:
    if value.bit_length() > MAX_BITS:
        raise NoJSONError(f" is a number of {value.bit_length()} bits")
    return hex(value)


def _number(value: Any) -> Any:
    """A NumPy scalar as a JSON number: a float64 holds every smaller float."""
    dtype = np.asarray(value).dtype
    if dtype.kind in "biu":
        return value.item()
    if dtype.kind not in "fV" or dtype.itemsize > 8 or dtype.names:
        raise NoJSONError(f" has dtype {dtype.name}")
    number = float(value)
    return number if math.isfinite(number) else repr(number)


def _dtype(name: Any) -> np.dtype[Any]:
    if not isinstance(name, str) or name not in _DTYPES:
        raise ValueError(f"{name!r} is not a supported dtype")
    return _DTYPES[name]


def _element(item: Any) -> Any:
    if isinstance(item, str):
        return _to_float(item)
    if not isinstance(item, (int, float)):
        raise TypeError(f"expected a number, found a {type(item).__name__}")
    return item


def _to_float(text: Any) -> float:
    if not isinstance(text, str) or text not in _NONFINITE:
        raise ValueError("expected 'inf', '-inf' or 'nan'")
    return _NONFINITE[text]


def _to_int(digits: Any) -> int:
    if not isinstance(digits, str) or len(digits) > MAX_BITS // 4 + len("-0x"):
        raise ValueError(f"expected a hexadecimal number of at most {MAX_BITS} bits")
    return int(digits, 16)


def _to_array(parts: Any) -> np.ndarray[Any, Any]:
    name, shape, flat = parts
    if len(flat) > MAX_ELEMENTS or len(shape) > MAX_RANK:
        raise ValueError(
            f"an array of {len(flat)} elements and {len(shape)} dimensions is too large"
        )
    if any(type(side) is not int or not 0 <= side <= MAX_ELEMENTS for side in shape):
        raise ValueError(f"{shape} is not a valid shape of a small array")
    return np.array([_element(item) for item in flat], _dtype(name)).reshape(shape)


def _to_complex(parts: Any) -> complex:
    real, imaginary = parts
    return complex(real, imaginary)


def _in_order(value: Any) -> list[Any]:
    return sorted(value, key=repr)


_PARTS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    int: ("$int", _digits),
    float: ("$float", repr),
    tuple: ("$tuple", list),
    set: ("$set", _in_order),
    frozenset: ("$frozenset", _in_order),
    collections.deque: ("$deque", lambda value: [list(value), value.maxlen]),
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode()),
    complex: ("$complex", lambda value: [value.real, value.imag]),
    range: ("$range", lambda value: [value.start, value.stop, value.step]),
    type(pathlib.Path()): ("$path", str),
    **{kind: (f"${kind.__name__}", msgspec.to_builtins) for kind in _OF_MSGSPEC},
}
_MADE_OF: dict[str, Callable[[Any], Any]] = {
    "$array": _to_array,
    "$float": _to_float,
    "$int": _to_int,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$deque": lambda parts: collections.deque(*parts),
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$complex": _to_complex,
    "$range": lambda parts: range(*parts),
    "$path": pathlib.Path,
    **{f"${kind.__name__}": partial(msgspec.convert, type=kind) for kind in _OF_MSGSPEC},
}
