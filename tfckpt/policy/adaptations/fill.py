"""Rules that fill what the checkpoint does not have: pad, and rows of new words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from tfckpt.core.dtypes import holds, is_real
from tfckpt.core.similar import near_words, question
from tfckpt.policy.adaptations.operation import (
    CAST_HINT,
    Done,
    Impossible,
    Index,
    Indices,
    OfVariable,
    Operation,
    PlanContext,
    ValueSpec,
    axis_of,
    box,
    show_shape,
    with_size,
)
from tfckpt.policy.base.fields import PathText, Text, fault
from tfckpt.policy.base.messages import show_value

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    value: Annotated[float | Text, BeforeValidator(_fill)]
    """Padding: a number, initialize (what the variable holds now), or a Keras initializer."""
    before: Indices | None = None
    """Padding before the value on each axis; by default, all padding comes after it."""
    idempotent: ClassVar[bool] = True

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        (kind,) = kinds
        shape = live.shape
        before = (0,) * len(shape) if self.before is None else self.before
        if not len(shape) == len(before) == len(kind.shape):
            raise Impossible(
                f"{show_shape(kind.shape)} has {len(kind.shape)} axes, the model's variable "
                f"{len(shape)}, `before` {len(before)}"
            )
        if any(b + n > m for b, n, m in zip(before, kind.shape, shape, strict=True)):
            raise Impossible(f"{show_shape(kind.shape)} does not fit into {show_shape(shape)}")
        to = ValueSpec(shape, kind.dtype)
        fill = _checked_fill(self.value, to, live, known)
        offset = f", at {show_shape(before)}" if any(before) else ""
        detail = f"with {self.value:g}" if isinstance(self.value, float) else f"with {self.value}"
        return Done(to, {"before": before, "shape": shape, "fill": fill}, detail + offset)

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        whole = operation.filled()
        whole[box(operation.options["before"], values[0].shape)] = values[0]
        return whole


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

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        (kind,) = kinds
        if unread := {self.old, self.new} - known.vocabularies.keys():
            raise Impossible(f"vocabulary file {min(unread)} was not read")
        old, new = known.vocabularies[self.old], known.vocabularies[self.new]
        axis = axis_of(self.axis, kind.shape)
        self._check_sizes(axis, kind, live, known)
        row_of = {word: self.before + i for i, word in enumerate(old)}
        old_rows = [row_of.get(word, -1) for word in new]
        if old and new and max(old_rows) < 0:
            raise Impossible(f"no word of {self.new} is in {self.old}")
        end = self.before + len(old)
        rows = (*range(self.before), *old_rows, *range(end, end + self.oov))
        to = ValueSpec(with_size(kind.shape, axis, len(rows)), kind.dtype)
        missing_count = old_rows.count(-1)
        fill: float | str = 0.0
        if missing_count and self.missing == "mean":
            fill = "mean"
            if not is_real(kind.dtype):
                raise Impossible(
                    f"missing: mean needs floating-point numbers, not {kind.dtype}", CAST_HINT
                )
        elif missing_count and self.missing != "zeros":
            fill = _checked_fill(self.missing, to, live, known)
        options = {"axis": axis, "fill": fill, "words": (self.before, end)}
        detail = f"{self.old} → {self.new}, {len(new) - missing_count} of {len(new)} words known"
        filled = f", {self.missing} for {missing_count}" if missing_count else ""
        return Done(to, options, detail + filled, rows)

    def _check_sizes(self, axis: int, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> None:
        sides = [("the checkpoint", kind.shape, self.old)]
        if len(live.shape) == len(kind.shape):
            sides.append(("the model's variable", live.shape, self.new))
        other_rows = self.before + self.oov
        for side, shape, file in sides:
            count = len(known.vocabularies[file])
            if shape[axis] != count + other_rows:
                plural = "s" * (other_rows != 1)
                others = f" and {other_rows} other row{plural}" if other_rows else ""
                raise Impossible(
                    f"{file} has {count} words{others}, but axis {axis} of {side} has size "
                    f"{shape[axis]}",
                    "set `before` and `oov` to the numbers of rows that belong to no word",
                )

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        import numpy as np

        (value,) = values
        axis, fill = operation.options["axis"], operation.options["fill"]
        rows = np.asarray(operation.rows, np.int64)
        if (rows >= 0).all():
            return np.take(value, rows, axis)
        before = (slice(None),) * axis
        if fill == "mean":
            words = value[(*before, slice(*operation.options["words"]))]
            whole = np.empty(operation.to.shape, operation.dtype)
            mean = words.mean(axis, dtype=np.float64, keepdims=True)
            whole[(*before, rows < 0)] = mean.astype(operation.dtype)
        else:
            whole = operation.filled()
        whole[(*before, rows >= 0)] = np.take(value, rows[rows >= 0], axis)
        return whole


def _checked_fill(
    fill: float | str, to: ValueSpec, live: ValueSpec, known: PlanContext
) -> float | str:
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
                CAST_HINT if to.shape == live.shape else "",
            )
        return fill
    if fill not in known.initializers:
        raise Impossible(
            f"Keras has no initializer {fill!r}",
            question(near_words(fill, _INITIALIZERS)) or "initialize takes the model's value",
        )
    if not is_real(to.dtype):
        raise Impossible(f"an initializer makes floating-point numbers, not {to.dtype}")
    return fill
