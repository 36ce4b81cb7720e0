"""Plain values of a program: pure data that can be saved, or whose changes can be detected.

No user code runs here: only types of Python, NumPy and TensorFlow are inspected, and only those of
their subclasses that are known.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import functools
import io
import itertools
import logging
import pathlib
import random
import socket
import threading
import uuid
import zlib
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfckpt.live.private.tensorflow import Trackable
from tfckpt.live.variables.origins import KERAS, is_own, package
from tfckpt.live.variables.variables import on_host

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[Any], object]

LONGEST = 10_000  # numbers and strings in one value
_SAMPLES = 4_096  # of a longer value
_MOST_SUMMED = 1 << 20  # elements of an array, evenly spaced
_SCALARS = (bool, int, float, str, type(None))
_TRACKING = ("tensorflow", *KERAS)  # their tracked lists and dicts
_CONTAINERS = (dict, list, tuple)
_ALONE = (set, deque, collections.Counter, collections.defaultdict, collections.OrderedDict)
_NUMBERS = (complex, range, decimal.Decimal, fractions.Fraction)
_DATES = (datetime.date, datetime.time, datetime.timedelta)
_SHOWN = (bytes, bytearray, uuid.UUID, pathlib.PurePath, itertools.count, *_NUMBERS, *_DATES)
_OF_THIS_PROCESS = (threading.Thread, logging.Handler, logging.Logger, socket.socket, io.IOBase)


class ValueLocation(NamedTuple):
    """A plain value and a function that replaces it."""

    value: Any
    write: Write


def kind_of(obj: Any) -> Any:
    """The class of an object, or of the object inside TensorFlow's wrapper."""
    cls = type(obj)
    return obj.__class__ if issubclass(cls, Trackable) else cls


def is_scalar(value: Any) -> bool:
    return type(value) in _SCALARS or issubclass(type(value), np.generic)


def is_of_this_process(cls: type) -> bool:
    """Whether a class is for threads, files and the like, which exist only in this process."""
    return issubclass(cls, _OF_THIS_PROCESS)


def container(obj: Any) -> Any:
    """``dict``, ``list`` or ``tuple`` if it is one, or a tracked one; else None."""
    return _base(obj, _CONTAINERS)


def key_text(key: Any) -> str:
    """The key of a mapping as text that is the same in another process; "" if there is none."""
    if is_scalar(key):
        return repr(key)
    if issubclass(type(key), enum.Enum):
        return f"{type(key).__qualname__}.{key._name_}"
    if type(key) is tuple:
        parts = [key_text(each) for each in key]
        return f"({', '.join(parts)})" if all(parts) else ""
    return ""


class LocatedValue(NamedTuple):
    """The location of a value, its name, and its number of numbers and strings."""

    name: str
    place: ValueLocation
    size: int


def place_of(path: str, value: Any, write: Write) -> LocatedValue | None:
    """The location of a plain value, or None.

    A type that JSON lacks is part of the name, so that the value only replaces one of that type.
    """
    cls: Any = type(value)
    if issubclass(cls, enum.Enum):
        if value._name_ not in cls.__members__:
            return None
        place = ValueLocation(value._name_, lambda name: write(cls[name]))
        return LocatedValue(f"{path} ({cls.__qualname__})", place, 1)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        values = tuple.__getitem__(value, slice(None))
        place = ValueLocation(_copy(values), lambda new: write(cls._make(new)))
        return _placed(f"{path} ({cls.__qualname__})", place, values)
    if (base := _base(value, _ALONE)) is not None and len(value) <= LONGEST:
        inner = dict(value) if issubclass(base, dict) else list(value)
        copied = sorted(inner, key=repr) if base is set and _size(inner) else _copy(inner)
        place = ValueLocation(copied, functools.partial(_refill, value))
        return _placed(f"{path} ({base.__name__})", place, inner)
    place = ValueLocation(None, lambda new: None if _merged(value, new) is value else write(new))
    found = _placed(path, place, value)
    return found and found._replace(place=ValueLocation(_copy(value), place.write))


def generator_place(generator: Any) -> ValueLocation | None:
    """The state of a random generator of Python's or NumPy's."""
    cls = type(generator)
    if cls is random.Random:
        return ValueLocation(generator.getstate(), generator.setstate)
    if cls is np.random.RandomState:
        return ValueLocation(generator.get_state(legacy=False), generator.set_state)
    if cls is np.random.Generator:
        bits = generator.bit_generator
        return ValueLocation(bits.state, functools.partial(setattr, bits, "state"))
    return None


def mark_of(value: Any) -> Any:
    """A fingerprint that changes with a value that cannot be saved; None for other objects.

    That of an iterator always differs: its position cannot be seen without advancing it.
    """
    cls = type(value)
    if issubclass(cls, _SHOWN):
        return cls, repr(value)
    if cls is np.ndarray:
        every = value.size // _MOST_SUMMED + 1
        return cls, value.shape, checksum(value if every == 1 else value.flat[::every])
    if issubclass(cls, tf.Tensor):
        known = tf.is_symbolic_tensor(value) or value.dtype in (tf.resource, tf.variant)
        return None if known else (cls, value.shape, checksum(on_host(value).numpy()))
    if (base := _base(value, (*_CONTAINERS, *_ALONE, frozenset))) is not None:
        return (base, len(value), _sampled(value)) if len(value) > LONGEST else None
    if hasattr(cls, "__next__") and not is_own(cls.__module__):
        return object()
    return None


def checksum(array: np.ndarray[Any, Any]) -> int:
    if array.dtype.kind == "O":
        return zlib.crc32(repr(array.ravel()[:_SAMPLES].tolist()).encode())
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _placed(name: str, place: ValueLocation, value: Any) -> LocatedValue | None:
    size = _size(value)
    return LocatedValue(name, place, size) if size else None


def _base(obj: Any, among: tuple[type, ...]) -> Any:
    kind = kind_of(obj)
    if kind in among:
        return kind
    tracked = package(type(obj)) in _TRACKING
    return next((each for each in among if tracked and issubclass(kind, each)), None)


def _size(value: Any) -> int:
    """The number of numbers and strings in a value; 0 if too many, or if it holds others."""
    size, waiting = 0, [value]
    while waiting and size <= LONGEST:
        each = waiting.pop()
        size += 1
        if is_scalar(each):
            continue
        if type(each) is np.ndarray:
            size += each.size
            if each.dtype.kind not in "biuf":
                return 0
            continue
        kind = container(each)
        if kind is None or size + len(each) > LONGEST:
            return 0
        if kind is dict and not all(map(key_text, each)):
            return 0
        waiting += [*each, *each.values()] if kind is dict else each
    return 0 if size > LONGEST else size


def _copy(value: Any) -> Any:
    """A copy with plain lists and dicts in place of tracked ones."""
    kind = container(value)
    if kind is dict:
        return {key: _copy(each) for key, each in value.items()}
    if kind is not None:
        return kind(_copy(each) for each in value)
    return value.copy() if type(value) is np.ndarray else value


def _refill(old: Any, new: Any) -> None:
    kind = dict if isinstance(old, dict) else list
    if type(new) is not kind:
        raise TypeError(f"expected a {kind.__name__}, found a {type(new).__name__}")
    old.clear()
    old.extend(new) if isinstance(old, deque) else old.update(new)


def _merged(old: Any, new: Any) -> Any:
    """The old object updated in place, since others may refer to it; else the new one."""
    kind = container(old)
    if kind is dict and type(new) is dict:
        new = {key: _merged(old[key], each) if key in old else each for key, each in new.items()}
        old.clear()
        old.update(new)
        return old
    if kind is list and type(new) is list:
        old[:] = [_merged(old[n], each) if n < len(old) else each for n, each in enumerate(new)]
        return old
    both = type(old) is type(new) is np.ndarray
    if both and old.shape == new.shape and old.dtype == new.dtype:
        old[...] = new
        return old
    return new


def _sampled(value: Any) -> int:
    every = len(value) // _SAMPLES + 1
    items = value.items() if isinstance(value, dict) else ((each,) for each in value)
    some = itertools.islice(items, 0, None, every)
    text = ((repr(e) if is_scalar(e) else id(e) for e in each) for each in some)
    return zlib.crc32(repr([[*each] for each in text]).encode(errors="replace"))
