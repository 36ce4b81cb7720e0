"""What all kinds of `adapt` rules have in common.

A rule is checked by itself when a config is read, against shapes and dtypes when a restore is
planned (:meth:`Adaptation.plan`), and applied to values in a restore (:meth:`Adaptation.apply`),
with the options that the plan resolved.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol

from pydantic import Field

from tfckpt.policy.base.fields import Count, Listed, Model, SelectorText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from tfckpt.core.inventory import Shape

Index = Annotated[int, Field(ge=0)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1), Listed]
Indices = Annotated[tuple[Index, ...], Field(min_length=1), Listed]
CAST_HINT = "add a `how: cast` rule before this one"


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
    """The outcome of a rule: the value's spec, the resolved options, a detail for the report.

    ``rows`` is for ``vocabulary``, see :class:`~tfckpt.planning.adaptation.change.Change`.
    """

    kind: ValueSpec
    options: Mapping[str, Any]
    detail: str = ""
    rows: tuple[int, ...] = ()


class Operation(Protocol):
    """A planned rule for one value, and what it needs of TensorFlow and the program.

    Attributes:
        options: as the plan resolved them.
        rows: as the plan resolved them.
        to: the spec of the result.
        dtype: NumPy's dtype of the result.
    """

    options: Mapping[str, Any]
    rows: tuple[int, ...]
    to: ValueSpec
    dtype: np.dtype

    def cast(self, value: Any) -> Any:
        """The value in the dtype of the result."""

    def filled(self) -> Any:
        """A new array of the result's spec, filled as the options say."""

    def image_resized(self, image: Any, sizes: Sequence[int]) -> Any:
        """Images (batch, rows, columns, channels) in another size."""

    def called(self, values: Sequence[Any]) -> Any:
        """The result of the registered function that the options name."""


class Adaptation(Model):
    """Base of all kinds of rules."""

    # Whether it does nothing where dtype and shape are right already, and is not reported then.
    idempotent: ClassVar[bool] = False

    def pairs(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Checkpoint names that the rule maps to other model names, as in a rename."""
        return iter(())

    @property
    def joins(self) -> bool:
        """Whether it makes one value of several."""
        return False

    def plan(self, kinds: Sequence[ValueSpec], live: ValueSpec, known: PlanContext) -> Done:
        """What the rule makes of values; of one, unless it joins.

        Args:
            kinds: the present specs.
            live: the spec of the model's value, at the end of all rules.
            known: what else a plan may use.

        Raises:
            Impossible: it cannot be applied.
        """
        raise NotImplementedError

    @staticmethod
    def apply(values: Sequence[Any], operation: Operation) -> Any:
        """The array that a planned rule makes of arrays; of one, unless it joins."""
        raise NotImplementedError


class OfVariable(Adaptation):
    """Base of the rules that concern the variables that a selector names."""

    model: SelectorText
    """Selector over model names."""


def show_shape(shape: Iterable[int]) -> str:
    """A shape as reports show it.

    >>> show_shape((4,)), show_shape((2, 3))
    ('(4)', '(2, 3)')
    """
    return f"({', '.join(map(str, shape))})"


def axis_of(axis: int, shape: Sequence[int]) -> int:
    """A possibly negative axis as a non-negative one."""
    if not -len(shape) <= axis < len(shape):
        raise Impossible(f"{show_shape(shape)} has no axis {axis}")
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
