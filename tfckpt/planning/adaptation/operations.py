"""The kinds of `adapt` rules for one value, by shape and dtype alone.

Each function takes the rule, the value's present spec, and the spec of the live value at the end of
the pipeline. It returns the resulting spec, the resolved parameters, and a detail for the report,
or raises :class:`~tfckpt.planning.adaptation.change.Impossible` if the rule cannot be applied.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.dtypes import can_cast, holds, is_real
from tfckpt.core.selectors import suggest
from tfckpt.planning.adaptation.change import Impossible, ValueSpec, show_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfckpt.core.inventory import Shape
    from tfckpt.policy import adaptations

_NEAREST = ("int8", "uint8", "int16", "uint16", "int32", "int64")
_CAST_HINT = "add a `how: cast` rule before this one"


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
    """The outcome of one operation on one value."""

    kind: ValueSpec
    options: Mapping[str, Any]
    detail: str = ""
    rows: tuple[int, ...] = ()


def cast(rule: adaptations.Cast, kind: ValueSpec, live: ValueSpec, _: PlanContext) -> Done:
    if not can_cast(kind.dtype, live.dtype, rule.casting):
        casts = (c for c in ("same_kind", "any") if can_cast(kind.dtype, live.dtype, c))
        wider = next(casts, "")
        hint = f"casting: {wider} does" if wider else ""
        raise Impossible(
            f"casting: {rule.casting} does not convert {kind.dtype} to {live.dtype}", hint
        )
    options = {"dtype": live.dtype, "casting": rule.casting}
    return Done(ValueSpec(kind.shape, live.dtype), options, rule.casting)


def transpose(rule: adaptations.Transpose, kind: ValueSpec, _: ValueSpec, __: PlanContext) -> Done:
    rank = len(kind.shape)
    axes = tuple(reversed(range(rank)))
    if rule.axes is not None:
        axes = tuple(axis_of(axis, kind.shape) for axis in rule.axes)
        if sorted(axes) != list(range(rank)):
            raise Impossible(f"axes: {list(rule.axes)} is not a permutation of the {rank} axes")
    shape = tuple(kind.shape[axis] for axis in axes)
    return Done(ValueSpec(shape, kind.dtype), {"axes": axes}, str(list(axes)) if rule.axes else "")


def reshape(rule: adaptations.Reshape, kind: ValueSpec, live: ValueSpec, _: PlanContext) -> Done:
    shape = live.shape if rule.shape is None else rule.shape
    known = math.prod(size for size in shape if size != -1)
    size = math.prod(kind.shape)
    if -1 in shape and known:
        shape = tuple(size // known if each == -1 else each for each in shape)
    if -1 in shape or math.prod(shape) != size:
        raise Impossible(
            f"cannot reshape {show_shape(kind.shape)}, {size} numbers, to {show_shape(shape)}"
        )
    return Done(ValueSpec(shape, kind.dtype), {"shape": shape})


def slice_(rule: adaptations.Slice, kind: ValueSpec, live: ValueSpec, _: PlanContext) -> Done:
    size = live.shape if rule.size is None else rule.size
    start = (0,) * len(kind.shape) if rule.start is None else rule.start
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
    return Done(
        ValueSpec(size, kind.dtype), {"start": start, "size": size}, box(kind.shape, start, size)
    )


def pad(rule: adaptations.Pad, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
    shape = live.shape
    before = (0,) * len(shape) if rule.before is None else rule.before
    if not len(shape) == len(before) == len(kind.shape):
        raise Impossible(
            f"{show_shape(kind.shape)} has {len(kind.shape)} axes, the model's variable "
            f"{len(shape)}, `before` {len(before)}"
        )
    if any(b + n > m for b, n, m in zip(before, kind.shape, shape, strict=True)):
        raise Impossible(f"{show_shape(kind.shape)} does not fit into {show_shape(shape)}")
    to = ValueSpec(shape, kind.dtype)
    fill = filling(rule.value, to, live, known)
    offset = f", at {show_shape(before)}" if any(before) else ""
    detail = f"with {rule.value:g}" if isinstance(rule.value, float) else f"with {rule.value}"
    return Done(to, {"before": before, "shape": shape, "fill": fill}, detail + offset)


def tile(rule: adaptations.Tile, kind: ValueSpec, live: ValueSpec, _: PlanContext) -> Done:
    shape, axis = kind.shape, rule.axis
    if axis is not None:
        axis = axis_of(axis, (*shape, 1))
        shape = (*shape[:axis], 1, *shape[axis:])
    times = rule.times
    if times is None:
        if len(shape) != len(live.shape):
            hint = "set `axis` to the index of the new axis" if axis is None else ""
            raise Impossible(f"cannot tile {show_shape(shape)} to {show_shape(live.shape)}", hint)
        if any(not old or new % old for old, new in zip(shape, live.shape, strict=True)):
            raise Impossible(f"{show_shape(live.shape)} is not a multiple of {show_shape(shape)}")
        times = tuple(new // old for old, new in zip(shape, live.shape, strict=True))
    if len(times) != len(shape):
        raise Impossible(
            f"times: {list(times)} must have one number for each axis of {show_shape(shape)}"
        )
    mean = rule.scale == "mean"
    if mean and not is_real(kind.dtype):
        raise Impossible(f"scale: mean needs floating-point numbers, not {kind.dtype}", _CAST_HINT)
    to = tuple(old * repeats for old, repeats in zip(shape, times, strict=True))
    options = {"axis": axis, "times": times, "divisor": math.prod(times) if mean else 1}
    detail = f"{'×'.join(map(str, times))}{', mean' * mean}"
    return Done(ValueSpec(to, kind.dtype), options, detail)


def resize(rule: adaptations.Resize, kind: ValueSpec, live: ValueSpec, _: PlanContext) -> Done:
    if not is_real(kind.dtype) and (rule.method != "nearest" or kind.dtype not in _NEAREST):
        raise Impossible(f"method: {rule.method} does not support {kind.dtype}")
    if len(kind.shape) != len(live.shape):
        raise Impossible(f"{show_shape(kind.shape)} and {show_shape(live.shape)} differ in rank")
    if 0 in kind.shape or 0 in live.shape:
        raise Impossible("cannot resize a value without elements")
    if rule.grid is not None:
        return _resize_grid(rule, rule.grid, kind, live)
    axes = [i for i, size in enumerate(kind.shape) if size != live.shape[i]]
    if rule.axes is not None:
        axes = [axis_of(axis, kind.shape) for axis in rule.axes]
        if len(set(axes)) < len(axes):
            raise Impossible(f"axes: {list(rule.axes)} repeats an axis")
    elif len(axes) != 2:
        raise Impossible(
            f"{show_shape(kind.shape)} and {show_shape(live.shape)} differ in {len(axes)} axes; "
            "an image has two",
            "set `axes` to the axes to resize, or `grid` to the grid of positions",
        )
    sizes = tuple(live.shape[axis] for axis in axes)
    shape = list(kind.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    options = {"method": rule.method, "axes": tuple(axes), "sizes": sizes}
    return Done(ValueSpec(tuple(shape), kind.dtype), options, f"{rule.method}, axes {axes}")


def _resize_grid(rule: adaptations.Resize, grid: Shape, kind: ValueSpec, live: ValueSpec) -> Done:
    if len(kind.shape) < 2:
        raise Impossible(f"{show_shape(kind.shape)} has no axis of positions before its last axis")
    old, new = kind.shape[-2], live.shape[-2] - rule.prefix
    if rule.prefix + math.prod(grid) != old:
        raise Impossible(
            f"a grid of {_grid(grid)} and a prefix of {rule.prefix} make "
            f"{rule.prefix + math.prod(grid)} positions, but the checkpoint has {old}"
        )
    to = rule.to_grid
    if to is None:
        side = math.isqrt(max(new, 0))
        to = (new,) if len(grid) == 1 else (side, side) if len(set(grid)) == 1 else ()
    if new < 1 or math.prod(to) != new or not to:
        raise Impossible(
            f"the model has {live.shape[-2]} positions, {rule.prefix} of them before the grid: "
            + (f"not a grid of {_grid(to)}" if rule.to_grid else "its grid cannot be inferred"),
            "set `to_grid` to the grid of the model",
        )
    shape = (*kind.shape[:-2], rule.prefix + new, kind.shape[-1])
    options = {"method": rule.method, "grid": grid, "to_grid": to, "prefix": rule.prefix}
    kept = f", {rule.prefix} before it kept" if rule.prefix else ""
    detail = f"{rule.method}, grid {_grid(grid)} → {_grid(to)}{kept}"
    return Done(ValueSpec(shape, kind.dtype), options, detail)


def vocabulary(
    rule: adaptations.Vocabulary, kind: ValueSpec, live: ValueSpec, known: PlanContext
) -> Done:
    if unread := {rule.old, rule.new} - known.vocabularies.keys():
        raise Impossible(f"vocabulary file {min(unread)} was not read")
    old, new = known.vocabularies[rule.old], known.vocabularies[rule.new]
    axis = axis_of(rule.axis, kind.shape)
    sides = [("the checkpoint", kind.shape, rule.old, old)]
    if len(live.shape) == len(kind.shape):
        sides.append(("the model's variable", live.shape, rule.new, new))
    other_rows = rule.before + rule.oov
    for side, shape, file, words in sides:
        if shape[axis] != len(words) + other_rows:
            others = f" and {other_rows} other row{'s' * (other_rows != 1)}" if other_rows else ""
            raise Impossible(
                f"{file} has {len(words)} words{others}, but axis {axis} of {side} has size "
                f"{shape[axis]}",
                "set `before` and `oov` to the numbers of rows that belong to no word",
            )
    row_of = {word: rule.before + i for i, word in enumerate(old)}
    old_rows = [row_of.get(word, -1) for word in new]
    if old and new and max(old_rows) < 0:
        raise Impossible(f"no word of {rule.new} is in {rule.old}")
    end = rule.before + len(old)
    rows = (*range(rule.before), *old_rows, *range(end, end + rule.oov))
    to = ValueSpec((*kind.shape[:axis], len(rows), *kind.shape[axis + 1 :]), kind.dtype)
    missing_count = old_rows.count(-1)
    fill: float | str = 0.0
    if missing_count and rule.missing == "mean" and not is_real(kind.dtype):
        raise Impossible(
            f"missing: mean needs floating-point numbers, not {kind.dtype}", _CAST_HINT
        )
    if missing_count and rule.missing != "mean":
        fill = filling(0.0 if rule.missing == "zeros" else rule.missing, to, live, known)
    elif missing_count:
        fill = "mean"
    options = {"axis": axis, "fill": fill, "words": (rule.before, end)}
    detail = f"{rule.old} → {rule.new}, {len(new) - missing_count} of {len(new)} words known"
    return Done(
        to,
        options,
        detail + (f", {rule.missing} for {missing_count}" if missing_count else ""),
        rows,
    )


def filling(fill: float | str, to: ValueSpec, live: ValueSpec, known: PlanContext) -> float | str:
    """``fill`` itself, a number or the name of an initializer, if it is valid for ``to``."""
    if not isinstance(fill, str):
        if not holds(to.dtype, fill):
            raise Impossible(f"{to.dtype} cannot hold {fill:g}")
        return fill
    if fill == "initialize":
        if to != live:
            raise Impossible(
                f"initialize takes the model's value, {live.dtype} {show_shape(live.shape)}, but "
                f"{to.dtype} {show_shape(to.shape)} is needed",
                _CAST_HINT if to.shape == live.shape else "",
            )
        return fill
    if fill not in known.initializers:
        near = suggest(fill, _INITIALIZERS)
        raise Impossible(
            f"Keras has no initializer {fill!r}",
            f"did you mean {near[0]!r}?" if near else "initialize takes the model's value",
        )
    if not is_real(to.dtype):
        raise Impossible(f"an initializer makes floating-point numbers, not {to.dtype}")
    return fill


_INITIALIZERS = (
    "zeros",
    "ones",
    "glorot_uniform",
    "glorot_normal",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "random_normal",
    "random_uniform",
    "truncated_normal",
    "orthogonal",
)


def axis_of(axis: int, shape: Sequence[int]) -> int:
    """A possibly negative axis as a non-negative one."""
    if not -len(shape) <= axis < len(shape):
        raise Impossible(f"{show_shape(shape)} has no axis {axis}")
    return axis % len(shape)


def box(shape: Sequence[int], start: Sequence[int], size: Sequence[int]) -> str:
    """A slice of a value in Python notation.

    >>> box((4, 12), (0, 4), (4, 4))
    '[:, 4:8]'
    """
    parts = [
        ":" if (s, n) == (0, m) else f"{s}:{s + n}"
        for m, s, n in zip(shape, start, size, strict=True)
    ]
    return f"[{', '.join(parts)}]"


def _grid(grid: Sequence[int]) -> str:
    return "×".join(map(str, grid))
