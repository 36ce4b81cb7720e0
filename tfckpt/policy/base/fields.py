"""Base class, field types and validation errors of the models of a config.

Models are strict (``"3"`` is not a number), frozen, and refuse unknown keys. A model created in
Python raises the same :class:`~tfckpt.errors.PolicyError` as a file. Validators raise a
:func:`fault`, which ``messages`` turns into a problem with its path.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from tfckpt.core.selectors import Selector, compile_rename
from tfckpt.errors import PolicyError
from tfckpt.policy.base.messages import problems_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def fault(message: str, *, hint: str = "", at: str = "", other: str = "") -> PydanticCustomError:
    """An error for a validator to raise; its path is added later.

    ``at`` is a key below the value that the error is about, ``other`` a key beside the value that
    it contradicts, whose line is shown too.
    """
    context = {"message": message, "hint": hint, "at": at, "other": other}
    return PydanticCustomError("fault", "{message}", context)


class Model(BaseModel):
    """Base of all models of a config file."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            problems = [fault.show() for fault in problems_of(error, type(self))]
            raise PolicyError(type(self).__name__, problems) from None

    # Without this attribute pydantic would call __init__ for nested models and lose their paths
    # (https://github.com/pydantic/pydantic/blob/main/pydantic/root_model.py has the same line).
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Only the fields that were set, without the defaults."""
        fields = self.model_fields_set
        return ((key, value) for key, value in super().__repr_args__() if key in fields)


def check_selector(pattern: str) -> str:
    """The pattern, if it is a valid selector."""
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
    """Check that the wildcards or groups of the two sides of a rename match."""
    try:
        for each in model:
            compile_rename(checkpoint, each)
    except ValueError as error:
        raise fault(str(error)) from None


def _path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _check_path(value: str) -> str:
    """Refuse ``~``, which only a shell expands, and invisible spaces: they name another file."""
    if value == "~" or value.startswith("~/"):
        raise fault(f"`~` is not expanded: {value!r}", hint=f"write '${{HOME}}{value[1:]}'")
    if value != value.strip():
        raise fault(f"{value!r} begins or ends with a space", hint="remove the space")
    return value


def _file_name(value: str) -> str:
    if "/" in value or "\\" in value or value in {".", ".."}:
        raise fault(
            f"{value!r} is not a plain file name", hint="write the directory under `directory`"
        )
    return value


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    if found is None:
        raise fault(
            f"{value!r} is not a size", hint="write a number of bytes, or one with a unit: 2GiB"
        )
    number, unit = found.groups(default="")
    return round(float(number) * (1024 if "i" in unit else 1000) ** " KMGT".index(unit[:1] or " "))


_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]i?)?B")

Listed = BeforeValidator(_listed)
Size = Annotated[
    int,
    Field(gt=0),
    BeforeValidator(_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": f"^{_SIZE.pattern}$"},
            ]
        }
    ),
]
Count = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Text = Annotated[str, StringConstraints(min_length=1)]
PathText = Annotated[Text, BeforeValidator(_path), AfterValidator(_check_path)]
FileName = Annotated[Text, AfterValidator(_file_name)]
SelectorText = Annotated[str, AfterValidator(check_selector)]
Selectors = Annotated[tuple[SelectorText, ...], Listed]
OneOrMore = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(one_or_listed, json_schema_input_type=str | tuple[str, ...]),
]
