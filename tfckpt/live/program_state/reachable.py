"""Finds the variables and plain values that a program's own code holds and may change in training.

A loss, schedule, regularizer or callback may have a variable outside any model; a function reads
and writes its closure and the globals of its module; a ``train_step`` may count in an attribute. So
attributes, containers, closure cells, defaults and the globals that functions name are followed,
starting at some objects.

Plain values count if the program's own code has set them, not TensorFlow, Keras or another package;
for a subclass of a Keras class, wherever it is defined. A value without a name that another process
could reproduce, such as an element of a set, is only watched for changes.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import pickle
import types
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.live.private import either_keras
from tfckpt.live.private.attributes import BOOKKEEPING, LOSS_MEAN
from tfckpt.live.private.tensorflow import Trackable
from tfckpt.live.program_state import plain_values
from tfckpt.live.variables.origins import globals_of, is_of_keras, is_of_program, is_own
from tfckpt.live.variables.variables import is_variable, raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.live.program_state.plain_values import ValueLocation, Write

MOST_OBJECTS = MOST_VALUES = 200_000
_LEFT_OUT = BOOKKEEPING | {LOSS_MEAN}
_CLOSED = (tf.data.Dataset, tf.data.Iterator, tf.Tensor, types.ModuleType)
_CONTAINERS = (dict, list, tuple, deque, set, frozenset)
_MUTABLE = (dict, list, deque, set, np.ndarray)
_FUNCTION = type(tf.function(len))
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, _FUNCTION)
_DESCRIPTORS = (property, classmethod, staticmethod, types.MemberDescriptorType)


class Reachable:
    """What is reachable from some objects, under paths that are the same in another process."""

    def __init__(
        self,
        roots: Mapping[str, Any],
        without_values: Iterable[str],
        before: Reachable | None = None,
        replaced: set[str] | None = None,
    ) -> None:
        self.variables: dict[str, Any] = {}
        self.places: dict[str, ValueLocation] = {}
        self.marks: dict[str, Any] = {}
        self.unnamed: dict[str, list[Any]] = {}
        self._objects: dict[str, Any] = {}
        self._paths: dict[int, str] = {}
        self._bound: dict[str, Any] = {}
        self._earlier_paths = before._paths if before else {}
        self._earlier_names = set(self._earlier_paths.values())
        self._earlier_bound = before._bound if before else {}
        self._before = before  # keeps its objects alive, so that ids stay unique
        self._replaced = set() if replaced is None else replaced
        self._found: set[int] = set()
        self._without_values = {id(roots[name]) for name in without_values}
        self._seen: dict[int, Any] = {}
        self._left = MOST_VALUES
        self._without_names: list[tuple[str, list[Any], bool]] = []
        self._waiting = deque((name, obj, False) for name, obj in roots.items())
        self._walk()
        while self._without_names:
            self._watch(*self._without_names.pop())
        self.too_many = bool(self._waiting) or self._left < 0
        self._before = None

    def takes(self, name: str) -> Write | None:
        """A setter for a plain attribute that a program's object does not have yet, or None."""
        path, _, attribute = name.rpartition(".")
        obj = self._objects.get(path)
        if obj is None or not attribute.isidentifier() or attribute.startswith("__"):
            return None
        cls = type(obj)
        default = next((vars(c)[attribute] for c in cls.__mro__ if attribute in vars(c)), None)
        slot = isinstance(default, types.MemberDescriptorType)
        if not slot and (hasattr(type(default), "__get__") or not hasattr(obj, "__dict__")):
            return None
        if attribute in dict(_attributes(obj)) or not is_of_program(cls, attribute):
            return None
        return functools.partial(setattr, obj, attribute)

    def _walk(self) -> None:
        while self._waiting and len(self._seen) < MOST_OBJECTS:
            path, obj, own = self._waiting.popleft()
            with contextlib.suppress(Exception):  # a user's class may raise anything
                self._look(path, obj, own)

    def _look(self, path: str, obj: Any, own: bool) -> None:
        cls = type(obj)
        if plain_values.is_scalar(obj) or issubclass(cls, _CLOSED) or id(obj) in self._seen:
            return
        self._seen[id(obj)] = obj
        if (named := self._earlier_paths.get(id(obj))) is not None:
            path = named
        elif path in self._earlier_names and plain_values.generator_place(obj) is None:
            path += " (new)"
        self._paths[id(obj)] = path
        if is_variable(obj):
            self._variable(path, obj)
        elif (place := plain_values.generator_place(obj)) is not None:
            self.places[path] = place
        elif issubclass(plain_values.kind_of(obj), _CONTAINERS):
            self._container(path, obj, own)
        elif issubclass(cls, _FUNCTIONS):
            self._callable(path, obj)
        elif issubclass(cls, type):
            self._class(path, obj, values=True)
        else:
            self._object(path, obj)

    def _container(self, path: str, obj: Any, own: bool) -> None:
        kind = plain_values.kind_of(obj)
        if len(obj) > plain_values.LONGEST:
            return
        if issubclass(kind, (set, frozenset)):
            self._without_names.append((path, [*obj], own))
        elif issubclass(kind, dict):
            for key, value in list(obj.items()):
                if text := plain_values.key_text(key):
                    write = functools.partial(obj.__setitem__, key)
                    self._value(f"{path}[{text}]", value, write, own=own)
                else:
                    self._without_names.append((path, [value], own))
        else:
            for n, value in enumerate(list(obj)):
                fixed = issubclass(kind, tuple)
                put = _refuse if fixed else functools.partial(obj.__setitem__, n)
                self._value(f"{path}[{n}]", value, put, own=own)
        if is_own(kind.__module__):
            self._object(path, obj)

    def _callable(self, path: str, obj: Any) -> None:
        if isinstance(obj, types.FunctionType):
            self._function(path, obj)
        elif isinstance(obj, types.MethodType):
            self._waiting += [(path, obj.__self__, False), (path, obj.__func__, False)]
        elif isinstance(obj, functools.partial):
            self._waiting.append((path, [obj.func, obj.args, obj.keywords], False))
        else:
            self._waiting.append((path, obj.python_function, False))

    def _variable(self, path: str, variable: Any) -> None:
        if not either_keras.is_created(variable):
            return
        inner = raw(variable)
        if id(inner) not in self._found:
            self._found.add(id(inner))
            self.variables[path] = inner

    def _object(self, path: str, obj: Any) -> None:
        cls: Any = type(obj)
        own = is_of_keras(cls) or is_own(cls.__module__)
        if plain_values.is_of_this_process(cls) or not (own or issubclass(cls, Trackable)):
            return
        values = own and id(obj) not in self._without_values
        if values:
            self._objects[path] = obj
        for name, value in _attributes(obj):
            if name not in _LEFT_OUT:
                free = own and is_of_program(cls, name)
                write = functools.partial(setattr, obj, name)
                self._value(f"{path}.{name}", value, write, own=values and free, bound=free)
        for each in cls.__mro__:
            self._class(path, each, values=values)

    def _class(self, path: str, cls: Any, *, values: bool) -> None:
        """Follow the methods of a user class, and its class attributes."""
        if not is_own(cls.__module__) or issubclass(cls, enum.Enum):
            return
        for name, value in list(vars(cls).items()):
            function = value.fget if isinstance(value, property) else value
            function = getattr(function, "__func__", function)
            if isinstance(function, types.FunctionType):
                self._waiting.append((f"{path}.{name}", function, False))
            elif values and not name.startswith("__") and not isinstance(value, _DESCRIPTORS):
                write = functools.partial(setattr, cls, name)
                self._value(f"{path}.{cls.__name__}.{name}", value, write, own=True)

    def _function(self, path: str, function: Any) -> None:
        if not is_own(function.__module__):
            return
        code, known = function.__code__, function.__globals__
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for n, value in enumerate(defaults):
            self._value(f"{path}.defaults[{n}]", value, _refuse, own=True)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with_value = [] if cell == types.CellType() else [cell.cell_contents]
            for value in with_value:
                write = functools.partial(setattr, cell, "cell_contents")
                self._value(f"{path}:{name}", value, write, own=True)
        for name in globals_of(code):
            if name in known:
                write = functools.partial(known.__setitem__, name)
                self._value(f"{function.__module__}:{name}", known[name], write, own=True)

    def _value(
        self, path: str, value: Any, write: Write, *, own: bool, bound: bool | None = None
    ) -> None:
        """Add a plain value, or follow any other; ``bound`` says whether the program assigns it."""
        with contextlib.suppress(Exception):  # a user's class may raise anything
            if not plain_values.is_of_this_process(type(value)):
                self._add(path, value, write, own=own, bound=own if bound is None else bound)

    def _add(self, path: str, value: Any, write: Write, *, own: bool, bound: bool) -> None:
        if own:
            found = plain_values.place_of(path, value, write)
            if found is not None:
                self._left -= found.size
                if self._left < 0:
                    return
                if issubclass(plain_values.kind_of(value), _MUTABLE):
                    if id(value) in self._seen:
                        return
                    self._seen[id(value)] = value
                self.places[found.name] = found.place
                return
            if (mark := plain_values.mark_of(value)) is not None:
                self.marks[path] = mark
                return
        if not (bound and self._is_replaced(path, value)):
            self._waiting.append((path, value, own))

    def _is_replaced(self, path: str, value: Any) -> bool:
        if plain_values.is_scalar(value) or issubclass(plain_values.kind_of(value), _CONTAINERS):
            return False
        made = (
            plain_values.generator_place(value) is not None and id(value) not in self._earlier_paths
        )
        if self._earlier_bound.get(path, value) is not value and not made:
            self._replaced.add(path)
        self._bound[path] = value
        return path in self._replaced

    def _watch(self, path: str, elements: list[Any], own: bool) -> None:
        """Watch elements without reproducible names for changes."""
        kept = self.variables, self.places, self.marks, self._objects
        self.variables, self.places, self.marks, self._objects = {}, {}, {}, {}
        for each in elements:
            self._value(f"{path}[{id(each)}]", each, _refuse, own=own)
        self._walk()
        values = {name: place.value for name, place in self.places.items()}
        seen = sorted((name, pickle.dumps(value)) for name, value in values.items())
        mark = (len(elements), seen, self.marks)
        variables = [*self.variables.values()]
        self.variables, self.places, self.marks, self._objects = kept
        if own:
            self.marks[path] = (*self.marks.get(path, ()), mark)
        if variables:
            self.unnamed.setdefault(path, []).extend(variables)


def saved_itself(value: Any) -> bool:
    """Whether an attribute is an object whose contents are found by following it."""
    cls = type(value)
    if is_of_keras(cls) or issubclass(cls, (*_FUNCTIONS, tf.Module)) or is_variable(value):
        return True
    own = is_own(cls.__module__) and not plain_values.is_of_this_process(cls) and _is_object(cls)
    return own or plain_values.generator_place(value) is not None


def _is_object(cls: type) -> bool:
    return not issubclass(cls, (enum.Enum, type, int, float, str, bytes, tuple, set, frozenset))


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(obj, "__dict__", {}).items())
    for cls in type(obj).__mro__:
        if is_own(cls.__module__):
            for name, slot in list(vars(cls).items()):
                if isinstance(slot, types.MemberDescriptorType) and hasattr(obj, name):
                    yield name, getattr(obj, name)


def _refuse(_: Any) -> None:
    raise TypeError("this value cannot be replaced")
