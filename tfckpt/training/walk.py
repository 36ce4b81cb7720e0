"""What a training holds besides its variables: a walk over it, which compares by content.

It begins at a callback, the object that makes the batches, or the model with its layers, loss,
optimizer and metrics, and goes through attributes, containers, closures and the globals that a
function names into objects of the program's own classes. Each value has a path, a mark to compare,
and how it is put back; or why it cannot be saved.

Another package's objects are compared by identity, and never changed.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import io
import math
import queue
import random
import sys
import threading
import types
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tfckpt.live import data, generators
from tfckpt.live.flavors import is_optimizer
from tfckpt.live.inventory import is_model
from tfckpt.live.private import tf_data
from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.live.private.keras_code import (
    KERAS,
    TRAINABLE,
    changed_by_keras,
    is_of_keras,
    names_in,
    package,
)
from tfckpt.live.variables import array_of, is_variable
from tfckpt.stored.bundles.crc import extend
from tfckpt.training.json_values import VALUES, NoJSONError, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfckpt.live.data import DatasetsRead

    Array = np.ndarray[Any, Any]
    Put = Callable[[Any], object] | None

_DEPTH, _OBJECTS = 12, 20_000
_BYTES, _ITEMS = 64 << 20, 10_000  # what is not an attribute is looked at up to here
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, *VALUES)
_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)
_NAMESPACES = (  # of the standard library, walked as a program's own
    *(types.SimpleNamespace, argparse.Namespace, threading.local, queue.Queue),
    *(collections.UserDict, collections.UserList, collections.ChainMap),
)
_FUNCTIONS = (types.FunctionType, types.MethodType, partial)
_FOREIGN = KERAS | {"tensorflow", "numpy", "tfckpt", "absl", "builtins", "h5py", "google"}
_TOO_LARGE = " is too large to look at"


@dataclasses.dataclass(slots=True)
class Held:
    """A value at a path.

    Attributes:
        mark: equal to another one's if the content is.
        kept: as JSON values, large arrays of it in ``arrays``.
        why: why it cannot be saved; "" if it can.
        put: assigns another value in its place.
        fill: gives the object itself another content.
    """

    value: Any
    mark: Any
    kept: Any = None
    arrays: dict[str, Array] = dataclasses.field(default_factory=dict)
    why: str = ""
    put: Put = None
    fill: Callable[[Any, Any], object] | None = None

    def restore(self, value: Any, *, inside: bool) -> None:
        """Assign a value, with ``inside`` to the object that is there, which others may hold."""
        now = self.value
        if isinstance(now, np.ndarray):
            alike = isinstance(value, np.ndarray) and now.shape == value.shape
            inside &= alike and now.dtype == value.dtype and now.flags.writeable
        elif isinstance(now, _CONTAINERS):
            inside |= type(now) not in (list, dict)  # also one of a class of the program's
        if self.fill is not None and (inside or self.put is None):
            self.fill(now, value)
        elif self.put is not None:
            self.put(value)
        else:
            raise TypeError("it cannot be assigned")


class HeldValues:
    """All values below a root, by path.

    Attributes:
        held: path → value.
        objects: path → object, of those with attributes.
    """

    def __init__(
        self,
        seen: dict[int, Any],
        known: Callable[[Any], bool],
        own: set[str],
        datasets: DatasetsRead | None,
    ) -> None:
        """What was ``seen`` belongs to another; ``known`` variables are saved; packages ``own``."""
        self._datasets = datasets
        self.held: dict[str, Held] = {}
        self.objects: dict[str, Any] = {}
        self._seen, self._known, self._own = seen, known, own
        self._bytes, self._far = 0, False
        self._kinds: dict[type, bool] = {}  # that were met, and whether they are own

    def begin(self, owner: Any, key: str, keeps: Callable[[str], bool] | None = None) -> None:
        """Go through all below an owner; ``keeps`` says which attributes of a callback count."""
        self._seen[id(owner)] = owner
        if is_model(owner):
            self._model(owner, key, 0)
        else:
            self._attributes(owner, key, 0, keeps)

    def also(self, owner: Any, key: str, name: str) -> None:
        """An attribute that is asked for by its name, wherever it is."""
        if (path := f"{key}.{name}") not in self.held:
            put = partial(setattr, owner, name)
            self._visit(getattr(owner, name), path, 1, put)

    def mark_of(self, path: str) -> Any:
        """Of a value that can be saved; None where there is none."""
        held = self.held.get(path)
        return None if held is None or held.why else held.mark

    def is_made_by_keras(self, path: str, first: HeldValues) -> bool:
        """Whether Keras has made what holds a value since the beginning: a metric, a loss."""
        holder = path.rpartition(".")[0]
        made = holder in self.objects and holder not in first.objects
        return made and is_of_keras(type(self.objects[holder]))

    def lacks(self, path: str) -> bool:
        """Whether an object that is still there has this attribute no more."""
        holder, _, name = path.rpartition(".")
        return holder in self.objects and not hasattr(self.objects[holder], name)

    # Objects

    def _model(self, model: Any, path: str, depth: int) -> None:
        layers = with_layers_below(model)
        self._seen.update((id(each), each) for each in layers)
        for number, layer in enumerate(layers):
            at = f"{path}.layers[{number}]" if number else path
            flag, put = bool(layer.trainable), partial(setattr, layer, TRAINABLE)
            self.held[f"{at}.{TRAINABLE}"] = Held(flag, flag, flag, put=put)
            self._attributes(layer, at, depth)
        optimizer = getattr(model, "optimizer", None)
        parts = {"loss": getattr(model, "loss", None), "optimizer": optimizer}
        parts |= {f"metrics[{n}]": one for n, one in enumerate(getattr(model, "metrics", ()))}
        parts["schedule"] = getattr(optimizer, "_learning_rate", None)
        for name, part in parts.items():
            if not isinstance(part, _PLAIN) and not is_variable(part):
                self._visit(part, f"{path}.{name}", depth + 1)

    def _attributes(
        self,
        obj: Any,
        path: str,
        depth: int,
        keeps: Callable[[str], bool] | None = None,
        put: Put = None,
    ) -> None:
        self.objects[path] = obj
        kind: Any = type(obj)
        if kind not in self._kinds:
            self._kinds[kind] = own = self._is_own(kind)
            for cls in filter(self._is_own, kind.__mro__ if own else ()):  # what it has for all
                self._class(cls, path, depth)
        of_keras = changed_by_keras(kind) if keeps is None else ()
        saved = keeps is None and (hasattr(kind, "add_weight") or is_optimizer(obj))
        held = {name: getattr(obj, name) for name in _slots(kind) if hasattr(obj, name)}
        assign = _assigns(obj, put)
        for name, value in {**getattr(obj, "__dict__", {}), **held}.items():
            counts = name not in of_keras and (keeps is None or keeps(name))
            if not counts or name.startswith(("__", "_abc_")):
                continue
            if not saved or not is_variable(value):  # else by its layer or optimizer
                self._visit(value, f"{path}.{name}", depth + 1, partial(assign, name))

    def _class(self, cls: type, path: str, depth: int) -> None:
        if id(cls) in self._seen:
            return
        self._seen[id(cls)] = cls
        at = f"{path}.{cls.__name__}:"
        if at in self.objects:  # a base of the same name
            at = f"{path}.{cls.__module__}.{cls.__qualname__}:"
        self.objects[at] = cls
        for name, member in list(vars(cls).items()):
            value = getattr(member, "__func__", member)
            functions = (value.fget, value.fset) if isinstance(value, property) else (value,)
            if any(isinstance(each, types.FunctionType) for each in functions):
                for function in filter(None, functions):
                    self._callable(function, f"{at}.{name}", depth + 1)
            elif self._is_own(type(value)) and hasattr(type(value), "__set__"):
                self._visit(value, f"{at}.{name}", depth + 1)  # a descriptor of the program's
            elif not name.startswith(("__", "_abc_")) and not hasattr(value, "__get__"):
                self._visit(value, f"{at}.{name}", depth + 1, partial(setattr, cls, name))

    def _function(self, function: types.FunctionType, path: str, depth: int) -> None:
        """What a function of the program has in itself and its closure, and globals it names."""
        if id(function) in self._seen or not self._is_own(function):
            return
        self._seen[id(function)] = function
        far, self._far = self._far, True
        code, names = function.__code__, function.__globals__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if id(cell) not in self._seen and name != "__class__":
                self._seen[id(cell)] = cell
                with contextlib.suppress(ValueError):  # an empty one
                    put = partial(setattr, cell, "cell_contents")
                    self._visit(cell.cell_contents, f"{path}:{name}", depth + 1, put)
        for name, value in vars(function).items():
            if not name.startswith(("_", "ag_")):  # of wrappers, and of AutoGraph
                self._visit(value, f"{path}.{name}", depth + 1, partial(setattr, function, name))
        self._arguments(function.__defaults__, function.__kwdefaults__, path, depth)
        self._named(names_in(code), names, function.__module__, depth)
        self._far = far

    def _named(self, named: set[str], names: dict[str, Any], module: str, depth: int) -> None:
        """The values of a module that some code names, and those of modules of the program's."""
        for name in sorted(named & names.keys()):
            value, at = names[name], f"{module}:{name}"
            if isinstance(value, types.ModuleType):
                if depth < _DEPTH and not _is_installed(value.__name__):
                    self._named(named, vars(value), value.__name__, depth + 4)
            elif isinstance(value, type):
                self._visit(value, module, depth + 1)
            elif at not in self.held:
                self._visit(value, at, depth + 1, partial(names.__setitem__, name))

    def _visit(self, value: Any, path: str, depth: int, put: Put = None) -> None:
        if type(value).__name__ in {"_DictWrapper", "_TupleWrapper"}:
            value = value.__wrapped__
        if isinstance(value, weakref.ref):
            value, put = value(), None
        if isinstance(value, (*_PLAIN, enum.Enum)):
            self._plain(value, path, put)
        elif isinstance(value, _FUNCTIONS):
            self._callable(value, path, depth)
        elif isinstance(value, type):
            if self._is_own(value):
                self._class(value, path, depth)
        elif id(value) not in self._seen and depth <= _DEPTH and len(self._seen) < _OBJECTS:
            self._seen[id(value)] = value
            self._object(value, path, depth, put)

    def _plain(self, value: Any, path: str, put: Put) -> None:
        if put is not None and _is_json(value):
            self.held[path] = Held(value, (value, type(value)), value, put=put)
        elif not isinstance(value, enum.Enum):
            self._keep(path, value, value, put)
        elif put is not None:
            self._keep(path, value, value.name, partial(_made, put, type(value).__getitem__))

    def _callable(self, value: Any, path: str, depth: int) -> None:
        while isinstance(value, partial):
            self._arguments(value.args, value.keywords, path, depth)
            value = value.func
        if isinstance(value, types.MethodType):
            self._visit(value.__self__, f"{path}.self", depth)
            value = value.__func__
        if isinstance(value, types.FunctionType):
            self._function(value, path, depth)

    def _arguments(self, given: Any, named: Any, path: str, depth: int) -> None:
        """What a function is called with, except what cannot change."""
        for name, value in [*enumerate(given or ()), *(named or {}).items()]:
            if not _is_fixed(value):
                self._visit(value, f"{path}({name})", depth + 1)

    def _object(  # noqa: C901, PLR0912 (a table of kinds)
        self, value: Any, path: str, depth: int, put: Put
    ) -> None:
        kind = type(value)
        if is_variable(value):
            self._variable(value, path)
        elif how := next((_INSIDE[each] for each in kind.__mro__ if each in _INSIDE), None):
            read, fill = how
            self._keep(path, value, read(value), partial(fill, value))
        elif isinstance(value, np.ndarray):
            self._keep(path, value, value, put, lambda old, new: old.__setitem__(..., new))
            for number, item in enumerate(value.flat if value.dtype == object else ()):
                self._visit(item, f"{path}[{number}]", depth + 1)
        elif tf_data.is_eager_tensor(value):
            self._keep(path, value, value.numpy(), put and partial(_made, put, tf_data.as_tensor))
        elif isinstance(value, _CONTAINERS):
            self._container(value, path, depth, put)
        elif (state := generators.state_of(value)) is not None:
            self._variable(state, f"{path}.state")
        elif tf_data.is_dataset(value):
            self._dataset(value, path)
        elif is_of_keras(type(value)):
            if is_model(value):
                self._model(value, path, depth)
            else:
                self._attributes(value, path, depth)
            self._variables(value, path)
        elif self._is_own(kind) or isinstance(value, _NAMESPACES):
            name = kind.__qualname__
            self.held[path] = Held(value, name, why=f" is a {name}")
            self._attributes(value, path, depth, put=put)
        elif tf_data.is_module(value):
            self._variables(value, path)
        else:
            self._opaque(value, path)

    # Values

    def _keep(self, path: str, value: Any, content: Any, put: Put, fill: Any = None) -> None:
        if self._far and _is_large(content):
            self.held[path] = Held(value, (id(value), _sample(content)), why=_TOO_LARGE)
            return
        kept, arrays, why = as_data(content, path)
        mark: Any = kept, [*map(_sum, arrays.values())]
        if why:
            mark = id(value), len(value) if isinstance(value, _CONTAINERS) else None
            mark = (id(value), _sum(value)) if isinstance(value, np.ndarray) else mark
        elif put is None and fill is None:
            why = " is in a tuple"
        self.held[path] = Held(value, mark, kept, arrays, why, put, fill)

    def _variables(self, holder: Any, path: str) -> None:
        """Those of an object of Keras's, or of a module, that nobody saves."""
        found = getattr(holder, "variables", None)
        found = found() if callable(found) else found
        state = getattr(holder, "state", None)  # of a seed generator
        for number, each in enumerate(found or [state] * is_variable(state)):
            self._variable(each, f"{path}.variables[{number}]")

    def _variable(self, variable: Any, path: str) -> None:
        if self._known(variable):
            return
        try:
            array = np.array(array_of(variable))
        except Exception as error:  # one of a strategy, or without a value
            self.held[path] = Held(variable, id(variable), why=f" cannot be read ({error})")
            return
        self._bytes += array.nbytes
        if self._bytes > _BYTES:
            self.held[path] = Held(variable, _sample(array), why=_TOO_LARGE)
            return
        kept, arrays, why = as_data(array, path)
        mark = str(array.dtype), array.shape, _sum(array)
        self.held[path] = Held(variable, mark, kept, arrays, why, variable.assign)

    def _container(self, value: Any, path: str, depth: int, put: Put) -> None:
        content = value
        if type(value) not in _CONTAINERS:  # of a class of the program's, or of TensorFlow's
            kind = next(each for each in _CONTAINERS if isinstance(value, each))
            content = kind(value)
            if put is not None and kind is tuple:
                put = partial(_made, put, getattr(value, "_make", type(value)))
        fill = next((how for kind, how in _FILL.items() if isinstance(value, kind)), None)
        if not (objects := _holds_variable(content)):  # which stay the same ones
            self._keep(path, value, content, put, fill)
            if not self.held[path].why or (self._far and _is_large(content)):
                return
        items = list(content.items() if isinstance(content, dict) else enumerate(content))
        into = getattr(value, "__setitem__", None)
        for name, item in items:
            inner = None if into is None else partial(into, name)
            self._visit(item, f"{path}[{name!r}]", depth + 1, inner)
        if not objects:
            self.held[path].mark = [repr(name) for name, _ in items]

    def _dataset(self, dataset: Any, path: str) -> None:
        datasets = self._datasets
        if datasets is not None and (made := datasets.made(dataset)) is not None:
            why = "" if data.counts_passes(dataset) else " is a dataset that shuffles in a repeat"
            put = partial(datasets.go_on, dataset)
            self.held[path] = Held(dataset, made, made, why=why, put=put)

    def _opaque(self, value: Any, path: str) -> None:
        mark: Any = id(value)
        if tf_data.is_iterator(value):
            mark = object()  # where it stands cannot be read
        elif isinstance(value, types.GeneratorType):
            frame = value.gi_frame
            mark = frame and (frame.f_lasti, as_data(dict(frame.f_locals), path)[0])
        elif isinstance(value, io.IOBase):
            with contextlib.suppress(OSError, ValueError):  # else it is written
                mark = mark, value.tell() if not value.writable() else None
        elif hasattr(value, "__next__") and package(type(value)) in {"builtins", "itertools"}:
            mark = _place(value)
        name = type(value).__name__
        self.held[path] = Held(value, mark, why=f" is {'an' if name[0] in 'aeiou' else 'a'} {name}")

    def _is_own(self, thing: Any) -> bool:
        """Whether the program wrote it: no standard library, nothing installed beside it."""
        return package(thing) in self._own or not _is_installed(thing.__module__ or "")


def _place(value: Any) -> Any:
    """Where an iterator of Python's is, by what would make it again."""
    if isinstance(value, tuple):
        return [_place(each) for each in value]
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, _CONTAINERS):
        return len(value)
    if not hasattr(value, "__next__"):
        return id(value)
    try:
        return _place(value.__reduce__()[1:])
    except TypeError:  # of a generator
        return object()


def _made(put: Callable[[Any], object], make: Callable[[Any], Any], content: Any) -> None:
    put(make(content))


def _assigns(obj: Any, put: Put) -> Callable[[str, Any], object]:
    """How an attribute is assigned: of a frozen dataclass in a copy, since others may have it."""
    settings = getattr(type(obj), "__dataclass_params__", None)
    if settings is None or not settings.frozen or put is None:
        return partial(setattr, obj)
    copied: list[Any] = []

    def assign(name: str, value: Any) -> None:
        if not copied:
            copied.append(copy.copy(obj))
            put(copied[0])
        object.__setattr__(copied[0], name, value)

    return assign


@functools.lru_cache(4096)
def _slots(cls: type) -> list[str]:
    return [name for each in cls.__mro__ for name in getattr(each, "__slots__", ())]


@functools.lru_cache(4096)
def _is_installed(module: str) -> bool:
    """Whether a module is not the program's: of the standard library, or in site-packages."""
    of = module.partition(".")[0]
    if of in _FOREIGN or of in sys.stdlib_module_names - {"__main__"}:
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _fill_list(old: list[Any], new: Any) -> None:
    old[:] = new


def _fill_deque(old: collections.deque[Any], new: Any) -> None:
    old.clear()
    old.extend(new)


def _fill_mapping(old: Any, new: Any) -> None:
    old.clear()
    old.update(new)


def _fill_slice(old: Any, new: Any) -> None:
    old[:] = new if isinstance(old, bytearray) else array.array(old.typecode, new)


def _spawned(bits: Any) -> int:
    return int(getattr(getattr(bits, "seed_seq", None), "n_children_spawned", 0))


def _spawn(seeds: Any, number: int) -> None:
    if number > seeds.n_children_spawned:
        seeds.spawn(number - seeds.n_children_spawned)


def _fill_bits(bits: Any, new: Any) -> None:
    bits.state, spawned = new
    if spawned:
        _spawn(bits.seed_seq, spawned)


# How the state inside is read, and assigned.
_INSIDE: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], object]]] = {
    np.random.Generator: (
        lambda one: [one.bit_generator.state, _spawned(one.bit_generator)],
        lambda one, new: _fill_bits(one.bit_generator, new),
    ),
    np.random.BitGenerator: (lambda one: [one.state, _spawned(one)], _fill_bits),
    np.random.SeedSequence: (lambda one: one.n_children_spawned, _spawn),
    np.random.RandomState: (np.random.RandomState.get_state, np.random.RandomState.set_state),
    random.Random: (random.Random.getstate, random.Random.setstate),
    random.SystemRandom: (lambda one: None, lambda one, new: None),  # has none
    contextvars.ContextVar: (lambda one: one.get(None), contextvars.ContextVar.set),
    bytearray: (bytes, _fill_slice),
    array.array: (list, _fill_slice),
}
_FILL = {
    list: _fill_list,
    collections.deque: _fill_deque,
    dict: _fill_mapping,
    set: _fill_mapping,
}


def as_data(value: Any, key: str) -> tuple[Any, dict[str, Array], str]:
    """A value as JSON and arrays, or why it cannot be encoded."""
    arrays: dict[str, Array] = {}

    def store(array: Array) -> str:
        name = f"{key}/{len(arrays)}"
        arrays[name] = array
        return name

    try:
        return encode(value, store=store), arrays, ""
    except NoJSONError as error:
        return None, {}, str(error)
    except Exception as error:  # a variable of a strategy, or without a value
        return None, {}, f" cannot be read ({error})"


def _is_json(value: Any) -> bool:
    """Whether it is its own encoding, as most attributes are."""
    kind = type(value)
    if kind is int:
        return bool(-(1 << 63) <= value < 1 << 63)
    if kind is float:
        return bool(math.isfinite(value))
    return value is None or kind is bool or (kind is str and value.isascii())


def _holds_variable(content: Any, depth: int = 0) -> bool:
    if isinstance(content, dict):
        content = content.values()
    elif not isinstance(content, _CONTAINERS):
        return is_variable(content)
    return depth < _DEPTH and any(_holds_variable(each, depth + 1) for each in content)


def _is_fixed(value: Any) -> bool:
    of_fixed = isinstance(value, (tuple, frozenset)) and all(map(_is_fixed, value))
    return of_fixed or isinstance(value, (*_PLAIN, enum.Enum))


def _is_large(content: Any) -> bool:
    if isinstance(content, np.ndarray):
        return content.nbytes > _BYTES
    return isinstance(content, _CONTAINERS) and len(content) > _ITEMS


def _sample(content: Any) -> Any:
    """What shows most changes of something large."""
    if isinstance(content, np.ndarray):
        indices = np.linspace(0, content.size - 1, _ITEMS).astype(np.int64)
        return content.shape, str(content.dtype), _sum(content.flat[indices])
    ends = (
        *_first(content),
        *(_first(reversed(content)) if hasattr(content, "__reversed__") else ()),
    )
    return len(content), as_data(list(ends), "")[0]


def _first(items: Any) -> Iterator[Any]:
    return (each for each, _ in zip(items, range(100), strict=False))


def _sum(array: Array) -> Any:
    if array.dtype.hasobject:
        return repr(array)
    return (
        array.shape,
        str(array.dtype),
        extend(0, np.ravel(np.ascontiguousarray(array)).view(np.uint8)),
    )
