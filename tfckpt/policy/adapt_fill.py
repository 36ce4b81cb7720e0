"""The kinds of ``adapt`` rules that fill what the checkpoint lacks; and all kinds by ``how``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Tag

from tfckpt.core.dtypes import holds, is_real
from tfckpt.core.similar import did_you_mean, near_words, question
from tfckpt.policy.adapt import (
    CAST_HINT,
    Adaptation,
    Cast,
    Concat,
    Done,
    Function,
    Index,
    Indices,
    OfVariable,
    Operation,
    PlanContext,
    Reshape,
    Resize,
    Slice,
    Split,
    Tile,
    Transpose,
    ValueSpec,
    axis_of,
    box,
    require,
    show_shape,
    with_size,
)
from tfckpt.policy.fields import Expanded, Name, PathText, Text, fault
from tfckpt.policy.messages import TAG, show_value

if TYPE_CHECKING:
    from collections.abc import Sequence

_INITIALIZERS = (
    "zeros", "ones", "glorot_uniform", "glorot_normal", "he_normal", "he_uniform", "lecun_normal",
    "lecun_uniform", "random_normal", "random_uniform", "truncated_normal", "orthogonal",
)  # fmt: skip


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

    def _plan(self, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
        shape = live.shape
        before = (0,) * len(shape) if self.before is None else self.before
        part = show_shape(kind.shape)
        require(
            len(shape) == len(before) == len(kind.shape),
            f"{part} has {len(kind.shape)} axes, the model's variable {len(shape)}, `before` "
            f"{len(before)}",
        )
        within = all(b + n <= m for b, n, m in zip(before, kind.shape, shape, strict=True))
        require(within, f"{part} does not fit into {show_shape(shape)}")
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

    def _plan(self, kind: ValueSpec, live: ValueSpec, known: PlanContext) -> Done:
        unread = {self.old, self.new} - known.vocabularies.keys()
        require(not unread, f"vocabulary file {min(unread, default='')} was not read")
        old, new = known.vocabularies[self.old], known.vocabularies[self.new]
        axis = axis_of(self.axis, kind.shape)
        self._check_sizes(axis, kind, live, known)
        row_of = {word: self.before + i for i, word in enumerate(old)}
        old_rows = [row_of.get(word, -1) for word in new]
        known_words = not old or not new or max(old_rows) >= 0
        require(known_words, f"no word of {self.new} is in {self.old}")
        end = self.before + len(old)
        rows = (*range(self.before), *old_rows, *range(end, end + self.oov))
        to = ValueSpec(with_size(kind.shape, axis, len(rows)), kind.dtype)
        missing_count = old_rows.count(-1)
        fill: float | str = 0.0
        if missing_count and self.missing == "mean":
            fill = "mean"
            wrong = f"missing: mean needs floating-point numbers, not {kind.dtype}"
            require(is_real(kind.dtype), wrong, CAST_HINT)
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
            plural = "s" * (other_rows != 1)
            others = f" and {other_rows} other row{plural}" if other_rows else ""
            require(
                shape[axis] == count + other_rows,
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
        require(holds(to.dtype, fill), f"{to.dtype} cannot hold {fill:g}")
    elif fill == "initialize":
        require(
            to == live,
            f"initialize takes the model's value, {live.dtype} {show_shape(live.shape)}, but "
            f"{to.dtype} {show_shape(to.shape)} is needed",
            CAST_HINT if to.shape == live.shape else "",
        )
    else:
        hint = question(near_words(fill, _INITIALIZERS)) or "initialize takes the model's value"
        require(fill in known.initializers, f"Keras has no initializer {fill!r}", hint)
        wrong = f"an initializer makes floating-point numbers, not {to.dtype}"
        require(is_real(to.dtype), wrong)
    return fill


def _check_how(value: Any) -> Any:
    if isinstance(value, Adaptation):
        return value
    if not isinstance(value, dict):
        raise fault(f"expected a mapping, found {show_value(value)}")
    how = value.get("how")
    if "how" not in value:
        raise fault("the key `how` is missing", hint=did_you_mean("", KINDS))
    if not isinstance(how, str) or how not in KINDS:
        hint = did_you_mean(how, KINDS) if isinstance(how, str) else ""
        raise fault(
            f"`how` must be a kind of adaptation, found {show_value(how)}", hint=hint, at="how"
        )
    return value


def _tag(value: Any) -> str:
    return TAG + str(value["how"] if isinstance(value, dict) else value.how)


_Any = (
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
Adapt = Annotated[_Any, Discriminator(_tag), BeforeValidator(_check_how)]
# By ``how``.
KINDS: dict[str, type[Adaptation]] = {
    tag.tag.removeprefix(TAG): kind for kind, tag in map(get_args, get_args(_Any))
}
