"""Rules that compute new numbers: a resize by interpolation, and a cast."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from tfckpt.core.dtypes import can_cast, is_real
from tfckpt.policy.adaptations.operation import (
    Done,
    Impossible,
    Index,
    OfVariable,
    Operation,
    PlanContext,
    ValueSpec,
    axis_of,
    show_shape,
)
from tfckpt.policy.base.fields import Count, Listed, fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.core.inventory import Shape

_NEAREST = ("int8", "uint8", "int16", "uint16", "int32", "int64")


class Cast(OfVariable):
    """Cast to the dtype of the model's variable."""

    how: Literal["cast"]
    casting: Literal["safe", "same_kind", "any"] = "same_kind"
    """What a cast may lose, as in numpy.can_cast; any is NumPy's unsafe."""
    idempotent: ClassVar[bool] = True

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        (kind,) = kinds
        if not can_cast(kind.dtype, live.dtype, self.casting):
            casts = (c for c in ("same_kind", "any") if can_cast(kind.dtype, live.dtype, c))
            wider = next(casts, "")
            hint = f"casting: {wider} does" if wider else ""
            raise Impossible(
                f"casting: {self.casting} does not convert {kind.dtype} to {live.dtype}", hint
            )
        options = {"dtype": live.dtype, "casting": self.casting}
        return Done(ValueSpec(kind.shape, live.dtype), options, self.casting)

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        return operation.cast(values[0])


class Resize(OfVariable):
    """Resize by interpolation, as in tf.image.resize."""

    how: Literal["resize"]
    method: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    """Interpolation method."""
    axes: Annotated[tuple[int, ...], Field(min_length=1, max_length=2), Listed] | None = None
    """One or two axes to resize; by default, the two whose sizes differ."""
    grid: Annotated[tuple[Count, ...], Field(min_length=1, max_length=2), Listed] | None = None
    """Rows and columns, or just the number, of the positions along the second-last axis."""
    to_grid: Annotated[tuple[Count, ...], Field(min_length=1, max_length=2), Listed] | None = None
    """The grid of the variable; by default, a line, or a square if `grid` is a square."""
    prefix: Index = 0
    """Number of positions before the grid to keep unchanged, e.g. 1 for a class token."""

    @field_validator("grid")
    @classmethod
    def _axes_or_grid(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("axes") is not None:
            raise fault(
                "use `axes` or `grid`, not both: `grid` describes positions along one axis",
                other="axes",
            )
        return value

    @field_validator("to_grid", "prefix")
    @classmethod
    def _of_a_grid(cls, value: Any, info: ValidationInfo) -> Any:
        grid = info.data.get("grid")
        if value and grid is None:
            raise fault(f"`{info.field_name}` needs `grid`")
        if isinstance(value, tuple) and len(value) != len(grid or value):
            raise fault("`to_grid` and `grid` must have the same number of sizes", other="grid")
        return value

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        (kind,) = kinds
        if not is_real(kind.dtype) and (self.method != "nearest" or kind.dtype not in _NEAREST):
            raise Impossible(f"method: {self.method} does not support {kind.dtype}")
        if len(kind.shape) != len(live.shape):
            raise Impossible(
                f"{show_shape(kind.shape)} and {show_shape(live.shape)} differ in rank"
            )
        if 0 in kind.shape or 0 in live.shape:
            raise Impossible("cannot resize a value without elements")
        if self.grid is not None:
            return self._plan_grid(self.grid, kind, live)
        axes = [i for i, size in enumerate(kind.shape) if size != live.shape[i]]
        if self.axes is not None:
            axes = [axis_of(axis, kind.shape) for axis in self.axes]
            if len(set(axes)) < len(axes):
                raise Impossible(f"axes: {list(self.axes)} repeats an axis")
        elif len(axes) != 2:
            raise Impossible(
                f"{show_shape(kind.shape)} and {show_shape(live.shape)} differ in {len(axes)} "
                "axes; an image has two",
                "set `axes` to the axes to resize, or `grid` to the grid of positions",
            )
        sizes = tuple(live.shape[axis] for axis in axes)
        shape = list(kind.shape)
        for axis, size in zip(axes, sizes, strict=True):
            shape[axis] = size
        options = {"method": self.method, "axes": tuple(axes), "sizes": sizes}
        return Done(ValueSpec(tuple(shape), kind.dtype), options, f"{self.method}, axes {axes}")

    def _plan_grid(self, grid: Shape, kind: ValueSpec, live: ValueSpec) -> Done:
        if len(kind.shape) < 2:
            raise Impossible(
                f"{show_shape(kind.shape)} has no axis of positions before its last axis"
            )
        old, new = kind.shape[-2], live.shape[-2] - self.prefix
        if self.prefix + math.prod(grid) != old:
            raise Impossible(
                f"a grid of {_show_grid(grid)} and a prefix of {self.prefix} make "
                f"{self.prefix + math.prod(grid)} positions, but the checkpoint has {old}"
            )
        to = self.to_grid
        if to is None:
            side = math.isqrt(max(new, 0))
            to = (new,) if len(grid) == 1 else (side, side) if len(set(grid)) == 1 else ()
        if new < 1 or math.prod(to) != new or not to:
            raise Impossible(
                f"the model has {live.shape[-2]} positions, {self.prefix} of them before the grid: "
                + (
                    f"not a grid of {_show_grid(to)}"
                    if self.to_grid
                    else "its grid cannot be inferred"
                ),
                "set `to_grid` to the grid of the model",
            )
        shape = (*kind.shape[:-2], self.prefix + new, kind.shape[-1])
        options = {"method": self.method, "grid": grid, "to_grid": to, "prefix": self.prefix}
        kept = f", {self.prefix} before it kept" if self.prefix else ""
        detail = f"{self.method}, grid {_show_grid(grid)} → {_show_grid(to)}{kept}"
        return Done(ValueSpec(shape, kind.dtype), options, detail)

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        import numpy as np

        (value,), options = values, operation.options
        if "grid" not in options:
            return _interpolated(value, options["axes"], options["sizes"], operation)
        kept, grid = options["prefix"], options["grid"]
        *above, _, last = value.shape
        positions = value[..., kept:, :].reshape((*above, *grid, last))
        axes = tuple(range(len(above), len(above) + len(grid)))
        result = _interpolated(positions, axes, options["to_grid"], operation)
        return np.concatenate([value[..., :kept, :], result.reshape((*above, -1, last))], axis=-2)


def _interpolated(
    value: Any, axes: Sequence[int], sizes: Sequence[int], operation: Operation
) -> Any:
    """Resize one or two axes as rows and columns of one image, with all other axes as channels."""
    import numpy as np

    front = tuple(range(len(axes)))
    moved = np.moveaxis(value, axes, front)
    rest = moved.shape[len(axes) :]
    rows, columns = (*moved.shape[: len(axes)], 1)[:2]
    image = np.ascontiguousarray(moved).reshape((1, rows, columns, -1))
    result = operation.image_resized(image, (*sizes, 1)[:2])
    return np.moveaxis(result.reshape((*sizes, *rest)), front, axes).astype(value.dtype)


def _show_grid(grid: Sequence[int]) -> str:
    return "×".join(map(str, grid))
