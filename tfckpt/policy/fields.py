"""Base class, field types and validation errors of the models of a config.

Models are strict (``"3"`` is not a number), frozen, and refuse unknown keys. Validators raise a
:func:`fault`, which ``messages`` turns into a problem with its path.

``${VAR}`` and ``${VAR:-default}`` of a file are expanded in :data:`Text`, :data:`PathText`: once,
after parsing, so that a variable cannot change the structure of the file; and not in selectors,
where ``$`` belongs to regular expressions. An empty variable counts as unset, as with ``:-`` in a
shell: an empty RUN_DIR would make ``${RUN_DIR}/checkpoints`` a directory of the root.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping  # noqa: TC003 - NamedTuple's fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from tfckpt.core.selectors import Selector, compile_rename
from tfckpt.errors import PolicyError
from tfckpt.policy.messages import ABOVE, problems_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def fault(message: str, *, hint: str = "", at: str = "", other: str = "") -> PydanticCustomError:
    """An error for a validator to raise; its path is added later.

    ``at`` is a key below the value that the error is about, ``other`` a key beside the value that
    it contradicts, whose line is shown too.
    """
    context = {"message": message, "hint": hint, "at": at, "other": other}
    return PydanticCustomError("fault", "{message}", context)


def lacks(value: Any, other: Any) -> bool:
    """Whether a key is given without another one that it needs."""
    return bool(value) and not other


def missing(value: Any, other: Any) -> bool:
    """Whether a key is not given, and another one that needs it is."""
    return other is not None and value is None


def beside(value: Any, other: Any) -> bool:
    """Whether two keys are given of which one is too many."""
    return value not in (None, ()) and other is not None


class GoesWith(NamedTuple):
    """What keys of a model ask of ``others``, which are declared before them.

    ``broken`` is true for values that do not fit, or says why. ``says`` may name both keys and
    values, as ``{key}``, ``{value}``, ``{other}`` and ``{against}``; ``at`` is as in a fault.
    """

    keys: str
    others: str
    broken: Callable[[Any, Any], object]
    says: str = ""
    hint: str = ""
    at: str = ""

    def check(self, key: str, value: Any, before: Mapping[str, Any]) -> None:
        """``before`` holds the valid keys declared before this one."""
        for name in before.keys() & set(self.others.split()):
            if key in self.keys.split() and (why := self.broken(value, before[name])):
                other = name.rstrip("_")
                says = self.says.format(key=key, value=value, other=other, against=before[name])
                hint = self.hint.replace("{key}", key)
                raise fault(says or str(why), hint=hint, at=self.at, other=other)


class OneOf(NamedTuple):
    """Keys of a model of which exactly one has a value; the last one validates its default."""

    keys: tuple[str, ...] = ()
    says: str = ""
    none: str = ""
    hint: str = ""

    def check(self, key: str, value: Any, before: Mapping[str, Any]) -> None:
        """As for what goes with a key."""
        other = next((each for each in self.keys if before.get(each) is not None), "")
        if value is not None and other:
            raise fault(f"{self.says} both `{other}` and `{key}`", hint=self.hint, other=other)
        if value is None and not other and before.keys() >= set(self.keys) - {key}:
            raise fault(f"{self.says} {self.none}", hint=self.hint, at=ABOVE)


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
    section: ClassVar[str] = ""
    """The section of a config that the mapping is, where it is one."""
    goes_with: ClassVar[tuple[GoesWith, ...]] = ()
    one_of: ClassVar[OneOf] = OneOf()

    @field_validator("*")
    @classmethod
    def _fits_the_others(cls, value: Any, info: ValidationInfo) -> Any:
        key = str(info.field_name)
        for rule in cls.goes_with:
            rule.check(key, value, info.data)
        if key in cls.one_of.keys:
            cls.one_of.check(key, value, info.data)
        return value

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


def unpaired(model: str | tuple[str, ...], checkpoint: str | tuple[str, ...] | None) -> str:
    """Why the two sides of a rename do not match; without the first, the other is a selector."""
    try:
        if checkpoint is None:
            Selector(str(model))
        for pattern, name in itertools.product(
            one_or_listed(checkpoint or ()), one_or_listed(model)
        ):
            compile_rename(pattern, name)
    except ValueError as error:
        return str(error)
    return ""


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def one_or_listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else _listed(value)


def _once(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    if twice := [each for number, each in enumerate(value) if each in value[:number]]:
        raise fault(f"`{info.field_name}` has {twice[0]} twice")
    return value


_DOLLAR = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z0-9_]*))")


def _expand(value: Any, info: ValidationInfo) -> Any:
    """Fill in variables; a model made in Python has no context, and none are filled in."""
    if info.context is None or not isinstance(value, str):
        return value
    env = info.context["env"]

    def of(match: re.Match[str]) -> str:
        dollar, name, default, bare = match.groups()
        if dollar:
            return "$"
        if name is None:
            raise fault(
                "a single `$` is not valid; write an environment variable as "
                f"`${{{bare or 'NAME'}}}`, or a literal `$` as `$$`"
            )
        expanded: str | None = env.get(name) or default
        if expanded is None:
            state = "empty" if name in env else "not set"
            raise fault(
                f"the environment variable {name} is {state}; "
                f"set it, or give a default: ${{{name}:-...}}"
            )
        return expanded

    return _DOLLAR.sub(of, value)


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


Listed = BeforeValidator(_listed)
Once = AfterValidator(_once)
Expanded = BeforeValidator(_expand)
Count = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(min_length=1)]
Text = Annotated[Name, Expanded]
PathText = Annotated[Text, BeforeValidator(_path), AfterValidator(_check_path)]
FileName = Annotated[Text, AfterValidator(_file_name)]
SelectorText = Annotated[str, AfterValidator(check_selector)]
Selectors = Annotated[tuple[SelectorText, ...], Listed]
Names = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    Once,
    BeforeValidator(one_or_listed, json_schema_input_type=str | tuple[str, ...]),
]
