"""Whether a module or class belongs to the program, to Keras or to another package.

Which globals a program's code uses, and which attributes a class sets on its objects, is read from
the bytecode of its methods (https://docs.python.org/3/library/dis.html).
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

KERAS = ("keras", "tf_keras")
_STORE = dis.opmap["STORE_ATTR"]


def package(cls: type) -> str:
    return str(cls.__module__).partition(".")[0]


def is_of_keras(cls: type) -> bool:
    """Whether a class is one of Keras's, or inherits from one."""
    return any(package(each) in KERAS for each in cls.__mro__)


@functools.cache
def is_own(module: Any) -> bool:
    """Whether a module belongs to the program, not to Python or an installed package."""
    top = str(module).partition(".")[0]
    if top == "tfckpt" or top in sys.stdlib_module_names - {"__main__"}:
        return False
    path = str(getattr(sys.modules.get(str(module)), "__file__", None) or "")
    return not {"site-packages", "dist-packages"} & set(path.replace("\\", "/").split("/"))


@functools.cache
def names_in_keras(cls: Any) -> set[str]:
    """Every name that the Keras base classes of a class define or use."""
    names: set[str] = set()
    for parent in cls.__mro__:
        if package(parent) in KERAS:
            names.update(vars(parent))
            for method in vars(parent).values():
                code = getattr(getattr(method, "fget", method), "__code__", None)
                names.update(code.co_names if code else ())
    return names


def is_of_program(cls: Any, name: str) -> bool:
    """Whether an attribute belongs to the program, not to a base class of another package."""
    of_others, of_program, foreign = _names(cls)
    if name.startswith("_self_") or name in of_others:
        return False
    if not name.startswith("_") or name in of_program:
        return True
    return not foreign and name not in names_in_keras(cls)


@functools.cache
def _names(cls: Any) -> tuple[set[str], set[str], bool]:
    """Names that other packages' bases define or set, those that the program sets, and a flag.

    The flag is whether private names not seen here may belong to another package than Keras.
    """
    others = [each for each in cls.__mro__ if not is_own(each.__module__)]
    own = [each for each in cls.__mro__ if is_own(each.__module__)]
    of_others = {name for each in others for name in set_in_methods(each)}
    foreign = not own or (bool(of_others) and not is_of_keras(cls))
    of_others.update(name for each in others for name in vars(each))
    return of_others, {name for each in own for name in set_in_methods(each)}, foreign


@functools.cache
def set_in_methods(cls: Any) -> set[str]:
    """Attributes that the methods of a class set on ``self``."""
    return {name for method in vars(cls).values() for name in set_in(method)}


def set_in(method: Any) -> set[str]:
    """Attributes that one method or property sets on ``self``."""
    # most methods set nothing, and to take bytecode apart is slow
    functions = (each for each in _functions(method) if _STORE in each.__code__.co_code[::2])
    found = (_set_on_self(list(dis.get_instructions(each))) for each in functions)
    return {name for names in found for name in names}


def set_anew(function: types.FunctionType) -> set[str]:
    """Attributes that a method sets on ``self`` unconditionally, without reading them before."""
    names, loaded = set(), set()
    instructions = list(dis.get_instructions(function))
    for index, each in enumerate(instructions):
        if "JUMP" in each.opname or each.opname == "FOR_ITER":
            break
        if each.opname == "LOAD_ATTR":
            loaded.add(each.argval)
        elif each.opname == "STORE_ATTR" and index and each.argval not in loaded:
            names.update([each.argval] if _is_self(instructions[index - 1]) else [])
    return names


@functools.cache
def globals_of(code: types.CodeType) -> tuple[str, ...]:
    """The globals that a function and its nested functions read or write."""
    found = [
        each.argval
        for each in dis.get_instructions(code)
        if each.opname in ("LOAD_GLOBAL", "STORE_GLOBAL")
    ]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += globals_of(constant)
    return tuple(dict.fromkeys(found))


def _functions(method: Any) -> Iterator[types.FunctionType]:
    if isinstance(method, property):
        for each in (method.fget, method.fset):
            yield from _functions(each)
    elif isinstance(method, (classmethod, staticmethod)):
        yield from _functions(method.__func__)
    elif isinstance(method, types.FunctionType):
        function = inspect.unwrap(method)
        if isinstance(function, types.FunctionType):
            yield function


def _set_on_self(instructions: list[dis.Instruction]) -> Iterator[str]:
    for index, each in enumerate(instructions):
        if each.opname != "STORE_ATTR" or not index:
            continue
        before = instructions[index - 1]
        if before.opname in ("SWAP", "ROT_TWO"):  # from `self.a += 1`
            before = _owner_of_loaded(each.argval, instructions[:index])
        if _is_self(before):
            yield each.argval


def _owner_of_loaded(name: str, before: list[dis.Instruction]) -> Any:
    """The instruction that loads the object whose attribute was loaded last by a name."""
    while before:
        last = before.pop()
        if last.opname == "LOAD_ATTR" and last.argval == name:
            break
    while before and before[-1].opname in ("COPY", "DUP_TOP", "SWAP", "ROT_TWO"):
        before.pop()
    return before[-1] if before else None


def _is_self(loaded: Any) -> bool:
    if loaded is None:
        return False
    last = loaded.argval[-1] if isinstance(loaded.argval, tuple) else loaded.argval
    return bool(loaded.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) and last == "self")
