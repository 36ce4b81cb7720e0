"""Functions that a program registers for the rules of ``adapt``.

A config never names code to import, only functions that the program has registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Function = TypeVar("_Function", bound="Callable[..., Any]")

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def register_adaptation(name: str) -> Callable[[_Function], _Function]:
    """Register a function for ``how: function``.

    The function takes the stored values as NumPy arrays, as many as the rule lists under
    ``checkpoint``, and returns an array of the shape and dtype of the model's variable. It is
    called once for each variable, before any variable changes.

    Args:
        name: the name that a rule uses.

    Raises:
        ValueError: another function is registered under the name.

    >>> import tfckpt
    >>> @tfckpt.register_adaptation("mirrored")
    ... def mirrored(kernel):
    ...     return kernel[::-1]
    """

    def register(function: _Function) -> _Function:
        other = FUNCTIONS.get(name)
        if other is not None and _qualified_name(other) != _qualified_name(
            function
        ):  # a cell may be run again
            raise ValueError(
                f"{name!r} is already registered, for {'.'.join(_qualified_name(other))}"
            )
        FUNCTIONS[name] = function
        return function

    return register


def _qualified_name(function: Callable[..., Any]) -> tuple[str, str]:
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    return module, getattr(function, "__qualname__", None) or kind.__qualname__
