"""Applies the changes of a plan to values before they are assigned.

The kinds of rules are in ``policy/adapt``; here is what they need of TensorFlow, which
interpolates (in float32), of Keras, which has the initializers, and of the program.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import re
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from tfckpt.core.dtypes import LostNumberError, cast
from tfckpt.errors import RestoreError
from tfckpt.live.flavors import flavors
from tfckpt.live.variables import raw
from tfckpt.policy.adapt import PlanContext, show_shape
from tfckpt.policy.adapt_fill import KINDS, Pad, Vocabulary
from tfckpt.stored.io.files import files_of
from tfckpt.stored.io.word_list import read_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfckpt.planning import Step
    from tfckpt.planning.adaptation.change import Change
    from tfckpt.policy import Policy

_WORDS = {"initialize", "zeros", "mean"}


def plan_context(policy: Policy) -> PlanContext:
    """The vocabularies, functions and initializers that the rules of a policy can use."""
    files = dict.fromkeys(
        path
        for rule in policy.adapt
        if isinstance(rule, Vocabulary)
        for path in (rule.old, rule.new)
    )
    words = {path: read_words(path, files_of(path)) for path in files}
    names = set(_initializer_names(policy)) - _WORDS
    state = random.getstate()  # an unseeded initializer draws a seed when it is created
    found = frozenset(name for name in names if _initializer(name) is not None)
    random.setstate(state)
    return PlanContext(words, frozenset(FUNCTIONS), found)


def _initializer_names(policy: Policy) -> Iterator[str]:
    for rule in policy.adapt:
        if isinstance(rule, Pad) and isinstance(rule.value, str):
            yield rule.value
        elif isinstance(rule, Vocabulary):
            yield rule.missing


def adapted(step: Step, values: Sequence[Any], variable: Any) -> Any:
    """The value that the changes of a step make of the stored arrays of ``step.reads``.

    A change may use the current value of ``variable``.
    """
    values = list(values)
    for change in step.changes:
        apply = KINDS[change.how].apply
        if len(change.after) < len(change.before):
            values = [apply(values, _Planned(step.name, change, 0, variable))]
            continue
        for i in range(len(change.after)):  # one by one, to free each old one
            values[i] = apply(values[i : i + 1], _Planned(step.name, change, i, variable))
    return values[0]


class _Planned:
    """One operation on one value, or on several that are joined."""

    def __init__(self, name: str, change: Change, index: int, variable: Any) -> None:
        self.options = change.options[index]
        self.rows = change.rows
        self.to = change.after[index]
        self.dtype = np.dtype(tf.as_dtype(self.to.dtype).as_numpy_dtype)
        self._name = name
        self._variable = variable

    def cast(self, value: Any) -> Any:
        return cast_value(self._name, value, self.dtype, lossy=self.options["casting"] == "any")

    def image_resized(self, image: Any, sizes: Sequence[int]) -> Any:
        return np.asarray(tf.image.resize(image, sizes, self.options["method"]))

    def called(self, values: Sequence[Any]) -> Any:
        function = self.options["name"]
        try:
            result = np.asarray(FUNCTIONS[function](*values))
        except Exception as error:
            raise RestoreError(
                f"{self._name}: the function registered as {function!r} failed, and nothing was "
                f"changed: {type(error).__name__}: {error}"
            ) from error
        if (result.shape, result.dtype) != (self.to.shape, self.dtype):
            raise RestoreError(
                f"{self._name}: the function registered as {function!r} returned "
                f"{result.dtype.name} {show_shape(result.shape)}, but the model needs "
                f"{self.to.dtype} {show_shape(self.to.shape)}; nothing was changed"
            )
        return result

    def filled(self) -> Any:
        fill = self.options["fill"]
        if not isinstance(fill, str):
            return np.full(self.to.shape, fill, self.dtype)
        if fill == "initialize":
            return np.array(raw(self._variable).numpy())
        try:
            result = _initializer(fill)(self.to.shape, dtype=self.to.dtype)
            return np.array(result, self.dtype)
        except Exception as error:
            raise RestoreError(
                f"{self._name}: the initializer {fill!r} failed for the shape "
                f"{show_shape(self.to.shape)}, and nothing was changed: {error}"
            ) from error


def cast_value(name: str, value: Any, dtype: Any, *, lossy: bool = False) -> Any:
    """As :func:`~tfckpt.core.dtypes.cast`; ``name`` is for the message."""
    try:
        return cast(value, np.dtype(dtype), lossy=lossy)
    except LostNumberError as error:
        raise RestoreError(
            f"{name}: {error}; nothing was changed",
            hint="exclude it, or give the variable a wider dtype",
        ) from None


def _initializer(name: str) -> Any:
    """The initializer of that name in an imported Keras, or None."""
    names = [flavor.name for flavor in flavors()] or ["keras"]
    for module in names if re.fullmatch(r"\w+", name, re.ASCII) else ():
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            return importlib.import_module(module).initializers.get(name)
    return None


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
