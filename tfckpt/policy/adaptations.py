"""The rules of ``adapt``: what is done to a stored value so that a live one can take it.

Each class is one kind of rule, told by ``how``; words are NumPy's and TensorFlow's where they have
one. Here is checked what a rule says by itself; whether a value can be adapted so is the plan's to
say, when the shapes are known.
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
    """What every kind of rule has."""

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Stored names that the rule sends elsewhere, and where to; as in a rename."""
        return iter(())


class _OfLive(Adaptation):
    model: SelectorText
    """Selector over live names."""


class Cast(_OfLive):
    """The type of the live value."""

    how: Literal["cast"]
    casting: Literal["safe", "same_kind", "any"] = "same_kind"
    """What may be lost, in NumPy's words; any is its unsafe."""


class Transpose(_OfLive):
    """Axes in another order."""

    how: Literal["transpose"]
    axes: Axes | None = None
    """The order, as in numpy.transpose; left out, it is reversed."""


class Reshape(_OfLive):
    """The same numbers in another shape."""

    how: Literal["reshape"]
    shape: Annotated[tuple[int, ...], Listed] | None = None
    """The shape, of which one size may be -1; left out, the live one."""

    @field_validator("shape")
    @classmethod
    def _at_most_one_is_open(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (min(value, default=0) < -1 or value.count(-1) > 1):
            raise fault("`shape` has sizes, and at most one -1 for the size that is left over")
        return value


class Slice(_OfLive):
    """A part of the value."""

    how: Literal["slice"]
    start: Indices | None = None
    """Where it begins on each axis; left out, at zero."""
    size: Counts | None = None
    """Its shape; left out, the live one."""


class Pad(_OfLive):
    """A greater value that holds this one."""

    how: Literal["pad"]
    value: Annotated[float | Text, BeforeValidator(_fill)]
    """What the rest holds: a number, initialize, or the name of a Keras initializer."""
    before: Indices | None = None
    """How much of it comes first on each axis; left out, all of it comes last."""


class Resize(_OfLive):
    """Interpolation, as in tf.image.resize."""

    how: Literal["resize"]
    method: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    """Of interpolation."""
    axes: Annotated[tuple[int, ...], Field(min_length=1, max_length=2), Listed] | None = None
    """The one or two axes that are resized; left out, the two whose sizes differ."""
    grid: Annotated[tuple[Count, ...], Field(min_length=1, max_length=2), Listed] | None = None
    """Rows and columns, or the number, of the positions in the last axis but one."""
    to_grid: Annotated[tuple[Count, ...], Field(min_length=1, max_length=2), Listed] | None = None
    """The same of the live value; left out, a line, or a square where `grid` is one."""
    prefix: Index = 0
    """Positions before the grid that are kept, such as a class token."""

    @field_validator("grid")
    @classmethod
    def _axes_or_grid(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("axes") is not None:
            raise fault("a value has `axes` of its own or a `grid` in one axis", other="axes")
        return value

    @field_validator("to_grid", "prefix")
    @classmethod
    def _of_a_grid(cls, value: Any, info: ValidationInfo) -> Any:
        grid = info.data.get("grid")
        if value and grid is None:
            raise fault(f"`{info.field_name}` means nothing without `grid`")
        if isinstance(value, tuple) and len(value) != len(grid or value):
            raise fault("`to_grid` and `grid` have one size each, or two", other="grid")
        return value


class Vocabulary(_OfLive):
    """Rows by the words that they belong to."""

    how: Literal["vocabulary"]
    old: PathText
    """The words of the checkpoint: a file in UTF-8, one a line."""
    new: PathText
    """The words of the live value."""
    missing: Text = "initialize"
    """Rows of new words: initialize, zeros, mean, or the name of a Keras initializer."""
    axis: int = 0
    """Where the rows are."""
    before: Index = 0
    """Rows before the first word that both sides have, for padding and the like."""
    oov: Index = 0
    """Rows after the last word that both sides have, for words out of the vocabulary."""


class Tile(_OfLive):
    """The value, repeated."""

    how: Literal["tile"]
    axis: int | None = None
    """Where a new axis comes to stand."""
    times: Counts | None = None
    """How often on each axis, the new one included; left out, up to the live shape."""
    scale: Literal["none", "mean"] = "none"
    """mean divides by the number of repetitions, so that a sum over them stays as it was."""


class Split(Adaptation):
    """One stored value in several parts, one after the other along an axis."""

    how: Literal["split"]
    checkpoint: SelectorText
    """Selector over stored names, as in a rename."""
    model: Several
    """The live names of the parts, in order."""
    axis: int
    """Along which axis."""
    sizes: Counts | None = None
    """Of the parts; left out, what each live value has room for."""

    @field_validator("model")
    @classmethod
    def _fits(cls, model: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len(set(model)) < len(model):
            raise fault("`model` names a value twice")
        if "checkpoint" in info.data:
            check_pairs(info.data["checkpoint"], model)
        return model

    @field_validator("sizes")
    @classmethod
    def _one_each(cls, sizes: Any, info: ValidationInfo) -> Any:
        if sizes is not None and len(sizes) != len(info.data.get("model", sizes)):
            raise fault("`sizes` has one size for each name in `model`", other="model")
        return sizes

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield self.checkpoint, self.model


class _Gathering(Adaptation):
    @field_validator("model", check_fields=False)
    @classmethod
    def _fits(cls, model: str, info: ValidationInfo) -> str:
        checkpoint = info.data.get("checkpoint") or ()
        for each in checkpoint:
            check_pairs(each, (model,))
        if len(set(checkpoint)) < len(checkpoint):
            raise fault("`checkpoint` names a value twice", other="checkpoint")
        return model


class Concat(_Gathering):
    """Several stored values, one after the other along an axis."""

    how: Literal["concat"]
    checkpoint: Annotated[tuple[SelectorText, ...], Field(min_length=2), Listed]
    """Selectors over stored names, in order, as in a rename."""
    model: Text
    """The live name of the whole."""
    axis: int
    """Along which axis."""

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        return ((each, (self.model,)) for each in self.checkpoint)


class Function(_Gathering):
    """A function of the program's own."""

    how: Literal["function"]
    name: Text
    """The name that tfckpt.register_adaptation gave it."""
    checkpoint: Annotated[tuple[SelectorText, ...], Field(min_length=1), Listed] | None = None
    """Stored names of its arguments, in order, as in a concat; left out, the value is the one."""
    model: Text
    """Selector over live names; with `checkpoint`, the live name of what it returns."""

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


def _known(value: Any) -> Any:
    if isinstance(value, Adaptation):
        return value
    if not isinstance(value, dict):
        raise fault(f"expected a mapping, found {show_value(value)}")
    how = value.get("how")
    if "how" not in value:
        raise fault("the key `how` is missing", hint=did_you_mean("", _KINDS))
    if how not in _KINDS:
        hint = did_you_mean(how, _KINDS) if isinstance(how, str) else ""
        raise fault(f"expected a kind of adaptation, found {show_value(how)}", hint=hint, at="how")
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
    BeforeValidator(_known),
]
