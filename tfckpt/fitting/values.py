"""Python values as JSON that gives them back: equal, of the same type, in the same order.

What JSON has no word for is a mapping with one key, which begins with ``$`` and names the type: a
NumPy scalar or small array, infinity, NaN, a tuple, a mapping whose order a commit record would not
keep. Decoding makes numbers, text, lists, mappings and arrays of numbers, and nothing else.

Refused: any other object, what is nested too deep, and arrays that belong beside the JSON.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401 (makes bfloat16 and the like known to NumPy)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_DEPTH = 16
MAX_ELEMENTS = 10_000
_PLAIN_INT = 1 << 63  # a record refuses numbers of more than twenty digits


class NoJSONError(ValueError):
    """Where in a value, and what is there: ``['seen'][3] is a set``."""


def encode(value: Any, depth: int = 0) -> Any:
    """A value as JSON.

    Raises:
        NoJSONError: it holds what is neither number, text, list, tuple, mapping, nor a small array.

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
        if value.size > MAX_ELEMENTS:
            raise NoJSONError(f" is an array of {value.size} elements")
        return {"$array": [value.dtype.name, list(value.shape), [_number(v) for v in value.flat]]}
    if type(value) not in _ENCODERS:
        raise NoJSONError(f" is a {type(value).__name__}")
    return _ENCODERS[type(value)](value, depth + 1)


def decode(value: Any) -> Any:
    """What was encoded.

    Raises:
        AttributeError, OverflowError, TypeError, ValueError: this is nothing that ``encode`` gives.

    >>> decode({"best": {"$float": "inf"}, "wait": 2})
    {'best': inf, 'wait': 2}
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: decode(item) for key, item in value.items()}
    ((_, inner),) = value.items()
    decoder = _DECODERS.get(tag)
    return np.dtype(tag[1:]).type(_element(inner)) if decoder is None else decoder(inner)


def _text(value: str, _: int) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NoJSONError(" is text that UTF-8 cannot write") from None
    return value


def _int(value: int, _: int) -> Any:
    return value if -_PLAIN_INT <= value < _PLAIN_INT else {"$int": hex(value)}


def _float(value: float, _: int) -> Any:
    return value if math.isfinite(value) else {"$float": repr(value)}


def _list(value: Iterable[Any], depth: int) -> list[Any]:
    return [_at(f"[{place}]", item, depth) for place, item in enumerate(value)]


def _tuple(value: Iterable[Any], depth: int) -> Any:
    return {"$tuple": _list(value, depth)}


def _dict(value: dict[Any, Any], depth: int) -> Any:
    pairs = [
        [_at(" has a key that", k, depth), _at(f"[{k!r}]", v, depth)] for k, v in value.items()
    ]
    plain = all(type(key) is str and not key.startswith("$") for key in value)
    return dict(pairs) if plain and list(value) == sorted(value) else {"$dict": pairs}


def _at(place: str, value: Any, depth: int) -> Any:
    try:
        return encode(value, depth)
    except NoJSONError as error:
        raise NoJSONError(f"{place}{error}") from None


def _number(value: Any) -> Any:
    """A NumPy scalar as a number of JSON: a float64 holds every smaller float."""
    dtype = np.asarray(value).dtype
    if dtype.kind in "biu":
        return value.item()
    if dtype.kind not in "fV" or dtype.itemsize > 8 or dtype.names:
        raise NoJSONError(f" is of {dtype.name}")
    number = float(value)
    return number if math.isfinite(number) else repr(number)


def _element(item: Any) -> Any:
    return float(item) if isinstance(item, str) else item


def _array(parts: Any) -> Any:
    name, shape, flat = parts
    return np.array([_element(item) for item in flat], np.dtype(name)).reshape(shape)


_ENCODERS: dict[type, Callable[[Any, int], Any]] = {
    str: _text,
    int: _int,
    float: _float,
    list: _list,
    tuple: _tuple,
    dict: _dict,
}
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$array": _array,
    "$dict": lambda pairs: {decode(key): decode(item) for key, item in pairs},
    "$float": float,
    "$int": lambda digits: int(digits, 16),
    "$tuple": lambda items: tuple(decode(items)),
}
