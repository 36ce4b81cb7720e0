"""Applies the changes of a plan to values before they are assigned.

NumPy does everything except ``resize``, which is ``tf.image.resize`` (in float32), and
initializers, which are Keras's.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfckpt.core.dtypes import LostNumberError, cast
from tfckpt.errors import RestoreError
from tfckpt.live.io.remote_files import files_of
from tfckpt.live.restoring.registered_functions import FUNCTIONS
from tfckpt.live.variables.flavors import flavors
from tfckpt.live.variables.variables import raw
from tfckpt.planning.adaptation.change import show_shape
from tfckpt.planning.adaptation.operations import PlanContext
from tfckpt.policy import adaptations
from tfckpt.stored.io.word_list import read_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.planning import Step
    from tfckpt.planning.adaptation.change import Change, ValueSpec
    from tfckpt.policy import Policy

_WORDS = {"initialize", "zeros", "mean"}


def plan_context(policy: Policy) -> PlanContext:
    """The vocabularies, functions and initializers that the rules of a policy can use.

    Raises:
        PolicyError: a vocabulary file cannot be read or is not valid.
    """
    files = dict.fromkeys(
        path
        for rule in policy.adapt
        if isinstance(rule, adaptations.Vocabulary)
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
        if isinstance(rule, adaptations.Pad) and isinstance(rule.value, str):
            yield rule.value
        elif isinstance(rule, adaptations.Vocabulary):
            yield rule.missing


def unrepeatable(step: Step) -> bool:
    """Whether a registered function or an initializer computes it, which may fail or differ."""
    return any(
        change.how == "function" or _drawn(options)
        for change in step.changes
        for options in change.options
    )


def _drawn(options: Mapping[str, Any]) -> bool:
    fill = options.get("fill")
    return isinstance(fill, str) and fill not in _WORDS


def may_fail(step: Step) -> bool:
    """Whether the dtype of the variable may not be able to hold its value."""
    if not step.changes or step.live is None:
        return False
    casts = step.changes[-1].after[0].dtype != step.live.dtype
    return casts or unrepeatable(step) or any(change.how == "cast" for change in step.changes)


def adapted(step: Step, values: Sequence[Any], variable: Any) -> Any:
    """The value that the changes of a step make of the stored arrays of ``step.reads``.

    A change may use the current value of ``variable``.

    Raises:
        RestoreError: a dtype cannot hold a value, or a function or an initializer failed.
    """
    values = list(values)
    for change in step.changes:
        if len(change.after) < len(change.before):
            values = [_join(step.name, change, values)]
            continue
        for i, kind in enumerate(change.after):  # one by one, to free each old one
            operation = _Operation(step.name, change, change.options[i], kind, variable)
            values[i] = _OPERATIONS[change.how](values[i], operation)
    return values[0]


class _Operation(NamedTuple):
    """One operation on one value.

    Attributes:
        name: canonical name of the variable.
        change: the change in the plan.
        options: the resolved options for this value.
        to: the dtype and shape of the result.
        variable: the variable, for ``fill: initialize``.
    """

    name: str
    change: Change
    options: Mapping[str, Any]
    to: ValueSpec
    variable: Any

    @property
    def dtype(self) -> Any:
        return _numpy_dtype(self.to)


def _numpy_dtype(kind: ValueSpec) -> Any:
    return np.dtype(tf.as_dtype(kind.dtype).as_numpy_dtype)


def _join(name: str, change: Change, values: Sequence[Any]) -> Any:
    (options,), (to,) = change.options, change.after
    if change.how == "concat":
        return np.concatenate(values, axis=options["axis"])
    return _call(name, options["name"], to, values)


def _call(name: str, function: str, to: ValueSpec, values: Sequence[Any]) -> Any:
    try:
        result = np.asarray(FUNCTIONS[function](*values))
    except Exception as error:
        raise RestoreError(
            f"{name}: the function registered as {function!r} failed, and nothing was changed: "
            f"{type(error).__name__}: {error}"
        ) from error
    if (result.shape, result.dtype) != (to.shape, _numpy_dtype(to)):
        raise RestoreError(
            f"{name}: the function registered as {function!r} returned {result.dtype.name} "
            f"{show_shape(result.shape)}, but the model needs {to.dtype} {show_shape(to.shape)}; "
            "nothing was changed"
        )
    return result


def _function(value: Any, operation: _Operation) -> Any:
    return _call(operation.name, operation.options["name"], operation.to, [value])


def _cast(value: Any, operation: _Operation) -> Any:
    lossy = operation.options["casting"] == "any"
    return cast_value(operation.name, value, operation.dtype, lossy=lossy)


def cast_value(name: str, value: Any, dtype: Any, *, lossy: bool = False) -> Any:
    """As :func:`~tfckpt.core.dtypes.cast`; ``name`` is for the message.

    Raises:
        RestoreError: the dtype cannot hold a number.
    """
    try:
        return cast(value, np.dtype(dtype), lossy=lossy)
    except LostNumberError as error:
        raise RestoreError(
            f"{name}: {error}; nothing was changed",
            hint="exclude it, or give the variable a wider dtype",
        ) from None


def _transpose(value: Any, operation: _Operation) -> Any:
    return value.transpose(operation.options["axes"])


def _reshape(value: Any, operation: _Operation) -> Any:
    return value.reshape(operation.options["shape"])


def _slice(value: Any, operation: _Operation) -> Any:
    return value[_box(operation.options["start"], operation.options["size"])]


def _pad(value: Any, operation: _Operation) -> Any:
    whole = _filled(operation)
    whole[_box(operation.options["before"], value.shape)] = value
    return whole


def _vocabulary(value: Any, operation: _Operation) -> Any:
    axis, fill = operation.options["axis"], operation.options["fill"]
    rows = np.asarray(operation.change.rows, np.int64)
    if (rows >= 0).all():
        return np.take(value, rows, axis)
    before = (slice(None),) * axis
    if fill == "mean":
        first, last = operation.options["words"]
        words = value[(*before, slice(first, last))]
        whole = np.empty(operation.to.shape, operation.dtype)
        mean = words.mean(axis, dtype=np.float64, keepdims=True)
        whole[(*before, rows < 0)] = mean.astype(operation.dtype)
    else:
        whole = _filled(operation)
    whole[(*before, rows >= 0)] = np.take(value, rows[rows >= 0], axis)
    return whole


def _tile(value: Any, operation: _Operation) -> Any:
    axis, divisor = operation.options["axis"], operation.options["divisor"]
    if axis is not None:
        value = np.expand_dims(value, axis)
    if divisor != 1:
        value = (value / divisor).astype(value.dtype)
    return np.tile(value, operation.options["times"])


def _resize(value: Any, operation: _Operation) -> Any:
    options = operation.options
    method = options["method"]
    if "grid" not in options:
        return _interpolated(value, options["axes"], options["sizes"], method)
    kept, grid = options["prefix"], options["grid"]
    *above, _, last = value.shape
    positions = value[..., kept:, :].reshape((*above, *grid, last))
    axes = tuple(range(len(above), len(above) + len(grid)))
    result = _interpolated(positions, axes, options["to_grid"], method)
    return np.concatenate([value[..., :kept, :], result.reshape((*above, -1, last))], axis=-2)


def _interpolated(value: Any, axes: Sequence[int], sizes: Sequence[int], method: str) -> Any:
    """Resize one or two axes as rows and columns of one image, with all other axes as channels."""
    front = tuple(range(len(axes)))
    moved = np.moveaxis(value, axes, front)
    rest = moved.shape[len(axes) :]
    rows, columns = (*moved.shape[: len(axes)], 1)[:2]
    image = np.ascontiguousarray(moved).reshape((1, rows, columns, -1))
    result = np.asarray(tf.image.resize(image, (*sizes, 1)[:2], method))
    return np.moveaxis(result.reshape((*sizes, *rest)), front, axes).astype(value.dtype)


_OPERATIONS: Mapping[str, Callable[[Any, _Operation], Any]] = {
    "cast": _cast,
    "function": _function,
    "pad": _pad,
    "reshape": _reshape,
    "resize": _resize,
    "slice": _slice,
    "split": _slice,
    "tile": _tile,
    "transpose": _transpose,
    "vocabulary": _vocabulary,
}


def _box(start: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(first, first + many) for first, many in zip(start, size, strict=True))


def _filled(operation: _Operation) -> Any:
    """A new array of the target shape, filled as the options say."""
    fill = operation.options["fill"]
    if not isinstance(fill, str):
        return np.full(operation.to.shape, fill, operation.dtype)
    if fill == "initialize":
        return np.array(raw(operation.variable).numpy())
    try:
        result = _initializer(fill)(operation.to.shape, dtype=operation.to.dtype)
        return np.array(result, operation.dtype)
    except Exception as error:
        raise RestoreError(
            f"{operation.name}: the initializer {fill!r} failed for the shape "
            f"{show_shape(operation.to.shape)}, and nothing was changed: {error}"
        ) from error


def _initializer(name: str) -> Any:
    """The initializer of that name in an imported Keras, or None."""
    names = [flavor.name for flavor in flavors()] or ["keras"]
    for module in names if re.fullmatch(r"\w+", name, re.ASCII) else ():
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            return importlib.import_module(module).initializers.get(name)
    return None
