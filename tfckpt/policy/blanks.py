"""Arrays of zeros that take no memory, by which a plan learns what a rule would make of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfckpt.core.dtypes import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tfckpt.core.inventory import Shape


class ValueSpec(NamedTuple):
    """Shape and dtype of a value between two operations."""

    shape: Shape
    dtype: str


class Impossible(Exception):  # noqa: N818 - control flow, never reaches a user
    """A value cannot be adapted by a rule; with the reason and a hint."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def require(fits: object, reason: str, hint: str = "") -> None:
    if not fits:
        raise Impossible(reason, hint)


def blank(shape: Shape, dtype: str) -> np.ndarray:
    """Zeros that take no memory: all are the same one.

    >>> blank((1 << 20, 1 << 20), "float32").strides
    (0, 0)
    """
    return np.broadcast_to(np.zeros((), numpy_dtype(dtype)), shape)


def once(
    function: Callable[..., np.ndarray], *arrays: np.ndarray, axes: Iterable[int] = ()
) -> np.ndarray:
    """What a function of these axes makes of arrays; one time where all repeat along another axis.

    So what is made of blanks takes next to no memory either.

    >>> once(np.negative, blank((1 << 20, 1 << 20), "float32")).shape
    (1048576, 1048576)
    """
    shape = arrays[0].shape
    repeats = {axis for axis in range(len(shape)) if not any(each.strides[axis] for each in arrays)}
    if not (repeats := repeats.difference(axes)):
        return function(*arrays)
    index = tuple(slice(1 if axis in repeats else None) for axis in range(len(shape)))
    made = function(*(each[index] for each in arrays))
    sizes = (shape[axis] if axis in repeats else n for axis, n in enumerate(made.shape))
    return np.broadcast_to(made, tuple(sizes))


def show_shape(shape: Iterable[int]) -> str:
    """A shape as reports show it.

    >>> show_shape((4,)), show_shape((2, 3))
    ('(4)', '(2, 3)')
    """
    return f"({', '.join(map(str, shape))})"


def axis_of(axis: int, shape: Shape) -> int:
    """A possibly negative axis as a non-negative one."""
    require(-len(shape) <= axis < len(shape), f"{show_shape(shape)} has no axis {axis}")
    return axis % len(shape)


def with_size(shape: Shape, axis: int, size: int) -> Shape:
    """The shape with another size along an axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def box(start: Shape, size: Shape) -> tuple[Any, ...]:
    """The index of a part of a value."""
    return (*(slice(at, at + many) for at, many in zip(start, size, strict=True)), ...)
