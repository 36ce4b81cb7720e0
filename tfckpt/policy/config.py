"""A whole config, as frozen values: where to restore from, by which policy, and how to save.

Each class is one mapping of the file, as in ``model``; those under ``manager:`` are in ``saving``.
Refused besides what every model refuses: a source that is both one artefact and a directory, and a
policy that nobody declared. The keys that wait for a later release say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tfckpt.policy.fields import (
    FileName,
    Listed,
    Model,
    PathText,
    fault,
    not_supported,
)
from tfckpt.policy.messages import did_you_mean, show_value
from tfckpt.policy.model import Policy
from tfckpt.policy.saving import Manager  # noqa: TC001 (pydantic reads it)

if TYPE_CHECKING:
    from pydantic_core import PydanticCustomError

STRICT = Policy(name="strict")
"""The policy of a source that names none: everything must match, all of it is restored."""


def _select(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not number and value != "latest":
        raise fault(f"expected latest or the number of a checkpoint, found {show_value(value)}")
    return value


def _unknown_policy(name: str, declared: Any) -> PydanticCustomError | None:
    known = {STRICT.name, *declared}
    if name in known:
        return None
    return fault(f"there is no policy `{name}`", hint=did_you_mean(name, known))


class Source(Model):
    """One place to restore from: a directory of numbered checkpoints, or one artefact."""

    later: ClassVar[frozenset[str]] = frozenset({"format"})

    path: PathText | None = None
    """One checkpoint, by its prefix: zoo/imagenet/ckpt-900."""
    directory: PathText | None = Field(default=None, validate_default=True)
    """A directory of numbered checkpoints; relative ones are relative to the working directory."""
    checkpoint_name: FileName = "ckpt"
    """What their names begin with."""
    select: Annotated[Literal["latest"] | int, BeforeValidator(_select)] = "latest"
    """Which of them."""
    policy: Annotated[
        Annotated[str, Tag("\0name")] | Annotated[Policy, Tag("\0inline")],
        Discriminator(lambda v: "\0inline" if isinstance(v, dict | Policy) else "\0name"),
    ] = STRICT.name
    """The name of a policy, or a policy written out."""
    on_damaged: Literal["error", "next"] = "error"
    """What follows where there are checkpoints and none of them can be read."""

    @field_validator("directory")
    @classmethod
    def _one_place(cls, value: str | None, info: ValidationInfo) -> str | None:
        if "path" in info.data:
            path = info.data["path"]
            if value is None and path is None:
                raise fault("a source has neither `path` nor `directory`")
            if value is not None and path is not None:
                raise fault(
                    "a source has both `directory` and `path`",
                    hint="`directory` holds numbered checkpoints, `path` is one artefact",
                    other="path",
                )
        return value

    @field_validator("checkpoint_name", "select")
    @classmethod
    def _of_a_directory(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("path") is not None:
            raise fault(
                f"`{info.field_name}` chooses within a directory, and `path` is one artefact",
                other="path",
            )
        return value

    @field_validator("policy")
    @classmethod
    def _declared(cls, value: str | Policy, info: ValidationInfo) -> str | Policy:
        if isinstance(value, str) and info.context is not None:
            error = _unknown_policy(value, info.context["policies"])
            if error is not None:
                raise error
        return value


class Restore(Model):
    """Where to restore from: the first source that holds a checkpoint.

    >>> Restore(directory="runs/a") == Restore(first_of=(Source(directory="runs/a"),))
    True
    """

    later: ClassVar[frozenset[str]] = frozenset({"all_of"})

    first_of: Annotated[tuple[Source, ...], Field(min_length=1), Listed]
    """Sources in order; an unreadable one is an error unless it says on_damaged: next."""
    if_none: Literal["error", "initialize"] = "error"
    """What follows where no source holds a checkpoint."""

    @model_validator(mode="before")
    @classmethod
    def _one_source(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "first_of" in value:
            return value
        for key in cls.later & value.keys():
            raise not_supported(key, at=key)
        source = {key: inner for key, inner in value.items() if key != "if_none"}
        return {"first_of": (source,), **{k: v for k, v in value.items() if k not in source}}


def _named(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        key: {**one, "name": key}
        if isinstance(one, dict)
        else one.model_copy(update={"name": key})
        if isinstance(one, Policy)
        else one
        for key, one in value.items()
    }


def _version(value: Any) -> Any:
    # A Literal compares by value, and True == 1 == 1.0.
    if type(value) is not int:
        raise fault(f"expected 1, found {show_value(value)}")
    return value


class Config(Model):
    """A whole config file."""

    version: Annotated[Literal[1], BeforeValidator(_version)]
    """Of the language."""
    manager: Manager | None = None
    """Where and when checkpoints are saved."""
    policies: Annotated[dict[str, Policy], BeforeValidator(_named)] = Field(default_factory=dict)
    """Policies by name; one that no source names is allowed."""
    restore: Restore | None = None
    """Where to restore from."""

    @field_validator("policies")
    @classmethod
    def _strict_is_built_in(cls, value: dict[str, Policy]) -> dict[str, Policy]:
        if STRICT.name in value:
            raise fault(
                f"`{STRICT.name}` is the built-in policy and cannot be declared",
                hint="give yours another name",
                at=STRICT.name,
            )
        return value

    @field_validator("restore")
    @classmethod
    def _policies_exist(cls, value: Restore | None, info: ValidationInfo) -> Restore | None:
        if value is not None and "policies" in info.data:
            for source in value.first_of:
                if isinstance(source.policy, str):
                    error = _unknown_policy(source.policy, info.data["policies"])
                    if error is not None:
                        raise error
        return value

    def policy_of(self, source: Source) -> Policy:
        """The policy of a source of this config.

        >>> Config(version=1).policy_of(Source(path="zoo/ckpt-1")).name
        'strict'
        """
        if isinstance(source.policy, Policy):
            return source.policy
        return STRICT if source.policy == STRICT.name else self.policies[source.policy]
