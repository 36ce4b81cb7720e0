"""Encodes Python values as JSON that decodes to equal values of the same types and order.

A type that JSON does not have is a mapping with one key that begins with ``$`` and names the type:
a NumPy scalar or small array, infinity, NaN, a tuple, a dict whose order a commit record would not
keep. Decoding creates numbers, strings, lists, dicts and arrays of numbers, and nothing else.

An array of more than some numbers is not in the JSON: ``store`` gets it, and says its key. Refused:
any other object, deep nesting, and large arrays without ``store``. A record may come from anybody,
so decoding accepts only the types and sizes that encoding writes.
"""

from __future__ import annotations

import base64
import collections
import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Store = Callable[[np.ndarray[Any, Any]], str]

MAX_DEPTH = 16
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
    if value is None or type(value) is bool:
        return value
    if isinstance(value, np.generic):
        return {f"${value.dtype.name}": _number(value)}
    if isinstance(value, np.ndarray):
        if store is not None and value.size > _INLINE and value.dtype.kind in "biufcV":
            return {"$stored": store(value)}
        if value.size > MAX_ELEMENTS:
            raise NoJSONError(f" is an array of {value.size} elements")
        return {"$array": [value.dtype.name, list(value.shape), [_number(v) for v in value.flat]]}
    if type(value) not in _ENCODERS:
        raise NoJSONError(f" is a {type(value).__name__}")
    return _ENCODERS[type(value)](value, depth + 1, store)


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
    if tag == "$stored":
        return np.array((stored or {})[inner])
    decoder = _DECODERS.get(tag)
    if decoder is None:
        return _dtype(tag[1:]).type(_element(inner))
    return decoder(inner, depth + 1, stored)


def _text(value: str, *_: Any) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NoJSONError(" is a string that UTF-8 cannot encode") from None
    return value


def _int(value: int, *_: Any) -> Any:
    if value.bit_length() > MAX_BITS:
        raise NoJSONError(f" is a number of {value.bit_length()} bits")
    return value if -_PLAIN_INT <= value < _PLAIN_INT else {"$int": hex(value)}


def _float(value: float, *_: Any) -> Any:
    return value if math.isfinite(value) else {"$float": repr(value)}


def _list(value: Iterable[Any], depth: int, store: Store | None) -> list[Any]:
    return [_at(f"[{index}]", item, depth, store) for index, item in enumerate(value)]


def _tuple(value: Iterable[Any], depth: int, store: Store | None) -> Any:
    return {"$tuple": _list(value, depth, store)}


def _dict(value: dict[Any, Any], depth: int, store: Store | None) -> Any:
    pairs = [
        [_at(" has a key that", k, depth), _at(f"[{k!r}]", v, depth, store)]
        for k, v in value.items()
    ]
    plain = all(type(key) is str and not key.startswith("$") for key in value)
    return dict(pairs) if plain and list(value) == sorted(value) else {"$dict": pairs}


def _at(path: str, value: Any, depth: int, store: Store | None = None) -> Any:
    try:
        return encode(value, depth, store)
    except NoJSONError as error:
        raise NoJSONError(f"{path}{error}") from None


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


def _to_float(text: Any, *_: Any) -> float:
    if not isinstance(text, str) or text not in _NONFINITE:
        raise ValueError("expected 'inf', '-inf' or 'nan'")
    return _NONFINITE[text]


def _to_int(digits: Any, *_: Any) -> int:
    if not isinstance(digits, str) or len(digits) > MAX_BITS // 4 + len("-0x"):
        raise ValueError(f"expected a hexadecimal number of at most {MAX_BITS} bits")
    return int(digits, 16)


def _to_array(parts: Any, *_: Any) -> np.ndarray[Any, Any]:
    name, shape, flat = parts
    if len(flat) > MAX_ELEMENTS or len(shape) > MAX_RANK:
        raise ValueError(
            f"an array of {len(flat)} elements and {len(shape)} dimensions is too large"
        )
    if any(type(side) is not int or not 0 <= side <= MAX_ELEMENTS for side in shape):
        raise ValueError(f"{shape} is not a valid shape of a small array")
    return np.array([_element(item) for item in flat], _dtype(name)).reshape(shape)


def _to_dict(pairs: Any, depth: int, stored: Any) -> dict[Any, Any]:
    return {decode(key, depth): decode(item, depth, stored) for key, item in pairs}


def _to_tuple(items: Any, depth: int, stored: Any) -> tuple[Any, ...]:
    return tuple(decode(item, depth, stored) for item in items)


def _set(value: Iterable[Any], depth: int, store: Store | None) -> Any:
    return {"$set": _list(sorted(value, key=repr), depth, store)}


def _frozen(value: Iterable[Any], depth: int, store: Store | None) -> Any:
    return {"$frozenset": _list(sorted(value, key=repr), depth, store)}


def _deque(value: collections.deque[Any], depth: int, store: Store | None) -> Any:
    return {"$deque": [_list(value, depth, store), value.maxlen]}


def _to_set(items: Any, depth: int, stored: Any) -> set[Any]:
    return set(_to_tuple(items, depth, stored))


def _to_frozen(items: Any, depth: int, stored: Any) -> frozenset[Any]:
    return frozenset(_to_tuple(items, depth, stored))


def _to_deque(parts: Any, depth: int, stored: Any) -> collections.deque[Any]:
    items, most = parts
    return collections.deque(_to_tuple(items, depth, stored), most)


def _to_bytes(text: Any, *_: Any) -> bytes:
    return base64.b64decode(text, validate=True)


def _to_complex(parts: Any, *_: Any) -> complex:
    real, imaginary = map(decode, parts)
    return complex(real, imaginary)


_ENCODERS: dict[type, Callable[[Any, int, Any], Any]] = {
    str: _text,
    int: _int,
    float: _float,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _frozen,
    collections.deque: _deque,
    bytes: lambda value, *_: {"$bytes": base64.b64encode(value).decode()},
    complex: lambda value, *_: {"$complex": [_float(value.real), _float(value.imag)]},
}
_DECODERS: dict[str, Callable[[Any, int, Any], Any]] = {
    "$array": _to_array,
    "$dict": _to_dict,
    "$float": _to_float,
    "$int": _to_int,
    "$tuple": _to_tuple,
    "$set": _to_set,
    "$frozenset": _to_frozen,
    "$deque": _to_deque,
    "$bytes": _to_bytes,
    "$complex": _to_complex,
}
