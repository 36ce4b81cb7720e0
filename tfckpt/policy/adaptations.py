"""The rules of ``adapt``: how a checkpoint value is changed so that it fits the model's variable.

Each class is one kind of rule, chosen by ``how``; keys are named as in NumPy and TensorFlow where
these have a name. The classes check a rule by itself. Whether it fits a value is checked by the
plan, when the shapes are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator

from tfckpt.policy.fields import (
    Count,
    Listed,
    Model,
    PathText,
    SelectorText,
    Text,
    check_pairs,
    check_selector,
    fault,
)
from tfckpt.policy.messages import TAG, did_you_mean, show_value

if TYPE_CHECKING:
    from collections.abc import Iterator

Index = Annotated[int, Field(ge=0)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1), Listed]
Indices = Annotated[tuple[Index, ...], Field(min_length=1), Listed]
Axes = Annotated[tuple[int, ...], Field(min_length=1), Listed]
Several = Annotated[tuple[Text, ...], Field(min_length=2), Listed]


def _fill(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
        raise fault(
            "expected a number, initialize, or the name of an initializer, "
            f"found {show_value(value)}"
        )
    return value


class Adaptation(Model):
    """Base of all kinds of rules."""

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Checkpoint names that the rule maps to other model names, as in a rename."""
        return iter(())


class _OfVariable(Adaptation):
    model: SelectorText
    """Selector over model names."""


class Cast(_OfVariable):
    """Cast to the dtype of the model's variable."""

    how: Literal["cast"]
    casting: Literal["safe", "same_kind", "any"] = "same_kind"
    """What a cast may lose, as in numpy.can_cast; any is NumPy's unsafe."""


class Transpose(_OfVariable):
    """Permute the axes."""

    how: Literal["transpose"]
    axes: Axes | None = None
    """Permutation of the axes, as in numpy.transpose; by default, their reverse order."""


class Reshape(_OfVariable):
    """Reshape to another shape of the same size."""

    how: Literal["reshape"]
    shape: Annotated[tuple[int, ...], Listed] | None = None
    """New shape, with at most one -1; by default, the shape of the variable."""

    @field_validator("shape")
    @classmethod
    def _has_one_unknown_size(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (min(value, default=0) < -1 or value.count(-1) > 1):
            raise fault("`shape` must have sizes of at least 0, and at most one -1")
        return value


class Slice(_OfVariable):
    """Take a part of the value."""

    how: Literal["slice"]
    start: Indices | None = None
    """Start index of the part on each axis; by default, 0."""
    size: Counts | None = None
    """Shape of the part; by default, the shape of the variable."""


class Pad(_OfVariable):
    """Pad the value to the shape of the variable."""

    how: Literal["pad"]
    value: Annotated[float | Text, BeforeValidator(_fill)]
    """Padding: a number, initialize (what the variable holds now), or a Keras initializer."""
    before: Indices | None = None
    """Padding before the value on each axis; by default, all padding comes after it."""


class Resize(_OfVariable):
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


class Vocabulary(_OfVariable):
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


class Tile(_OfVariable):
    """Repeat the value."""

    how: Literal["tile"]
    axis: int | None = None
    """Index of a new axis, which is inserted first."""
    times: Counts | None = None
    """Repetitions along each axis, the new one included; by default, to fill the variable."""
    scale: Literal["none", "mean"] = "none"
    """mean divides by the number of repetitions, so that the sum over them is unchanged."""


class Split(Adaptation):
    """Split one checkpoint value along an axis into several variables."""

    how: Literal["split"]
    checkpoint: SelectorText
    """Selector over checkpoint names, as in a rename."""
    model: Several
    """Model names of the parts, in order."""
    axis: int
    """Axis to split along."""
    sizes: Counts | None = None
    """Size of each part along the axis; by default, the size of each variable."""

    @field_validator("model")
    @classmethod
    def _fits(cls, model: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len(set(model)) < len(model):
            raise fault("`model` has the same name twice")
        if "checkpoint" in info.data:
            check_pairs(info.data["checkpoint"], model)
        return model

    @field_validator("sizes")
    @classmethod
    def _one_each(cls, sizes: Any, info: ValidationInfo) -> Any:
        if sizes is not None and len(sizes) != len(info.data.get("model", sizes)):
            raise fault("`sizes` must have one size for each name in `model`", other="model")
        return sizes

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield self.checkpoint, self.model


class _Combining(Adaptation):
    @field_validator("model", check_fields=False)
    @classmethod
    def _fits(cls, model: str, info: ValidationInfo) -> str:
        checkpoint = info.data.get("checkpoint") or ()
        for each in checkpoint:
            check_pairs(each, (model,))
        if len(set(checkpoint)) < len(checkpoint):
            raise fault("`checkpoint` has the same name twice", other="checkpoint")
        return model


class Concat(_Combining):
    """Concatenate several checkpoint values along an axis into one variable."""

    how: Literal["concat"]
    checkpoint: Annotated[tuple[SelectorText, ...], Field(min_length=2), Listed]
    """Selectors over checkpoint names, in order, as in a rename."""
    model: Text
    """Model name of the result."""
    axis: int
    """Axis to concatenate along."""

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        return ((each, (self.model,)) for each in self.checkpoint)


class Function(_Combining):
    """Call a function that the program registered."""

    how: Literal["function"]
    name: Text
    """Name under which tfckpt.register_adaptation registered the function."""
    checkpoint: Annotated[tuple[SelectorText, ...], Field(min_length=1), Listed] | None = None
    """Checkpoint names of its arguments, in order; by default, the one value that matched."""
    model: Text
    """Selector over model names; with `checkpoint`, the model name of the result."""

    @field_validator("model")
    @classmethod
    def _selects(cls, model: str, info: ValidationInfo) -> str:
        return check_selector(model) if info.data.get("checkpoint", ()) is None else model

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        return ((each, (self.model,)) for each in self.checkpoint or ())


_KINDS = (
    "cast",
    "transpose",
    "reshape",
    "slice",
    "pad",
    "resize",
    "vocabulary",
    "tile",
    "split",
    "concat",
    "function",
)


def _check_how(value: Any) -> Any:
    if isinstance(value, Adaptation):
        return value
    if not isinstance(value, dict):
        raise fault(f"expected a mapping, found {show_value(value)}")
    how = value.get("how")
    if "how" not in value:
        raise fault("the key `how` is missing", hint=did_you_mean("", _KINDS))
    if how not in _KINDS:
        hint = did_you_mean(how, _KINDS) if isinstance(how, str) else ""
        raise fault(
            f"`how` must be a kind of adaptation, found {show_value(how)}", hint=hint, at="how"
        )
    return value


def _tag(value: Any) -> str:
    return TAG + str(value["how"] if isinstance(value, dict) else value.how)


Adapt = Annotated[
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
    | Annotated[Function, Tag("\0function")],
    Discriminator(_tag),
    BeforeValidator(_check_how),
]
