"""Rules that divide a value between several variables, or make one of several values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from tfckpt.policy.adaptations.arrange import Slice
from tfckpt.policy.adaptations.operation import (
    CAST_HINT,
    Adaptation,
    Counts,
    Done,
    Impossible,
    Operation,
    PlanContext,
    ValueSpec,
    axis_of,
    show_box,
    show_shape,
    with_size,
)
from tfckpt.policy.base.fields import Listed, SelectorText, Text, check_pairs, check_selector, fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZES_HINT = "set `sizes` to the sizes of the parts"


class Split(Adaptation):
    """Split one checkpoint value along an axis into several variables."""

    how: Literal["split"]
    checkpoint: SelectorText
    """Selector over checkpoint names, as in a rename."""
    model: Annotated[tuple[Text, ...], Field(min_length=2), Listed]
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

    def plan_part(self, kind: ValueSpec, part: int, sizes: Sequence[int]) -> Done:
        """As :meth:`plan`, for one of the parts, whose sizes along the axis are known."""
        axis = axis_of(self.axis, kind.shape)
        whole = kind.shape[axis]
        if sum(sizes) != whole:
            parts = " + ".join(map(str, sizes))
            raise Impossible(
                f"sizes {parts} do not add up to {whole}, the size of axis {axis}", SIZES_HINT
            )
        start = tuple(sum(sizes[:part]) if i == axis else 0 for i in range(len(kind.shape)))
        shape = with_size(kind.shape, axis, sizes[part])
        options = {"start": start, "size": shape}
        return Done(ValueSpec(shape, kind.dtype), options, show_box(kind.shape, start, shape))

    apply = staticmethod(Slice.apply)


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

    @property
    def joins(self) -> bool:
        return True

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        first = kinds[0]
        axis = axis_of(self.axis, first.shape)
        for kind in kinds:
            same = len(kind.shape) == len(first.shape)
            if not same or with_size(kind.shape, axis, 1) != with_size(first.shape, axis, 1):
                raise Impossible(
                    f"cannot concatenate {show_shape(first.shape)} and {show_shape(kind.shape)} "
                    f"along axis {axis}"
                )
            if kind.dtype != first.dtype:
                raise Impossible(f"cannot concatenate {first.dtype} and {kind.dtype}", CAST_HINT)
        shape = with_size(first.shape, axis, sum(kind.shape[axis] for kind in kinds))
        return Done(ValueSpec(shape, first.dtype), {"axis": axis}, f"axis {axis}")

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        import numpy as np

        return np.concatenate(values, axis=operation.options["axis"])


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

    @property
    def joins(self) -> bool:
        return self.checkpoint is not None

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        if self.name not in known.functions:
            raise Impossible(
                f"no function is registered as {self.name!r}",
                "import the module that registers it with tfckpt.register_adaptation; "
                f"registered: {', '.join(sorted(known.functions)) or 'none'}",
            )
        return Done(live, {"name": self.name}, self.name)

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        return operation.called(values)
