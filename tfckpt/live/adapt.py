"""Applies the ``adapt`` rules of a plan to values before they are assigned.

The rules are in ``policy/adapt``; here is what they need of TensorFlow, which interpolates (in
float32), of Keras, which has the initializers, and of the program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import random
import re
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from tfckpt.core.dtypes import LostNumberError, cast, dtype_name, numpy_dtype
from tfckpt.errors import CheckpointError, PolicyError, Problem, RestoreError
from tfckpt.live.flavors import flavors
from tfckpt.live.variables import raw
from tfckpt.policy.adapt import AdaptTarget, Pad, PlanContext, Vocabulary
from tfckpt.policy.blanks import show_shape
from tfckpt.stored.io import limits
from tfckpt.stored.io.files import content, files_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfckpt.core.inventory import Shape
    from tfckpt.planning import Step
    from tfckpt.policy import Policy

_OTHER_FILLS = {"initialize", "mean"}


def plan_context(policy: Policy) -> PlanContext:
    """The vocabularies, functions and initializers that the rules of a policy can use."""
    words: dict[str, tuple[str, ...]] = {}
    names: set[float | str] = set()
    for rule in policy.adapt:
        if isinstance(rule, Vocabulary):
            words |= {path: read_words(path) for path in (rule.old, rule.new) if path not in words}
            names.add(rule.missing)
        elif isinstance(rule, Pad):
            names.add(rule.value)
    state = random.getstate()  # an unseeded initializer draws a seed when it is created
    drawn = [name for name in names - _OTHER_FILLS if isinstance(name, str)]
    found = sorted(name for name in drawn if _initializer(name) is not None)
    random.setstate(state)
    return PlanContext(words, sorted(FUNCTIONS), found)


def read_words(path: str) -> tuple[str, ...]:
    """The words of a UTF-8 file, one per line, such as the vocabulary of a tokenizer.

    The number of a line is the row of an embedding table, so no line is skipped and nothing but its
    end is stripped. Refused are empty lines and duplicate words, whose rows would be ambiguous.
    """

    def wrong(message: str, line: int = 0, column: int = 1) -> PolicyError:
        return PolicyError(path, [Problem(message, line, column)])

    try:
        lines = content(path, files_of(path), limits.WORDS).split(b"\n")
    except CheckpointError as error:
        raise wrong(f"the word list cannot be read: it {error.message}") from None
    except OSError as error:
        raise wrong(f"the word list cannot be read: {error.strerror or error}") from None
    seen: dict[str, int] = {}
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        try:
            word = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise wrong("the line is not valid UTF-8", number, error.start + 1) from None
        if not word:
            raise wrong("the line is empty; every line must be a word", number)
        if word in seen:
            raise wrong(f"duplicate word {word[:60]!r}, first on line {seen[word]}", number)
        seen[word] = number
    if not seen:
        raise wrong("the file contains no words")
    return tuple(seen)


def adapted(step: Step, values: Sequence[Any], variable: Any) -> Any:
    """The value that the changes of a step make of the stored arrays of ``step.reads``.

    A change may use the current value of ``variable``.
    """
    values = list(values)
    for change in step.changes:
        into = _Variable(**vars(change.into), name=step.name, variable=variable)
        with _nothing_lost(step.name):
            if change.rule.joins:
                values = [change.rule.make(into, *values)[0]]
                continue
            for i in range(len(values)):  # one by one, to free each old one
                values[i] = change.rule.make(into, values[i])[0]
    return values[0]


@dataclasses.dataclass
class _Variable(AdaptTarget):
    """A variable of the program."""

    name: str
    variable: Any

    def filled(self, fill: Any, shape: Shape, at: Any, part: np.ndarray) -> np.ndarray:
        if not isinstance(fill, str):
            whole = np.full(shape, fill, part.dtype)
        elif fill == "initialize":
            whole = np.array(raw(self.variable).numpy())
        else:
            whole = np.array(self._drawn(fill, shape, dtype_name(part.dtype)), part.dtype)
        whole[at] = part
        return whole

    def _drawn(self, initializer: str, shape: Shape, dtype: str) -> Any:
        try:
            return _initializer(initializer)(shape, dtype=dtype)
        except Exception as error:
            raise RestoreError(
                f"{self.name}: the initializer {initializer!r} failed for the shape "
                f"{show_shape(shape)}, and nothing was changed: {error}"
            ) from error

    def resized(self, image: np.ndarray, sizes: Sequence[int], method: str) -> np.ndarray:
        return np.asarray(tf.image.resize(image, sizes, method))

    def called(self, name: str, *arrays: np.ndarray) -> np.ndarray:
        try:
            result = np.asarray(FUNCTIONS[name](*arrays))
        except Exception as error:
            raise RestoreError(
                f"{self.name}: the function registered as {name!r} failed, and nothing was "
                f"changed: {type(error).__name__}: {error}"
            ) from error
        if (result.shape, result.dtype) != (self.shape, numpy_dtype(self.dtype)):
            raise RestoreError(
                f"{self.name}: the function registered as {name!r} returned "
                f"{result.dtype.name} {show_shape(result.shape)}, but the model needs "
                f"{self.dtype} {show_shape(self.shape)}; nothing was changed"
            )
        return result


def cast_value(name: str, value: Any, dtype: Any) -> Any:
    """As :func:`~tfckpt.core.dtypes.cast`; ``name`` is for the message."""
    with _nothing_lost(name):
        return cast(value, np.dtype(dtype))


@contextlib.contextmanager
def _nothing_lost(name: str) -> Iterator[None]:
    try:
        yield
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
