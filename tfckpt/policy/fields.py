"""What the models of a config have in common: their base, their field types, and their faults.

Models are strict (``"3"`` is no number), frozen, and refuse unknown keys. A model that is made in
Python raises what a file raises, a :class:`~tfckpt.errors.PolicyError` in plain words; a validator
here raises a :func:`fault`, which pydantic carries to the place where ``messages`` words it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from tfckpt.core.selectors import Selector, compile_rename
from tfckpt.errors import PolicyError
from tfckpt.policy.messages import problems_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def fault(message: str, *, hint: str = "", at: str = "", other: str = "") -> PydanticCustomError:
    """An error for a validator to raise.

    Args:
        message: what is wrong; the place is added where it is shown.
        hint: what to do about it.
        at: a key below the value being validated that the error is about.
        other: a key beside the value that it contradicts; its line is shown too.

    """
    context = {"message": message, "hint": hint, "at": at, "other": other}
    return PydanticCustomError("fault", "{message}", context)


class Model(BaseModel):
    """A value that a config file describes."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            found = [found.show() for found in problems_of(error, type(self))]
            raise PolicyError(type(self).__name__, found) from None

    # Without this mark pydantic would call __init__ for nested models too, and lose their paths
    # (https://github.com/pydantic/pydantic/blob/main/pydantic/root_model.py has the same line).
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What was said, and not every default."""
        said = self.model_fields_set
        return ((key, value) for key, value in super().__repr_args__() if key in said)


def check_selector(pattern: str) -> str:
    """The pattern, or the fault of one that means nothing."""
    try:
        Selector(pattern)
    except ValueError as error:
        raise fault(str(error)) from None
    return pattern


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def one_or_listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else _listed(value)


def check_pairs(checkpoint: str, model: tuple[str, ...]) -> None:
    """Raise the fault of what ``model`` says of the names that match ``checkpoint``."""
    try:
        for each in model:
            compile_rename(checkpoint, each)
    except ValueError as error:
        raise fault(str(error)) from None


def _path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _as_a_shell_would_not(value: str) -> str:
    """What only a shell understands, or nobody sees, makes a directory of another name."""
    if value == "~" or value.startswith("~/"):
        raise fault(f"`~` is not filled in: {value!r}", hint=f"write '${{HOME}}{value[1:]}'")
    if value != value.strip():
        raise fault(f"{value!r} begins or ends with white space", hint="take it away")
    return value


def _file_name(value: str) -> str:
    if "/" in value or "\\" in value or value in {".", ".."}:
        raise fault(f"{value!r} is no plain file name", hint="directories go into `directory`")
    return value


Listed = BeforeValidator(_listed)
Count = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Text = Annotated[str, StringConstraints(min_length=1)]
PathText = Annotated[Text, BeforeValidator(_path), AfterValidator(_as_a_shell_would_not)]
FileName = Annotated[Text, AfterValidator(_file_name)]
SelectorText = Annotated[str, AfterValidator(check_selector)]
Selectors = Annotated[tuple[SelectorText, ...], Listed]
OneOrMore = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(one_or_listed, json_schema_input_type=str | tuple[str, ...]),
]
