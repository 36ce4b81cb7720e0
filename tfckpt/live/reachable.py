"""What a program's own code holds on to: variables, and plain values that may change in training.

A loss, a schedule, a regularizer or a callback may have a variable that belongs to no model; a
function reads and writes what it has closed over, or what is global in its module; a
``train_step`` counts in an attribute. So attributes, containers, cells, defaults and the globals
that a function names are followed, from some objects on.

Plain values count where code that is not TensorFlow's, Keras's or another package's has put them;
of a class that inherits from Keras's, wherever that stands.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfckpt.live.variables import Trackable, is_variable, raw
from tfckpt.live.watch import BOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Write = Callable[[Any], object]

MAX_ELEMENTS = 10_000  # of a plain value
_KERAS = ("keras", "tf_keras")
_LEFT_OUT = BOOKS | {"_total_loss_mean"}  # which tf_keras makes, and a train_step may never use
_CLOSED = (tf.data.Dataset, tf.data.Iterator, tf.Tensor, types.ModuleType)
_FUNCTION = type(tf.function(len))
_SCALARS = (bool, int, float, str, type(None), np.generic)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, _FUNCTION)
_MUTABLE = (list, dict, set, deque, np.ndarray)


class Place(NamedTuple):
    """Where a plain value is: the value of now, and what puts another one there."""

    value: Any
    write: Write


class Reachable:
    """What is reachable from some objects, by paths that another process would find, too.

    Args:
        roots: the objects, by name.
        without_values: names of roots whose own attributes are somebody else's.

    Attributes:
        variables: all of them, by path.
        places: of plain values.
        objects: that may get further attributes with such values.
    """

    def __init__(self, roots: Mapping[str, Any], without_values: Iterable[str]) -> None:
        self.variables: dict[str, Any] = {}
        self.places: dict[str, Place] = {}
        self.objects: dict[str, Any] = {}
        self._found: set[int] = set()
        self._without_values = {id(roots[name]) for name in without_values}
        self._seen: dict[int, Any] = {}
        self._waiting = deque((name, obj, False) for name, obj in roots.items())
        while self._waiting:
            self._look(*self._waiting.popleft())

    def _look(self, path: str, obj: Any, own: bool) -> None:
        if isinstance(obj, (*_SCALARS, *_CLOSED)) or id(obj) in self._seen:
            return
        self._seen[id(obj)] = obj
        if is_variable(obj):
            self._variable(path, obj)
        elif isinstance(obj, _GENERATORS):
            self.places[path] = _generator(obj)
        elif isinstance(obj, dict):
            for key, value in list(obj.items()):
                write = functools.partial(obj.__setitem__, key)
                self._value(f"{path}[{key!r}]", value, write, own=own)
        elif isinstance(obj, (list, tuple, set, frozenset, deque)):
            self._waiting.extend((f"{path}[{n}]", each, own) for n, each in enumerate(list(obj)))
        elif isinstance(obj, _FUNCTIONS):
            self._callable(path, obj)
        elif isinstance(obj, type):
            self._class(path, obj, values=True)
        elif isinstance(getattr(obj, "__dict__", None), dict):
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
        if getattr(variable, "_value", variable) is None:  # Keras 3's, not made yet
            return
        inner = raw(variable)
        if id(inner) not in self._found:
            self._found.add(id(inner))
            self.variables[path] = inner

    def _object(self, path: str, obj: Any) -> None:
        cls: Any = type(obj)
        keras = any(_package(each) in _KERAS for each in cls.__mro__)
        if not (keras or is_own(cls.__module__) or isinstance(obj, Trackable)):
            return
        known = names_in_keras(cls) if keras else BOOKS
        values = (keras or is_own(cls.__module__)) and id(obj) not in self._without_values
        if values:
            self.objects[path] = obj
        private = not is_own(cls.__module__)
        for name, value in list(vars(obj).items()):
            if name in _LEFT_OUT:
                continue
            own = values and name not in known and not name.startswith("_self_")
            own = own and not (private and name.startswith("_"))
            self._value(f"{path}.{name}", value, functools.partial(setattr, obj, name), own=own)
        for each in cls.__mro__:
            self._class(path, each, values=values)

    def _class(self, path: str, cls: Any, *, values: bool) -> None:
        """What the methods of a class of the program's use, and what the class counts itself."""
        if not is_own(cls.__module__):
            return
        for name, value in list(vars(cls).items()):
            function = getattr(value, "fget", None) or getattr(value, "__func__", value)
            if isinstance(function, types.FunctionType):
                self._waiting.append((f"{path}.{name}", function, False))
            elif values and not name.startswith("__"):
                write = functools.partial(setattr, cls, name)
                self._value(f"{path}.{cls.__name__}.{name}", value, write, own=True)

    def _function(self, path: str, function: Any) -> None:
        if not is_own(function.__module__):
            return
        code, known = function.__code__, function.__globals__
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._value(f"{path}.defaults", defaults, lambda _: None, own=False)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with_value = [] if cell == types.CellType() else [cell.cell_contents]
            for value in with_value:
                write = functools.partial(setattr, cell, "cell_contents")
                self._value(f"{path}:{name}", value, write, own=True)
        for name in dict.fromkeys(_names(code)):
            if name in known:
                write = functools.partial(known.__setitem__, name)
                self._value(f"{function.__module__}:{name}", known[name], write, own=True)

    def _value(self, path: str, value: Any, write: Write, *, own: bool) -> None:
        """A value, which is plain, or is looked into."""
        if not own or not _is_plain(value):
            self._waiting.append((path, value, own))
        elif not isinstance(value, _MUTABLE):
            self.places[path] = Place(value, write)
        elif id(value) not in self._seen:
            self._seen[id(value)] = value
            self.places[path] = Place(_copy(value), functools.partial(_fill, value, write))


def saved_itself(value: Any) -> bool:
    """Whether an attribute is no plain value, and all that it holds is found behind it."""
    kinds = (*_FUNCTIONS, *_GENERATORS, tf.Module)
    keras = any(_package(each) in _KERAS for each in type(value).__mro__)
    return keras or is_variable(value) or isinstance(value, kinds)


def _generator(generator: Any) -> Place:
    if isinstance(generator, random.Random):
        return Place(generator.getstate(), generator.setstate)
    if isinstance(generator, np.random.RandomState):
        return Place(generator.get_state(legacy=False), generator.set_state)
    bits = generator.bit_generator
    return Place(bits.state, functools.partial(setattr, bits, "state"))


def _is_plain(value: Any) -> bool:
    """Whether it is data alone: numbers and text, and not too many of them."""
    left, waiting = MAX_ELEMENTS, [value]
    while waiting:
        each = waiting.pop()
        inner: Any = ()
        if isinstance(each, dict):
            inner = [*each, *each.values()]
        elif isinstance(each, (list, tuple, set, deque)):
            inner = each
        elif isinstance(each, np.ndarray):
            left -= each.size
            if each.dtype.kind not in "biuf":
                return False
        elif not isinstance(each, _SCALARS):
            return False
        left -= 1 + len(inner)
        if left < 0:
            return False
        waiting += inner
    return True


def _copy(value: Any) -> Any:
    """The same of plain types, where TensorFlow and Keras track lists and dicts by their own."""
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    if isinstance(value, set):
        return sorted(value, key=repr)
    if isinstance(value, (list, deque)):
        return [_copy(each) for each in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def _fill(old: Any, write: Write, new: Any) -> None:
    """Put it into the old one, which others may know, where it is of the same kind."""
    if isinstance(old, dict) and isinstance(new, dict):
        old.clear()
        old.update(new)
    elif isinstance(old, list) and isinstance(new, list):
        old[:] = new
    elif isinstance(old, (set, deque)) and isinstance(new, list):
        old.clear()
        old.update(new) if isinstance(old, set) else old.extend(new)
    elif isinstance(old, np.ndarray) and old.shape == np.shape(new):
        old[...] = new
    else:
        write(new)


@functools.cache
def is_own(module: str) -> bool:
    """Whether a module is the program's: neither Python's nor of a package that was installed."""
    top = str(module).partition(".")[0]
    if top == "tfckpt" or top in sys.stdlib_module_names - {"__main__"}:
        return False
    path = str(getattr(sys.modules.get(module), "__file__", None) or "")
    return not {"site-packages", "dist-packages"} & set(path.replace("\\", "/").split("/"))


@functools.cache
def names_in_keras(cls: Any) -> set[str]:
    """Every name that the classes of Keras, from which a class inherits, define or use."""
    names: set[str] = set()
    for parent in cls.__mro__:
        if _package(parent) in _KERAS:
            names.update(vars(parent))
            for method in vars(parent).values():
                code = getattr(getattr(method, "fget", method), "__code__", None)
                names.update(code.co_names if code else ())
    return names


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
