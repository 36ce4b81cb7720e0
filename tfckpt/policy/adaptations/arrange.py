"""Rules that arrange the numbers of a value in another way: transpose, reshape, slice, tile."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from tfckpt.core.dtypes import is_real
from tfckpt.policy.adaptations.operation import (
    CAST_HINT,
    Counts,
    Done,
    Impossible,
    Indices,
    OfVariable,
    Operation,
    PlanContext,
    ValueSpec,
    axis_of,
    box,
    show_box,
    show_shape,
)
from tfckpt.policy.base.fields import Listed, fault

if TYPE_CHECKING:
    from collections.abc import Sequence


class Transpose(OfVariable):
    """Permute the axes."""

    how: Literal["transpose"]
    axes: Annotated[tuple[int, ...], Field(min_length=1), Listed] | None = None
    """Permutation of the axes, as in numpy.transpose; by default, their reverse order."""

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        (kind,) = kinds
        rank = len(kind.shape)
        axes = tuple(reversed(range(rank)))
        if self.axes is not None:
            axes = tuple(axis_of(axis, kind.shape) for axis in self.axes)
            if sorted(axes) != list(range(rank)):
                raise Impossible(f"axes: {list(self.axes)} is not a permutation of the {rank} axes")
        shape = tuple(kind.shape[axis] for axis in axes)
        detail = str(list(axes)) if self.axes else ""
        return Done(ValueSpec(shape, kind.dtype), {"axes": axes}, detail)

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        return values[0].transpose(operation.options["axes"])


class Reshape(OfVariable):
    """Reshape to another shape of the same size."""

    how: Literal["reshape"]
    shape: Annotated[tuple[int, ...], Listed] | None = None
    """New shape, with at most one -1; by default, the shape of the variable."""
    idempotent: ClassVar[bool] = True

    @field_validator("shape")
    @classmethod
    def _has_one_unknown_size(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (min(value, default=0) < -1 or value.count(-1) > 1):
            raise fault("`shape` must have sizes of at least 0, and at most one -1")
        return value

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        (kind,) = kinds
        shape = live.shape if self.shape is None else self.shape
        given = math.prod(size for size in shape if size != -1)
        size = math.prod(kind.shape)
        if -1 in shape and given:
            shape = tuple(size // given if each == -1 else each for each in shape)
        if -1 in shape or math.prod(shape) != size:
            raise Impossible(
                f"cannot reshape {show_shape(kind.shape)}, {size} numbers, to {show_shape(shape)}"
            )
        return Done(ValueSpec(shape, kind.dtype), {"shape": shape})

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        return values[0].reshape(operation.options["shape"])


class Slice(OfVariable):
    """Take a part of the value."""

    how: Literal["slice"]
    start: Indices | None = None
    """Start index of the part on each axis; by default, 0."""
    size: Counts | None = None
    """Shape of the part; by default, the shape of the variable."""
    idempotent: ClassVar[bool] = True

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        (kind,) = kinds
        size = live.shape if self.size is None else self.size
        start = (0,) * len(kind.shape) if self.start is None else self.start
        if not len(size) == len(start) == len(kind.shape):
            raise Impossible(
                f"{show_shape(kind.shape)} has {len(kind.shape)} axes, but the slice's size has "
                f"{len(size)} and its start {len(start)}"
            )
        if any(s + n > m for s, n, m in zip(start, size, kind.shape, strict=True)):
            raise Impossible(
                f"a slice of {show_shape(size)} from {show_shape(start)} is not within "
                f"{show_shape(kind.shape)}"
            )
        options = {"start": start, "size": size}
        return Done(ValueSpec(size, kind.dtype), options, show_box(kind.shape, start, size))

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        return values[0][box(operation.options["start"], operation.options["size"])]


class Tile(OfVariable):
    """Repeat the value."""

    how: Literal["tile"]
    axis: int | None = None
    """Index of a new axis, which is inserted first."""
    times: Counts | None = None
    """Repetitions along each axis, the new one included; by default, to fill the variable."""
    scale: Literal["none", "mean"] = "none"
    """mean divides by the number of repetitions, so that the sum over them is unchanged."""
    idempotent: ClassVar[bool] = True

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        (kind,) = kinds
        shape, axis = kind.shape, self.axis
        if axis is not None:
            axis = axis_of(axis, (*shape, 1))
            shape = (*shape[:axis], 1, *shape[axis:])
        times = self.times
        if times is None:
            if len(shape) != len(live.shape):
                hint = "set `axis` to the index of the new axis" if axis is None else ""
                raise Impossible(
                    f"cannot tile {show_shape(shape)} to {show_shape(live.shape)}", hint
                )
            if any(not old or new % old for old, new in zip(shape, live.shape, strict=True)):
                raise Impossible(
                    f"{show_shape(live.shape)} is not a multiple of {show_shape(shape)}"
                )
            times = tuple(new // old for old, new in zip(shape, live.shape, strict=True))
        if len(times) != len(shape):
            raise Impossible(
                f"times: {list(times)} must have one number for each axis of {show_shape(shape)}"
            )
        mean = self.scale == "mean"
        if mean and not is_real(kind.dtype):
            raise Impossible(
                f"scale: mean needs floating-point numbers, not {kind.dtype}", CAST_HINT
            )
        to = tuple(old * repeats for old, repeats in zip(shape, times, strict=True))
        options = {"axis": axis, "times": times, "divisor": math.prod(times) if mean else 1}
        detail = f"{'×'.join(map(str, times))}{', mean' * mean}"
        return Done(ValueSpec(to, kind.dtype), options, detail)

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        import numpy as np

        value, options = values[0], operation.options
        if options["axis"] is not None:
            value = np.expand_dims(value, options["axis"])
        if options["divisor"] != 1:
            value = (value / options["divisor"]).astype(value.dtype)
        return np.tile(value, options["times"])
