"""Which user classes override what the names and children of objects depend on.

The code of TensorFlow and Keras depends only on attributes: if these have not changed, neither have
names and children. Other classes may override members and compute them from anything. Overridden
properties, such as the ``metrics`` of a model with its own training step, are evaluated again; if a
class overrides anything else that matters, its objects always count as changed.
"""

from __future__ import annotations

import sys

from tfckpt.live.private.attributes import HARMLESS, PROBED, REPEATABLE

_KNOWN = sys.stdlib_module_names | {"keras", "tensorflow", "tf_keras", "tfckpt", "wrapt"}


class UnsureError(Exception):
    """It cannot be detected whether an object has changed."""


def own_classes(cls: type) -> list[type]:
    """The bases of a class that are the user's or another library's."""
    return [base for base in cls.__mro__ if not _is_known(base)]


def properties_asked(cls: type) -> tuple[str, ...]:
    """The properties that user code overrides.

    Raises:
        UnsureError: user code overrides a member that cannot simply be evaluated again.
    """
    known = PROBED.union(*(vars(base) for base in cls.__mro__ if _is_known(base)))
    found: dict[str, None] = {}
    for base in own_classes(cls):
        for name in (known & vars(base).keys()) - HARMLESS:
            member = vars(base)[name]
            if not hasattr(type(member), "__get__"):
                continue
            if name not in REPEATABLE or not isinstance(member, property):
                raise UnsureError(f"{base.__qualname__}.{name}")
            found[name] = None
    return tuple(found)


def check_iteration(cls: type) -> None:
    """Check that a container class does not override iteration.

    Raises:
        UnsureError: it does.
    """
    for base in own_classes(cls):
        for name in ("__iter__", "items"):
            if name in vars(base) and issubclass(cls, (dict, list, tuple, set, frozenset)):
                raise UnsureError(f"{base.__qualname__}.{name}")


def methods_asked(cls: type) -> frozenset[str]:
    """The methods of a class that matter if an instance attribute overrides them."""
    methods = {name for base in cls.__mro__ for name, m in vars(base).items() if callable(m)}
    return frozenset(PROBED | {name for name in methods if name[:1] == "_"}) - HARMLESS


def _is_known(cls: type) -> bool:
    return str(cls.__module__).partition(".")[0] in _KNOWN
