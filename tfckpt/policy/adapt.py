"""The kinds of ``adapt`` rules: the keys of each, and what it makes of arrays.

A rule is checked by itself when a config is read. A plan then applies it to blanks, zeros that take
no memory, which shows the shape and the dtype of the result or why there is none; a restore applies
it to values. Keys are named as in NumPy and TensorFlow where these have a name.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator

from tfckpt.core.dtypes import can_cast, cast, dtype_name, holds, is_real, numpy_dtype
from tfckpt.core.similar import did_you_mean, near_words, question
from tfckpt.policy.blanks import (
    Impossible,
    axis_of,
    blank,
    box,
    once,
    require,
    show_shape,
    with_size,
)
from tfckpt.policy.fields import (
    Count,
    Expanded,
    GoesWith,
    Listed,
    Model,
    Name,
    Once,
    PathText,
    SelectorText,
    Text,
    beside,
    fault,
    lacks,
    one_or_listed,
    unpaired,
)
from tfckpt.policy.messages import TAG, show_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Shape

Made = tuple[np.ndarray, str]
Index = Annotated[int, Field(ge=0)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1), Listed]
Grid = Annotated[tuple[Count, ...], Field(min_length=1, max_length=2), Listed]
Indices = Annotated[tuple[Index, ...], Field(min_length=1), Listed]
_BOTH = "use `axes` or `grid`, not both: `grid` describes positions along one axis"
_CAST_HINT = "add a `how: cast` rule before this one"
SIZES_HINT = "set `sizes` to the sizes of the parts"
_IMAGES = ("float16", "bfloat16", "float32", "float64")
_NEAREST = (*_IMAGES, "int8", "uint8", "int16", "uint16", "int32", "int64")
_INITIALIZERS = (
    "zeros", "ones", "glorot_uniform", "glorot_normal", "he_normal", "he_uniform", "lecun_normal",
    "lecun_uniform", "random_normal", "random_uniform", "truncated_normal", "orthogonal",
)  # fmt: skip


def _differ(one: Any, other: Any) -> bool:
    return bool(one) and len(one) != len(other)


@dataclasses.dataclass(frozen=True)
class PlanContext:
    """What a plan needs to know besides policy and inventories.

    Attributes:
        vocabularies: path of each vocabulary file in the policy → its words.
        functions: names of registered adaptation functions.
        initializers: names in the policy that are Keras initializers.
    """

    vocabularies: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    functions: Sequence[str] = ()
    initializers: Sequence[str] = ()


@dataclasses.dataclass
class AdaptTarget:
    """The variable that a value is for, and what a rule asks of the program; in a plan, blanks."""

    shape: Shape
    dtype: str
    known: PlanContext

    def filled(self, fill: Any, shape: Shape, at: Any, part: np.ndarray) -> np.ndarray:
        """An array with a part at an index: of numbers, or by the name of what fills the rest."""
        return blank(shape, dtype_name(part.dtype))

    def resized(self, image: np.ndarray, sizes: Sequence[int], method: str) -> np.ndarray:
        """As tf.image.resize, for one image."""
        return blank((1, *sizes, image.shape[-1]), dtype_name(image.dtype))

    def called(self, name: str, *arrays: np.ndarray) -> np.ndarray:
        """What a registered function returns, which is by contract what the variable needs."""
        return blank(self.shape, self.dtype)


class Adaptation(Model):
    """Base of all kinds of rules."""

    # Whether it does nothing where dtype and shape are right already, and is not reported then.
    idempotent: ClassVar[bool] = False

    # What the rule makes of an array, or of several that it joins; and a detail for the report.
    # Raises Impossible if it cannot be applied.
    make: ClassVar[Callable[..., Made]]

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Checkpoint names that the rule maps to other model names, as in a rename."""
        names = one_or_listed(getattr(self, "model", ()))
        return ((each, names) for each in one_or_listed(getattr(self, "checkpoint", None) or ()))

    @property
    def joins(self) -> bool:
        """Whether it makes one value of several."""
        return isinstance(getattr(self, "checkpoint", None), tuple)


class OfVariable(Adaptation):
    """Base of the rules that change each value that a selector names."""

    model: SelectorText
    """Selector over model names."""


class Transpose(OfVariable):
    """Permute the axes."""

    how: Literal["transpose"]
    axes: Annotated[tuple[int, ...], Field(min_length=1), Listed] | None = None
    """Permutation of the axes, as in numpy.transpose; by default, their reverse order."""

    def make(self, into: AdaptTarget, array: np.ndarray) -> Made:
        if self.axes is None:
            return array.transpose(), ""
        axes = [axis_of(axis, array.shape) for axis in self.axes]
        wrong = f"axes: {list(self.axes)} is not a permutation of the {array.ndim} axes"
        require(sorted(axes) == list(range(array.ndim)), wrong)
        return array.transpose(axes), str(axes)


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

    def make(self, into: AdaptTarget, array: np.ndarray) -> Made:
        shape = into.shape if self.shape is None else self.shape
        try:
            return array.reshape(shape), ""
        except ValueError:
            whole = f"{show_shape(array.shape)}, {array.size} numbers"
            raise Impossible(f"cannot reshape {whole}, to {show_shape(shape)}") from None


class Slice(OfVariable):
    """Take a part of the value."""

    how: Literal["slice"]
    start: Indices | None = None
    """Start index of the part on each axis; by default, 0."""
    size: Counts | None = None
    """Shape of the part; by default, the shape of the variable."""
    idempotent: ClassVar[bool] = True

    def make(self, into: AdaptTarget, array: np.ndarray) -> Made:
        size = into.shape if self.size is None else self.size
        start, whole = self.start or (0,) * array.ndim, show_shape(array.shape)
        require(
            len(size) == len(start) == array.ndim,
            f"{whole} has {array.ndim} axes, but the slice's size has {len(size)} and its "
            f"start {len(start)}",
        )
        axes = list(zip(start, size, array.shape, strict=True))
        wrong = f"a slice of {show_shape(size)} from {show_shape(start)} is not within {whole}"
        require(all(s + n <= m for s, n, m in axes), wrong)
        shown = (":" if (s, n) == (0, m) else f"{s}:{s + n}" for s, n, m in axes)
        return array[box(start, size)], f"[{', '.join(shown)}]"


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

    def make(self, into: AdaptTarget, array: np.ndarray) -> Made:
        if self.axis is not None:
            array = np.expand_dims(array, axis_of(self.axis, (*array.shape, 1)))
        shape, times = show_shape(array.shape), self.times
        if times is None:
            both = f"cannot tile {shape} to {show_shape(into.shape)}"
            hint = "set `axis` to the index of the new axis" if self.axis is None else ""
            require(array.ndim == len(into.shape), both, hint)
            pairs = list(zip(array.shape, into.shape, strict=True))
            fits = all(old and new % old == 0 for old, new in pairs)
            require(fits, f"{both}, which is not a multiple")
            times = tuple(new // old for old, new in pairs)
        each = f"times: {list(times)} must have one number for each axis of {shape}"
        require(len(times) == array.ndim, each)
        detail = "×".join(map(str, times))
        if self.scale == "mean":
            dtype, many, detail = array.dtype, math.prod(times), f"{detail}, mean"
            _require_real("scale", array)
            array = once(lambda value: (value / many).astype(dtype), array)
        axes = [axis for axis, many in enumerate(times) if many != 1]
        return once(lambda value: np.tile(value, times), array, axes=axes), detail


class Cast(OfVariable):
    """Cast to the dtype of the model's variable."""

    how: Literal["cast"]
    casting: Literal["safe", "same_kind", "any"] = "same_kind"
    """What a cast may lose, as in numpy.can_cast; any is NumPy's unsafe."""
    idempotent: ClassVar[bool] = True

    def make(self, into: AdaptTarget, array: np.ndarray) -> Made:
        old, new = dtype_name(array.dtype), into.dtype
        casts = [each for each in ("safe", "same_kind", "any") if can_cast(old, new, each)]
        require(
            self.casting in casts,
            f"casting: {self.casting} does not convert {old} to {new}",
            f"casting: {casts[0]} does" if casts else "",
        )
        to = functools.partial(cast, dtype=numpy_dtype(new), lossy=self.casting == "any")
        return once(to, array), self.casting


class Resize(OfVariable):
    """Resize by interpolation, as in tf.image.resize."""

    how: Literal["resize"]
    method: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    """Interpolation method."""
    axes: Annotated[tuple[int, ...], Field(min_length=1, max_length=2), Listed] | None = None
    """One or two axes to resize; by default, the two whose sizes differ."""
    grid: Grid | None = None
    """Rows and columns, or just the number, of the positions along the second-last axis."""
    to_grid: Grid | None = None
    """The grid of the variable; by default, a line, or a square if `grid` is a square."""
    prefix: Index = 0
    """Number of positions before the grid to keep unchanged, e.g. 1 for a class token."""

    goes_with: ClassVar[tuple[GoesWith, ...]] = (
        GoesWith("grid", "axes", beside, _BOTH),
        GoesWith("to_grid prefix", "grid", lacks, "`{key}` needs `grid`"),
        GoesWith(
            "to_grid", "grid", _differ, "`to_grid` and `grid` must have the same number of sizes"
        ),
    )

    def make(self, into: AdaptTarget, array: np.ndarray) -> Made:
        both = f"{show_shape(array.shape)} and {show_shape(into.shape)}"
        dtype = dtype_name(array.dtype)
        possible = dtype in (_NEAREST if self.method == "nearest" else _IMAGES)
        require(possible, f"method: {self.method} does not support {dtype}")
        require(array.ndim == len(into.shape), f"{both} differ in rank")
        require(0 not in array.shape + into.shape, "cannot resize a value without elements")
        if self.grid is not None:
            return self._of_positions(into, array, self.grid)
        if self.axes is None:
            axes = [i for i, size in enumerate(array.shape) if size != into.shape[i]]
            hint = "set `axes` to the axes to resize, or `grid` to the grid of positions"
            require(len(axes) == 2, f"{both} differ in {len(axes)} axes; an image has two", hint)
        else:
            axes = [axis_of(axis, array.shape) for axis in self.axes]
            require(len(set(axes)) == len(axes), f"axes: {list(self.axes)} repeats an axis")
        made = self._resized(into, array, axes, [into.shape[axis] for axis in axes])
        return made, f"{self.method}, axes {axes}"

    def _of_positions(self, into: AdaptTarget, array: np.ndarray, grid: Shape) -> Made:
        wrong = f"{show_shape(array.shape)} has no axis of positions before its last axis"
        require(array.ndim > 1, wrong)
        *above, old, last = array.shape
        kept, shown = self.prefix, "×".join(map(str, grid))
        new, positions = into.shape[-2] - kept, kept + math.prod(grid)
        require(
            positions == old,
            f"a grid of {shown} and a prefix of {kept} make {positions} positions, but the "
            f"checkpoint has {old}",
        )
        to: Shape = self.to_grid or ()
        if not to and len(set(grid)) == 1:
            to = (new,) if len(grid) == 1 else (math.isqrt(max(new, 0)),) * 2
        to_shown = "×".join(map(str, to))
        wrong = f"not a grid of {to_shown}" if self.to_grid else "its grid cannot be inferred"
        require(
            new > 0 and to and math.prod(to) == new,
            f"the model has {into.shape[-2]} positions, {kept} of them before the grid: {wrong}",
            "set `to_grid` to the grid of the model",
        )
        image = array[..., kept:, :].reshape((*above, *grid, last))
        axes = range(len(above), len(above) + len(grid))
        made = self._resized(into, image, axes, to).reshape((*above, new, last))
        made = _concatenated(array.ndim - 2, array[..., :kept, :], made)
        before = f", {kept} before it kept" if kept else ""
        return made, f"{self.method}, grid {shown} → {to_shown}{before}"

    def _resized(
        self, into: AdaptTarget, array: np.ndarray, axes: Sequence[int], sizes: Sequence[int]
    ) -> np.ndarray:
        """Resize one or two axes as rows and columns of one image, all others as channels."""
        front = range(len(axes))
        moved = np.moveaxis(array, axes, front)
        rows, columns = (*moved.shape[: len(axes)], 1)[:2]
        made = into.resized(moved.reshape((1, rows, columns, -1)), (*sizes, 1)[:2], self.method)
        made = np.moveaxis(made.reshape((*sizes, *moved.shape[len(axes) :])), front, axes)
        return once(lambda value: value.astype(array.dtype), made)


def _fill(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
        raise fault(
            "expected a number, initialize, or the name of an initializer, "
            f"found {show_value(value)}"
        )
    return value


class Pad(OfVariable):
    """Pad the value to the shape of the variable."""

    how: Literal["pad"]
    value: Annotated[float | Name, BeforeValidator(_fill), Expanded]
    """Padding: a number, initialize (what the variable holds now), or a Keras initializer."""
    before: Indices | None = None
    """Padding before the value on each axis; by default, all padding comes after it."""
    idempotent: ClassVar[bool] = True

    def make(self, into: AdaptTarget, array: np.ndarray) -> Made:
        shape, old = into.shape, array.shape
        before, part = self.before or (0,) * len(shape), show_shape(old)
        require(
            len(shape) == len(before) == array.ndim,
            f"{part} has {array.ndim} axes, the model's variable {len(shape)}, `before` "
            f"{len(before)}",
        )
        within = all(b + n <= m for b, n, m in zip(before, old, shape, strict=True))
        require(within, f"{part} does not fit into {show_shape(shape)}")
        made = _filled(into, self.value, shape, box(before, old), array)
        shown = f"{self.value:g}" if isinstance(self.value, float) else self.value
        offset = f", at {show_shape(before)}" * any(before)
        return made, f"with {shown}{offset}"


class Vocabulary(OfVariable):
    """Reorder rows by the words that they belong to."""

    how: Literal["vocabulary"]
    old: PathText
    """File with the words of the checkpoint: UTF-8, one word per line."""
    new: PathText
    """File with the words of the model: UTF-8, one word per line."""
    missing: Text = "initialize"
    """Values for rows of new words: initialize, zeros, mean, or a Keras initializer."""
    axis: int = 0
    """Axis of the rows."""
    before: Index = 0
    """Number of rows before the first word, e.g. for padding; the same in both."""
    oov: Index = 0
    """Number of rows after the last word, for out-of-vocabulary words; the same in both."""

    def make(self, into: AdaptTarget, array: np.ndarray) -> Made:
        known = into.known.vocabularies
        unread = {self.old, self.new} - known.keys()
        require(not unread, f"vocabulary file {min(unread, default='')} was not read")
        old, new = known[self.old], known[self.new]
        axis = axis_of(self.axis, array.shape)
        self._check_size(axis, "the checkpoint", array.shape[axis], self.old, len(old))
        if len(into.shape) == array.ndim:
            self._check_size(axis, "the model's variable", into.shape[axis], self.new, len(new))
        row_of = {word: self.before + row for row, word in enumerate(old)}
        of_words = [row_of.get(word, -1) for word in new]
        any_known = not old or not new or max(of_words) >= 0
        require(any_known, f"no word of {self.new} is in {self.old}")
        end, lost = self.before + len(old), of_words.count(-1)
        rows = np.array([*range(self.before), *of_words, *range(end, end + self.oov)], np.int64)
        detail = f"{self.old} → {self.new}, {len(new) - lost} of {len(new)} words known"
        at = (*(slice(None),) * axis, rows >= 0)
        taken = rows[rows >= 0]
        part = once(lambda value: value.take(taken, axis), array, axes=[axis])
        if not lost:
            return part, detail
        shape, fill = with_size(array.shape, axis, len(rows)), self.missing
        if fill == "mean":
            _require_real("missing", array)
            first = with_size((0,) * array.ndim, axis, self.before)
            words = array[box(first, with_size(array.shape, axis, len(old)))]
            mean = functools.partial(np.mean, axis=axis, dtype=np.float64, keepdims=True)
            middle = once(lambda value: mean(value).astype(array.dtype), words, axes=[axis])
            made = into.filled(middle, shape, at, part)
        else:
            made = _filled(into, 0.0 if fill == "zeros" else fill, shape, at, part)
        return made, f"{detail}, {fill} for {lost}"

    def _check_size(self, axis: int, side: str, size: int, file: str, words: int) -> None:
        others = self.before + self.oov
        beside_words = f" and {others} other row{'s' * (others != 1)}" if others else ""
        require(
            size == words + others,
            f"{file} has {words} words{beside_words}, but axis {axis} of {side} has size {size}",
            "set `before` and `oov` to the numbers of rows that belong to no word",
        )


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

    goes_with: ClassVar[tuple[GoesWith, ...]] = (
        GoesWith("model", "checkpoint", unpaired),
        GoesWith("sizes", "model", _differ, "`sizes` must have one size for each name in `model`"),
    )

    def part(self, number: int, shape: Shape, sizes: Sequence[int]) -> Slice:
        """The slice that is one of the parts, whose sizes along the axis are known."""
        axis = axis_of(self.axis, shape)
        parts = " + ".join(map(str, sizes))
        wrong = f"sizes {parts} do not add up to {shape[axis]}, the size of axis {axis}"
        require(sum(sizes) == shape[axis], wrong, SIZES_HINT)
        start = with_size((0,) * len(shape), axis, sum(sizes[:number]))
        return Slice.model_construct(start=start, size=with_size(shape, axis, sizes[number]))


class Concat(Adaptation):
    """Concatenate several checkpoint values along an axis into one variable."""

    how: Literal["concat"]
    checkpoint: Annotated[tuple[SelectorText, ...], Field(min_length=2), Once, Listed]
    """Selectors over checkpoint names, in order, as in a rename."""
    model: Name
    """Model name of the result."""
    axis: int
    """Axis to concatenate along."""

    goes_with: ClassVar[tuple[GoesWith, ...]] = (GoesWith("model", "checkpoint", unpaired),)

    def make(self, into: AdaptTarget, *arrays: np.ndarray) -> Made:
        first = arrays[0]
        axis = axis_of(self.axis, first.shape)
        for other in arrays:
            require(
                other.ndim == first.ndim
                and with_size(other.shape, axis, 1) == with_size(first.shape, axis, 1),
                f"cannot concatenate {show_shape(first.shape)} and {show_shape(other.shape)} "
                f"along axis {axis}",
            )
            both = f"{dtype_name(first.dtype)} and {dtype_name(other.dtype)}"
            require(other.dtype == first.dtype, f"cannot concatenate {both}", _CAST_HINT)
        return _concatenated(axis, *arrays), f"axis {axis}"


class Function(Adaptation):
    """Call a function that the program registered."""

    how: Literal["function"]
    name: Text
    """Name under which tfckpt.register_adaptation registered the function."""
    checkpoint: Annotated[tuple[SelectorText, ...], Field(min_length=1), Once, Listed] | None = None
    """Checkpoint names of its arguments, in order; by default, the one value that matched."""
    model: Name
    """Selector over model names; with `checkpoint`, the model name of the result."""

    goes_with: ClassVar[tuple[GoesWith, ...]] = (GoesWith("model", "checkpoint", unpaired),)

    def make(self, into: AdaptTarget, *arrays: np.ndarray) -> Made:
        require(
            self.name in into.known.functions,
            f"no function is registered as {self.name!r}",
            "import the module that registers it with tfckpt.register_adaptation; registered: "
            f"{', '.join(sorted(into.known.functions)) or 'none'}",
        )
        return into.called(self.name, *arrays), self.name


def _concatenated(axis: int, *arrays: np.ndarray) -> np.ndarray:
    return once(lambda *parts: np.concatenate(parts, axis), *arrays, axes=[axis])


def _require_real(key: str, array: np.ndarray) -> None:
    dtype = dtype_name(array.dtype)
    wrong = f"{key}: mean needs floating-point numbers, not {dtype}"
    require(is_real(dtype), wrong, _CAST_HINT)


def _filled(
    into: AdaptTarget, fill: float | str, shape: Shape, at: Any, part: np.ndarray
) -> np.ndarray:
    dtype = dtype_name(part.dtype)
    if not isinstance(fill, str):
        require(holds(dtype, fill), f"{dtype} cannot hold {fill:g}")
    elif fill == "initialize":
        require(
            (shape, dtype) == (into.shape, into.dtype),
            f"initialize takes the model's value, {into.dtype} {show_shape(into.shape)}, but "
            f"{dtype} {show_shape(shape)} is needed",
            _CAST_HINT if shape == into.shape else "",
        )
    else:
        hint = question(near_words(fill, _INITIALIZERS)) or "initialize takes the model's value"
        require(fill in into.known.initializers, f"Keras has no initializer {fill!r}", hint)
        require(is_real(dtype), f"an initializer makes floating-point numbers, not {dtype}")
    return into.filled(fill, shape, at, part)


def _check_how(value: Any) -> Any:
    if isinstance(value, Adaptation):
        return value
    if not isinstance(value, dict):
        raise fault(f"expected a mapping, found {show_value(value)}")
    how = value.get("how")
    if "how" not in value:
        raise fault("the key `how` is missing", hint=did_you_mean("", _HOWS))
    if how not in _HOWS:
        hint = did_you_mean(how, _HOWS) if isinstance(how, str) else ""
        raise fault(
            f"`how` must be a kind of adaptation, found {show_value(how)}", hint=hint, at="how"
        )
    return value


def _tag(value: Any) -> str:
    return TAG + str(value["how"] if isinstance(value, dict) else value.how)


_Rule = (
    Annotated[Cast, Tag("\0cast")]
    | Annotated[Transpose, Tag("\0transpose")]
    | Annotated[Reshape, Tag("\0reshape")]
    | Annotated[Slice, Tag("\0slice")]
    | Annotated[Pad, Tag("\0pad")]
    | Annotated[Resize, Tag("\0resize")]
    | Annotated[Vocabulary, Tag("\0vocabulary")]
    | Annotated[Tile, Tag("\0tile")]
    | Annotated[Split, Tag("\0split")]
    | Annotated[Concat, Tag("\0concat")]
    | Annotated[Function, Tag("\0function")]
)
Adapt = Annotated[_Rule, Discriminator(_tag), BeforeValidator(_check_how)]
_HOWS = [get_args(each)[1].tag.removeprefix(TAG) for each in get_args(_Rule)]
