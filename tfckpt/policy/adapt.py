"""The kinds of ``adapt`` rules that arrange, compute, split or join; and what all have in common.

A rule is checked by itself when a config is read, against shapes and dtypes when a restore is
planned (:meth:`Adaptation.plan`), and applied to values in a restore (:meth:`Adaptation.apply`),
with the options that the plan resolved. Keys are named as in NumPy and TensorFlow where these have
a name.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import Field, field_validator

from tfckpt.core.dtypes import can_cast, is_real
from tfckpt.policy.fields import (
    Count,
    GoesWith,
    Listed,
    Model,
    Name,
    Once,
    SelectorText,
    Text,
    beside,
    fault,
    lacks,
    one_or_listed,
    unpaired,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from tfckpt.core.inventory import Shape

Index = Annotated[int, Field(ge=0)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1), Listed]
Indices = Annotated[tuple[Index, ...], Field(min_length=1), Listed]
CAST_HINT = "add a `how: cast` rule before this one"
SIZES_HINT = "set `sizes` to the sizes of the parts"
_NEAREST = ("int8", "uint8", "int16", "uint16", "int32", "int64")


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


@dataclasses.dataclass(frozen=True)
class PlanContext:
    """What a plan needs to know besides policy and inventories.

    Attributes:
        vocabularies: path of each vocabulary file in the policy → its words.
        functions: names of registered adaptation functions.
        initializers: names in the policy that are Keras initializers.
    """

    vocabularies: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    functions: frozenset[str] = frozenset()
    initializers: frozenset[str] = frozenset()


class Done(NamedTuple):
    """The outcome of a rule; ``detail`` is for the report, ``rows`` are those of a vocabulary."""

    kind: ValueSpec
    options: Mapping[str, Any]
    detail: str = ""
    rows: tuple[int, ...] = ()


class Operation(Protocol):
    """A planned rule for one value, as the plan resolved it, and what it needs of the program."""

    options: Mapping[str, Any]
    rows: tuple[int, ...]
    to: ValueSpec
    dtype: np.dtype

    def cast(self, value: Any) -> Any: ...
    def filled(self) -> Any: ...
    def image_resized(self, image: Any, sizes: Sequence[int]) -> Any: ...
    def called(self, values: Sequence[Any]) -> Any: ...


class Adaptation(Model):
    """Base of all kinds of rules."""

    # Whether it does nothing where dtype and shape are right already, and is not reported then.
    idempotent: ClassVar[bool] = False

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Checkpoint names that the rule maps to other model names, as in a rename."""
        names = one_or_listed(getattr(self, "model", ()))
        return ((each, names) for each in one_or_listed(getattr(self, "checkpoint", None) or ()))

    @property
    def joins(self) -> bool:
        """Whether it makes one value of several."""
        return isinstance(getattr(self, "checkpoint", None), tuple)

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        """What the rule makes of values, of one unless it joins, on the way to ``live``.

        Raises:
            Impossible: it cannot be applied.
        """
        raise NotImplementedError

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        """The array that a planned rule makes of arrays; of one, unless it joins."""
        raise NotImplementedError


class OfVariable(Adaptation):
    """Base of the rules that change each value that a selector names."""

    model: SelectorText
    """Selector over model names."""

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        (kind,) = kinds
        return self._plan(kind, live, known)

    def _plan(self, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
        raise NotImplementedError


def show_shape(shape: Iterable[int]) -> str:
    """A shape as reports show it.

    >>> show_shape((4,)), show_shape((2, 3))
    ('(4)', '(2, 3)')
    """
    return f"({', '.join(map(str, shape))})"


def axis_of(axis: int, shape: Sequence[int]) -> int:
    """A possibly negative axis as a non-negative one."""
    require(-len(shape) <= axis < len(shape), f"{show_shape(shape)} has no axis {axis}")
    return axis % len(shape)


def with_size(shape: Shape, axis: int, size: int) -> Shape:
    """The shape with another size along an axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def box(start: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    """The index of a part of a value."""
    return tuple(slice(first, first + many) for first, many in zip(start, size, strict=True))


def show_box(shape: Sequence[int], start: Sequence[int], size: Sequence[int]) -> str:
    """A part of a value in Python notation.

    >>> show_box((4, 12), (0, 4), (4, 4))
    '[:, 4:8]'
    """
    parts = [
        ":" if (s, n) == (0, m) else f"{s}:{s + n}"
        for m, s, n in zip(shape, start, size, strict=True)
    ]
    return f"[{', '.join(parts)}]"


class Transpose(OfVariable):
    """Permute the axes."""

    how: Literal["transpose"]
    axes: Annotated[tuple[int, ...], Field(min_length=1), Listed] | None = None
    """Permutation of the axes, as in numpy.transpose; by default, their reverse order."""

    def _plan(self, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
        rank = len(kind.shape)
        axes = tuple(reversed(range(rank)))
        if self.axes is not None:
            axes = tuple(axis_of(axis, kind.shape) for axis in self.axes)
            wrong = f"axes: {list(self.axes)} is not a permutation of the {rank} axes"
            require(sorted(axes) == list(range(rank)), wrong)
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

    def _plan(self, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
        shape = live.shape if self.shape is None else self.shape
        given = math.prod(size for size in shape if size != -1)
        size = math.prod(kind.shape)
        if -1 in shape and given:
            shape = tuple(size // given if each == -1 else each for each in shape)
        require(
            -1 not in shape and math.prod(shape) == size,
            f"cannot reshape {show_shape(kind.shape)}, {size} numbers, to {show_shape(shape)}",
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

    def _plan(self, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
        size = live.shape if self.size is None else self.size
        start = (0,) * len(kind.shape) if self.start is None else self.start
        whole = show_shape(kind.shape)
        require(
            len(size) == len(start) == len(kind.shape),
            f"{whole} has {len(kind.shape)} axes, but the slice's size has {len(size)} and its "
            f"start {len(start)}",
        )
        require(
            all(s + n <= m for s, n, m in zip(start, size, kind.shape, strict=True)),
            f"a slice of {show_shape(size)} from {show_shape(start)} is not within {whole}",
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

    def _plan(self, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
        shape, axis = kind.shape, self.axis
        if axis is not None:
            axis = axis_of(axis, (*shape, 1))
            shape = (*shape[:axis], 1, *shape[axis:])
        times = self.times
        if times is None:
            both = f"{show_shape(shape)} to {show_shape(live.shape)}"
            hint = "set `axis` to the index of the new axis" if axis is None else ""
            require(len(shape) == len(live.shape), f"cannot tile {both}", hint)
            pairs = list(zip(shape, live.shape, strict=True))
            fits = all(old and new % old == 0 for old, new in pairs)
            require(fits, f"cannot tile {both}, which is not a multiple")
            times = tuple(new // old for old, new in pairs)
        each = f"times: {list(times)} must have one number for each axis of {show_shape(shape)}"
        require(len(times) == len(shape), each)
        mean = self.scale == "mean"
        real = not mean or is_real(kind.dtype)
        require(real, f"scale: mean needs floating-point numbers, not {kind.dtype}", CAST_HINT)
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


class Cast(OfVariable):
    """Cast to the dtype of the model's variable."""

    how: Literal["cast"]
    casting: Literal["safe", "same_kind", "any"] = "same_kind"
    """What a cast may lose, as in numpy.can_cast; any is NumPy's unsafe."""
    idempotent: ClassVar[bool] = True

    def _plan(self, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
        casts = [c for c in ("safe", "same_kind", "any") if can_cast(kind.dtype, live.dtype, c)]
        require(
            self.casting in casts,
            f"casting: {self.casting} does not convert {kind.dtype} to {live.dtype}",
            f"casting: {casts[0]} does" if casts else "",
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

    goes_with: ClassVar = (
        GoesWith(
            "grid",
            "axes",
            beside,
            "use `axes` or `grid`, not both: `grid` describes positions along one axis",
        ),
        GoesWith("to_grid prefix", "grid", lacks, "`{key}` needs `grid`"),
        GoesWith(
            "to_grid",
            "grid",
            lambda to_grid, grid: to_grid and len(to_grid) != len(grid),
            "`to_grid` and `grid` must have the same number of sizes",
        ),
    )

    def _plan(self, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
        both = f"{show_shape(kind.shape)} and {show_shape(live.shape)}"
        possible = is_real(kind.dtype) or (self.method == "nearest" and kind.dtype in _NEAREST)
        require(possible, f"method: {self.method} does not support {kind.dtype}")
        require(len(kind.shape) == len(live.shape), f"{both} differ in rank")
        require(0 not in kind.shape + live.shape, "cannot resize a value without elements")
        if self.grid is not None:
            return self._plan_grid(self.grid, kind, live)
        axes = [i for i, size in enumerate(kind.shape) if size != live.shape[i]]
        if self.axes is not None:
            axes = [axis_of(axis, kind.shape) for axis in self.axes]
            require(len(set(axes)) == len(axes), f"axes: {list(self.axes)} repeats an axis")
        hint = "set `axes` to the axes to resize, or `grid` to the grid of positions"
        wrong = f"{both} differ in {len(axes)} axes; an image has two"
        require(self.axes is not None or len(axes) == 2, wrong, hint)
        sizes, shape = tuple(live.shape[axis] for axis in axes), kind.shape
        for axis in axes:
            shape = with_size(shape, axis, live.shape[axis])
        options = {"method": self.method, "axes": tuple(axes), "sizes": sizes}
        return Done(ValueSpec(shape, kind.dtype), options, f"{self.method}, axes {axes}")

    def _plan_grid(self, grid: Shape, kind: ValueSpec, live: ValueSpec) -> Done:
        whole = show_shape(kind.shape)
        require(len(kind.shape) > 1, f"{whole} has no axis of positions before its last axis")
        new, made = live.shape[-2] - self.prefix, self.prefix + math.prod(grid)
        require(
            made == kind.shape[-2],
            f"a grid of {_show_grid(grid)} and a prefix of {self.prefix} make {made} positions, "
            f"but the checkpoint has {kind.shape[-2]}",
        )
        to = self.to_grid
        if to is None:
            side = math.isqrt(max(new, 0))
            to = (new,) if len(grid) == 1 else (side, side) if len(set(grid)) == 1 else ()
        wrong = f"not a grid of {_show_grid(to)}" if self.to_grid else "its grid cannot be inferred"
        require(
            new > 0 and to and math.prod(to) == new,
            f"the model has {live.shape[-2]} positions, {self.prefix} of them before the grid: "
            f"{wrong}",
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


class Split(Adaptation):
    """Split one checkpoint value along an axis into several variables."""

    how: Literal["split"]
    checkpoint: SelectorText
    """Selector over checkpoint names, as in a rename."""
    model: Annotated[tuple[Name, ...], Field(min_length=2), Once, Listed]
    """Model names of the parts, in order."""
    axis: int
    """Axis to split along."""
    sizes: Counts | None = None
    """Size of each part along the axis; by default, the size of each variable."""

    goes_with: ClassVar = (
        GoesWith("model", "checkpoint", unpaired),
        GoesWith(
            "sizes",
            "model",
            lambda sizes, model: sizes is not None and len(sizes) != len(model),
            "`sizes` must have one size for each name in `model`",
        ),
    )

    def plan_part(self, kind: ValueSpec, part: int, sizes: Sequence[int]) -> Done:
        """As :meth:`plan`, for one of the parts, whose sizes along the axis are known."""
        axis = axis_of(self.axis, kind.shape)
        parts, whole = " + ".join(map(str, sizes)), kind.shape[axis]
        wrong = f"sizes {parts} do not add up to {whole}, the size of axis {axis}"
        require(sum(sizes) == whole, wrong, SIZES_HINT)
        start = tuple(sum(sizes[:part]) if i == axis else 0 for i in range(len(kind.shape)))
        shape = with_size(kind.shape, axis, sizes[part])
        options = {"start": start, "size": shape}
        return Done(ValueSpec(shape, kind.dtype), options, show_box(kind.shape, start, shape))

    apply = staticmethod(Slice.apply)


class Concat(Adaptation):
    """Concatenate several checkpoint values along an axis into one variable."""

    how: Literal["concat"]
    checkpoint: Annotated[tuple[SelectorText, ...], Field(min_length=2), Once, Listed]
    """Selectors over checkpoint names, in order, as in a rename."""
    model: Name
    """Model name of the result."""
    axis: int
    """Axis to concatenate along."""

    goes_with: ClassVar = (GoesWith("model", "checkpoint", unpaired),)

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        first = kinds[0]
        axis = axis_of(self.axis, first.shape)
        for kind in kinds:
            same = len(kind.shape) == len(first.shape)
            both = f"{show_shape(first.shape)} and {show_shape(kind.shape)}"
            require(
                same and with_size(kind.shape, axis, 1) == with_size(first.shape, axis, 1),
                f"cannot concatenate {both} along axis {axis}",
            )
            both = f"{first.dtype} and {kind.dtype}"
            require(kind.dtype == first.dtype, f"cannot concatenate {both}", CAST_HINT)
        shape = with_size(first.shape, axis, sum(kind.shape[axis] for kind in kinds))
        return Done(ValueSpec(shape, first.dtype), {"axis": axis}, f"axis {axis}")

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        import numpy as np

        return np.concatenate(values, axis=operation.options["axis"])


class Function(Adaptation):
    """Call a function that the program registered."""

    how: Literal["function"]
    name: Text
    """Name under which tfckpt.register_adaptation registered the function."""
    checkpoint: Annotated[tuple[SelectorText, ...], Field(min_length=1), Once, Listed] | None = None
    """Checkpoint names of its arguments, in order; by default, the one value that matched."""
    model: Name
    """Selector over model names; with `checkpoint`, the model name of the result."""

    goes_with: ClassVar = (GoesWith("model", "checkpoint", unpaired),)

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        require(
            self.name in known.functions,
            f"no function is registered as {self.name!r}",
            "import the module that registers it with tfckpt.register_adaptation; registered: "
            f"{', '.join(sorted(known.functions)) or 'none'}",
        )
        return Done(live, {"name": self.name}, self.name)

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        return operation.called(values)
