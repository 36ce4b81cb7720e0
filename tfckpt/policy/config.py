"""A whole config, as frozen values: where to restore from, by which policy, and how to save.

Each class is one mapping of the file, as in ``model``; those under ``manager:`` are in ``saving``.
Refused besides what every model refuses: a source that is two things at once, one artefact and a
directory, say; a policy that nobody declared; and one that takes the state of a training from where
there is none, several checkpoints that are put together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
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
    Positive,
    fault,
)
from tfckpt.policy.manager import Manager  # noqa: TC001 (pydantic reads it)
from tfckpt.policy.messages import ABOVE, did_you_mean, show_value
from tfckpt.policy.policy import Policy

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


_PLACES = {
    "path": "one artefact",
    "directory": "a directory of numbered checkpoints",
    "average": "a list of its own",
    "all_of": "a list of sources",
}
_HINT = "; ".join(f"`{key}` is {meaning}" for key, meaning in _PLACES.items())


def _place(info: ValidationInfo) -> str:
    """Which of the keys that say where, among those before this one, is given."""
    return next((key for key in _PLACES if info.data.get(key) is not None), "")


class Latest(Model):
    """The newest checkpoints of a directory, to be averaged."""

    directory: PathText
    """A directory of numbered checkpoints."""
    checkpoint_name: FileName = "ckpt"
    """What their names begin with."""
    latest: Annotated[int, Field(ge=2)]
    """How many of the newest; fewer are an error."""


def _member(source: Source) -> Source:
    if source.all_of is not None:
        raise fault("a source of `all_of` has `all_of` itself", hint="one list is enough")
    if "on_damaged" in source.model_fields_set:
        raise fault(
            "`on_damaged` of a source of `all_of` cannot leave this one out alone",
            hint="write it beside `all_of`",
            at="on_damaged",
        )
    return source


class Source(Model):
    """One place to restore from: an artefact, a directory of them, or several put together."""

    path: PathText | None = None
    """One checkpoint, by its prefix: zoo/imagenet/ckpt-900."""
    directory: PathText | None = None
    """A directory of numbered checkpoints; relative ones are relative to the working directory."""
    average: (
        Annotated[
            Annotated[tuple[PathText, ...], Listed, Tag("\0list")]
            | Annotated[Latest, Tag("\0latest")],
            Discriminator(lambda v: "\0latest" if isinstance(v, dict | Latest) else "\0list"),
        ]
        | None
    ) = None
    """Checkpoints of which the weights are averaged; the optimizer's state is not."""
    all_of: Annotated[tuple[Annotated[Source, AfterValidator(_member)], ...], Listed] | None = (
        Field(default=None, validate_default=True)
    )
    """Sources that are restored at once, each by its own policy; no value from two of them."""
    weights: Annotated[tuple[Positive, ...], Listed] | None = None
    """What each of `average` counts; their sum does not matter."""
    checkpoint_name: FileName = "ckpt"
    """What the names in the directory begin with."""
    select: Annotated[Literal["latest"] | int, BeforeValidator(_select)] = "latest"
    """Which of them."""
    policy: Annotated[
        Annotated[str, Tag("\0name")] | Annotated[Policy, Tag("\0inline")],
        Discriminator(lambda v: "\0inline" if isinstance(v, dict | Policy) else "\0name"),
    ] = STRICT.name
    """The name of a policy, or a policy written out."""
    on_damaged: Literal["error", "next"] = "error"
    """What follows where there are checkpoints and none of them can be read."""

    @property
    def members(self) -> tuple[Source, ...]:
        """The sources that values come from: those of ``all_of``, or this one."""
        return self.all_of or (self,)

    @field_validator("directory", "average", "all_of")
    @classmethod
    def _one_place(cls, value: Any, info: ValidationInfo) -> Any:
        other = _place(info)
        if value is not None and other:
            raise fault(
                f"a source has both `{info.field_name}` and `{other}`", hint=_HINT, other=other
            )
        *before, last = _PLACES
        absent = value is None and info.field_name == last and not other
        if absent and all(key in info.data for key in before):
            keys = ", ".join(f"`{key}`" for key in before)
            raise fault(f"a source has neither {keys} nor `{last}`", at=ABOVE)
        if isinstance(value, tuple) and len(value) < 2:
            raise fault(f"`{info.field_name}` is a list of at least two")
        return value

    @field_validator("checkpoint_name", "select")
    @classmethod
    def _of_a_directory(cls, value: Any, info: ValidationInfo) -> Any:
        if (place := _place(info)) and place != "directory":
            what = f"`{info.field_name}` chooses within a directory"
            raise fault(f"{what}, and `{place}` is {_PLACES[place]}", other=place)
        return value

    @field_validator("weights")
    @classmethod
    def _of_an_average(cls, value: Any, info: ValidationInfo) -> Any:
        averaged = info.data.get("average")
        if (place := _place(info)) and not isinstance(averaged, tuple):
            raise fault("`weights` are those of a list under `average`", other=place)
        if isinstance(averaged, tuple) and value is not None and len(value) != len(averaged):
            raise fault(
                f"there are {len(value)} weights for {len(averaged)} checkpoints", other="average"
            )
        return value

    @field_validator("policy")
    @classmethod
    def _of_one_source(cls, value: Any, info: ValidationInfo) -> Any:
        if _place(info) == "all_of":
            raise fault(
                "`all_of` has no policy: each of its sources has its own",
                hint="write it beside the `path` or `directory` that it is for",
                other="all_of",
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

    first_of: Annotated[tuple[Source, ...], Field(min_length=1), Listed]
    """Sources in order; an unreadable one is an error unless it says on_damaged: next."""
    if_none: Literal["error", "initialize"] = "error"
    """What follows where no source holds a checkpoint."""

    @model_validator(mode="before")
    @classmethod
    def _one_source(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "first_of" in value:
            return value
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


def _check_policy(source: Source, member: Source, declared: dict[str, Policy]) -> None:
    """That a policy is known, and asks for nothing that is not there."""
    policy = member.policy
    if isinstance(policy, str):
        if (error := _unknown_policy(policy, declared)) is not None:
            raise error
        policy = declared.get(policy, STRICT)
    several = "all_of" if source.all_of is not None else "average"
    put_together = source.all_of is not None or member.average is not None
    if put_together and "training_state" in policy.model_fields_set and policy.training_state:
        raise fault(
            f"policy `{policy.name}` takes the state of a training by `training_state`, and "
            f"`{several}` has none: with it a training begins",
            hint="leave training_state out of the policy, or give this source another one",
        )


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
                for member in source.members:
                    _check_policy(source, member, info.data["policies"])
        return value

    @property
    def forgotten(self) -> str:
        """What to write where a source has no policy, and the file one that no source names.

        >>> from tfckpt.policy import load_config
        >>> restore, policies = {"path": "zoo/ckpt-1"}, {"finetune": {"include": ["model/**"]}}
        >>> load_config({"version": 1, "restore": restore, "policies": policies}).forgotten
        'no source names the policy `finetune`: write `policy: finetune` beside its `path`'
        """
        first_of = self.restore.first_of if self.restore else ()
        members = [member for source in first_of for member in source.members]
        unnamed = sorted(
            self.policies.keys()
            - {member.policy for member in members if isinstance(member.policy, str)}
        )
        without = [one for one in members if "policy" not in one.model_fields_set]
        if not unnamed or not without:
            return ""
        which = ", ".join(f"`{name}`" for name in unnamed)
        place = next(key for key in _PLACES if getattr(without[0], key, None) is not None)
        return (
            f"no source names the policy {which}: write `policy: {unnamed[0]}` beside its `{place}`"
        )

    def policy_of(self, source: Source) -> Policy:
        """The policy of a source of this config.

        >>> Config(version=1).policy_of(Source(path="zoo/ckpt-1")).name
        'strict'
        """
        if isinstance(source.policy, Policy):
            return source.policy
        return STRICT if source.policy == STRICT.name else self.policies[source.policy]
