"""Refuses objects that a checkpoint would silently not save, as soon as they are passed to it.

TensorFlow saves what it tracks: variables, and objects that hold them. It silently skips a plain
number on an attribute (``checkpoint.epoch = 7``) or in a dict, which then has its initial value
after a restore. Numbers next to variables only cause a warning, because TensorFlow's own code has
such lists. Text, None and other objects on attributes are allowed.
"""

from __future__ import annotations

import dataclasses
import types
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfckpt.errors import NamingError, UntrackedError
from tfckpt.live.private.tensorflow import Trackable, wrap
from tfckpt.stored.bundles.keys import EXTRA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TRACKED = (Trackable, type(tf.function(len)))
_NUMBERS = (bool, int, float, complex, np.generic)
_ARRAYS = (np.ndarray, tf.Tensor)
_FUNCTIONS = (types.FunctionType, types.MethodType)
_SHOWN = 40
# Names of what a tfckpt.Checkpoint keeps itself.
OWN = frozenset({EXTRA, "_background", "_late", "_lineage", "_logged", "_resumes_in"})
RESERVED = "the keyword {name!r} is reserved; use another keyword"
_HINT = (
    "pass variables, Keras models, layers and optimizers, tf.Modules, iterators, or lists and "
    "dicts of them"
)


def check_arguments(root: Any, objects: Mapping[str, Any]) -> None:
    """Refuse arguments of a checkpoint that TensorFlow does not track."""
    if reserved := OWN & objects.keys():
        raise NamingError(RESERVED.format(name=min(reserved)))
    for name, argument in {**({} if root is None else {"root": root}), **objects}.items():
        obj = argument() if isinstance(argument, weakref.ref) else argument
        if not isinstance(wrap(obj), _TRACKED):
            raise UntrackedError(f"`{name}` is {_kind(obj)}", hint=_instead(f"{name}=", obj))
        _check_inside(name, obj)


def checked(objects: Mapping[str, Any]) -> Any:
    """A checkpoint of TensorFlow's of the same objects, if all can be saved."""
    check_arguments(None, objects)
    return tf.train.Checkpoint(**objects)


def check_attribute(name: str, value: Any) -> None:
    """Refuse a plain number, an array, or a container of only numbers as an attribute."""
    if isinstance(value, (*_NUMBERS, *_ARRAYS)):
        raise UntrackedError(
            f"`{name}` is {_kind(value)}, which a checkpoint does not save",
            hint=f"{_instead(f'checkpoint.{name} = ', value)}; "
            f"checkpoint.{name}.assign(…) changes it",
        )
    _check_inside(name, value)


def _check_inside(name: str, obj: Any) -> None:
    """Refuse containers of only numbers; warn about numbers next to trackable objects."""
    found = [*_inside(name, obj, set())]
    plain = [(path, each) for path, each in found if isinstance(each, _NUMBERS)]
    if not plain:
        return
    path, first = plain[0]
    more = f" (and {len(plain) - 1} more in `{name}`)" if len(plain) > 1 else ""
    message = f"{path} is {_kind(first)}{more}, which a checkpoint does not save"
    if not any(isinstance(each, _TRACKED) for _, each in found):
        raise UntrackedError(message, hint=f"use {_variable(first)} instead")
    logging.warning("%s: use %s instead", message, _variable(first))


def _inside(path: str, obj: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The members of lists, dicts and dataclasses, recursively, each with its path."""
    if isinstance(obj, dict):
        members = [(str(key), value) for key, value in obj.items()]
    elif isinstance(obj, (list, tuple)):
        members = [(str(index), value) for index, value in enumerate(obj)]
    elif dataclasses.is_dataclass(obj) and not isinstance(obj, (type, *_TRACKED)):
        members = [(each.name, getattr(obj, each.name)) for each in dataclasses.fields(obj)]
    else:
        yield path, obj
        return
    if id(obj) not in seen:
        seen.add(id(obj))
        for name, value in members:
            yield from _inside(f"{path}/{name}", value, seen)


def _kind(obj: Any) -> str:
    for kinds, text in (
        (bool, "a plain bool ({shown})"),
        (_NUMBERS, "a plain number ({shown})"),
        (np.ndarray, "an array, not a variable"),
        (tf.Tensor, "a tensor, not a variable"),
        ((str, bytes), "plain text ({shown})"),
        (_FUNCTIONS, "a function"),
        (type, "the class {name}"),
        (type(None), "None"),
    ):
        if isinstance(obj, kinds):
            return text.format(shown=_shown(obj), name=getattr(obj, "__name__", ""))
    return f"a {type(obj).__name__}, which TensorFlow does not track"


def _instead(statement: str, obj: Any) -> str:
    """What to write instead."""
    if isinstance(obj, (*_NUMBERS, *_ARRAYS, str, bytes)):
        return f"make it a variable: {statement}{_variable(obj)}"
    if isinstance(obj, (*_FUNCTIONS, type)):
        name = obj.__name__ if obj.__name__.isidentifier() else "build"
        return f"call it: {statement}{name}()"
    return _HINT


def _variable(obj: Any) -> str:
    return f"tf.Variable({'value' if isinstance(obj, _ARRAYS) else _shown(obj)})"


def _shown(obj: Any) -> str:
    text = repr(obj.item() if isinstance(obj, np.generic) else obj)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
