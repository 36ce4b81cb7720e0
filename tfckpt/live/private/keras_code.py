"""Which attributes Keras's own code changes, read from the code that is installed.

Of an object with a class of Keras's among its bases these are names with an underscore that the
code of that class mentions, and public ones that it assigns outside of ``__init__``. What is left
are the arguments that it was made with, and what the program added.
"""

from __future__ import annotations

import dis
import functools
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

KERAS = frozenset({"keras", "tf_keras"})
TRAINABLE = "trainable"
_OF_ALL = frozenset({"stop_training", "history", TRAINABLE})


def package(thing: Any) -> str:
    """The package of a class or function."""
    return str(getattr(thing, "__module__", None) or "").partition(".")[0]


def is_of_keras(cls: type) -> bool:
    """Whether a class of Keras's is among its bases."""
    return any(package(each) in KERAS for each in cls.__mro__)


@functools.lru_cache(4096)
def changed_by_keras(cls: type) -> frozenset[str]:
    """Attributes of a class's objects that belong to Keras and TensorFlow."""
    of_others = (each for each in cls.__mro__ if package(each) in {*KERAS, "tensorflow"})
    return _OF_ALL.union(*map(_changed_by, of_others))


@functools.lru_cache(4096)
def _changed_by(cls: type) -> frozenset[str]:
    found = set[str]()
    for name, member in vars(cls).items():
        members = (member.fget, member.fset) if isinstance(member, property) else (member,)
        for code in (each for one in members for each in _codes_of(one)):
            texts = (each for each in code.co_consts if type(each) is str)
            found.update(each for each in (*code.co_names, *texts) if each.startswith("_"))
            if name != "__init__":
                stored = (each for each in dis.get_instructions(code) if each.opname == _STORE)
                found.update(each.argval for each in stored)
    return frozenset(found)


_STORE = "STORE_ATTR"


def _codes_of(function: Any) -> Iterator[types.CodeType]:
    """The code of a method, of what it wraps, and of functions of Keras's modules that it names."""
    function = getattr(function, "__func__", function)
    while isinstance(function, types.FunctionType):
        for code in _with_inner(function.__code__):
            yield code
            for one in _functions_named(code, function.__globals__):
                yield from _with_inner(one.__code__)
        function = getattr(function, "__wrapped__", None)


def _functions_named(code: types.CodeType, names: dict[str, Any]) -> Iterator[types.FunctionType]:
    spaces = (names.get(name) for name in code.co_names)
    for space in (each for each in spaces if isinstance(each, types.ModuleType)):
        if space.__name__.partition(".")[0] in KERAS:
            named = (vars(space).get(name) for name in code.co_names)
            yield from (each for each in named if isinstance(each, types.FunctionType))


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _with_inner(each)


def names_in(code: types.CodeType) -> set[str]:
    """The globals and attributes that some code names."""
    return {name for each in _with_inner(code) for name in each.co_names}
