"""A config file as frozen values: where to restore from, by which policy, and how to save.

Each class is one mapping of the file; those under ``manager:`` are in ``policy.manager``. Refused,
besides what every model refuses: a source with two of ``path``, ``directory``, ``average`` and
``all_of``; a policy that is not declared; and ``training_state`` for a source that combines several
checkpoints, which has none.
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

from tfckpt.core.similar import did_you_mean
from tfckpt.policy.base.fields import (
    FileName,
    Listed,
    Model,
    PathText,
    Positive,
    Text,
    fault,
)
from tfckpt.policy.base.messages import ABOVE, show_value
from tfckpt.policy.manager import Manager  # noqa: TC001 (pydantic reads it)
from tfckpt.policy.policy import Policy

if TYPE_CHECKING:
    from pydantic_core import PydanticCustomError

STRICT = Policy(name="strict")
"""The default policy: everything must match, and everything is restored."""


def _select(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not number and value not in {"latest", "best"}:
        raise fault(f"expected latest, best or a checkpoint number, found {show_value(value)}")
    return value


def _unknown_policy(name: str, declared: Any) -> PydanticCustomError | None:
    names = {STRICT.name, *declared}
    if name in names:
        return None
    return fault(f"there is no policy `{name}`", hint=did_you_mean(name, names))


_LOCATIONS = {
    "path": "one checkpoint",
    "directory": "a directory of numbered checkpoints",
    "average": "a list of checkpoints",
    "all_of": "a list of sources",
}
_HINT = "keep one: " + "; ".join(f"`{key}` is {meaning}" for key, meaning in _LOCATIONS.items())


def _location(info: ValidationInfo) -> str:
    """Which of the location keys, among those validated before this one, is present."""
    return next((key for key in _LOCATIONS if info.data.get(key) is not None), "")


class Latest(Model):
    """Average the newest checkpoints of a directory."""

    directory: PathText
    """Directory of numbered checkpoints."""
    checkpoint_name: FileName = "ckpt"
    """What the names of the checkpoints begin with: ckpt for ckpt-1."""
    latest: Annotated[int, Field(ge=2)]
    """How many of the newest to average, at least 2; it is an error if there are fewer."""


def _member(source: Source) -> Source:
    if source.all_of is not None:
        raise fault(
            "a source of `all_of` cannot have `all_of` itself", hint="write all sources in one list"
        )
    if "on_damaged" in source.model_fields_set:
        raise fault(
            "`on_damaged` cannot be set for a single source of `all_of`",
            hint="write it beside `all_of`",
            at="on_damaged",
        )
    return source


class Source(Model):
    """Restore from one checkpoint, a directory of checkpoints, or several combined."""

    path: PathText | None = None
    """Path of one checkpoint, without .index: zoo/imagenet/ckpt-900."""
    directory: PathText | None = None
    """Directory of numbered checkpoints; a relative path is relative to the working directory."""
    average: (
        Annotated[
            Annotated[tuple[PathText, ...], Listed, Tag("\0list")]
            | Annotated[Latest, Tag("\0latest")],
            Discriminator(lambda v: "\0latest" if isinstance(v, dict | Latest) else "\0list"),
        ]
        | None
    ) = None
    """Checkpoints whose weights are averaged; the optimizer's state is not restored."""
    all_of: Annotated[tuple[Annotated[Source, AfterValidator(_member)], ...], Listed] | None = (
        Field(default=None, validate_default=True)
    )
    """Sources to restore together, each by its own policy; no two may restore the same value."""
    weights: Annotated[tuple[Positive, ...], Listed] | None = None
    """Relative weight of each checkpoint listed in `average`; need not sum to 1."""
    checkpoint_name: FileName = "ckpt"
    """What the names of the checkpoints in the directory begin with: ckpt for ckpt-1."""
    select: Annotated[Literal["latest", "best"] | int, BeforeValidator(_select)] = "latest"
    """Which checkpoint of the directory: latest, best, or its number."""
    monitor: Text | None = None
    """Metric of `select: best`; without it, that of the `best` rule by which the run was saved."""
    mode: Literal["min", "max"] | None = None
    """Whether the lowest (min) or the highest (max) value of the metric is the best."""
    policy: Annotated[
        Annotated[str, Tag("\0name")] | Annotated[Policy, Tag("\0inline")],
        Discriminator(lambda v: "\0inline" if isinstance(v, dict | Policy) else "\0name"),
    ] = STRICT.name
    """Name of a policy under `policies`, or the policy itself."""
    on_damaged: Literal["error", "next"] = "error"
    """If there are checkpoints and none can be read: fail, or try the next source."""

    @property
    def members(self) -> tuple[Source, ...]:
        """The sources that values come from: those of ``all_of``, or this one."""
        return self.all_of or (self,)

    @field_validator("directory", "average", "all_of")
    @classmethod
    def _one_place(cls, value: Any, info: ValidationInfo) -> Any:
        other = _location(info)
        if value is not None and other:
            raise fault(
                f"a source has both `{info.field_name}` and `{other}`", hint=_HINT, other=other
            )
        *before, last = _LOCATIONS
        absent = value is None and info.field_name == last and not other
        if absent and all(key in info.data for key in before):
            keys = ", ".join(f"`{key}`" for key in before)
            raise fault(
                f"a source has neither {keys} nor `{last}`", hint="add one of them", at=ABOVE
            )
        if isinstance(value, tuple) and len(value) < 2:
            raise fault(f"`{info.field_name}` must be a list of at least two")
        return value

    @field_validator("checkpoint_name", "select")
    @classmethod
    def _of_a_directory(cls, value: Any, info: ValidationInfo) -> Any:
        if (location := _location(info)) and location != "directory":
            raise fault(
                f"`{info.field_name}` applies to a `directory`, and `{location}` is "
                f"{_LOCATIONS[location]}",
                hint=f"remove `{info.field_name}`",
                other=location,
            )
        return value

    @field_validator("weights")
    @classmethod
    def _of_an_average(cls, value: Any, info: ValidationInfo) -> Any:
        averaged = info.data.get("average")
        if (location := _location(info)) and not isinstance(averaged, tuple):
            raise fault(
                "`weights` needs a list of checkpoints under `average`",
                hint="remove `weights`",
                other=location,
            )
        if isinstance(averaged, tuple) and value is not None and len(value) != len(averaged):
            raise fault(
                f"`weights` has {len(value)} numbers, `average` has {len(averaged)} checkpoints",
                other="average",
            )
        return value

    @field_validator("policy")
    @classmethod
    def _of_one_source(cls, value: Any, info: ValidationInfo) -> Any:
        if _location(info) == "all_of":
            raise fault(
                "`policy` cannot stand beside `all_of`: each of its sources has its own policy",
                hint="move `policy` into the sources, beside their `path` or `directory`",
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

    @model_validator(mode="after")
    def _best_by(self) -> Source:
        beside = {"monitor": self.monitor, "mode": self.mode}
        given = [key for key, value in beside.items() if value is not None]
        if given and self.select != "best":
            raise fault(
                f"`{given[0]}` goes with `select: best`",
                hint=f"add `select: best`, or remove `{given[0]}`",
                at=given[0],
            )
        if len(given) == 1:
            raise fault(
                "`monitor` and `mode` go together",
                hint="e.g. `monitor: val_loss` and `mode: min`; mode is min if lower is better, "
                "max if higher is better",
                at=given[0],
            )
        return self


class Restore(Model):
    """Where to restore from: the first source that holds a checkpoint.

    >>> Restore(directory="runs/a") == Restore(first_of=(Source(directory="runs/a"),))
    True
    """

    first_of: Annotated[tuple[Source, ...], Field(min_length=1), Listed]
    """Sources to try in order; the first that holds a checkpoint is used."""
    if_none: Literal["error", "initialize"] = "error"
    """If no source holds a checkpoint: fail, or start from the initial values."""

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
        key: {**policy, "name": key}
        if isinstance(policy, dict)
        else policy.model_copy(update={"name": key})
        if isinstance(policy, Policy)
        else policy
        for key, policy in value.items()
    }


def _version(value: Any) -> Any:
    # A Literal compares by value, and True == 1 == 1.0.
    if type(value) is not int:
        raise fault(f"expected 1, found {show_value(value)}")
    return value


def _check_policy(source: Source, member: Source, declared: dict[str, Policy]) -> None:
    """Check that the policy exists, and that the source can have the training state it lists."""
    policy = member.policy
    if isinstance(policy, str):
        if (error := _unknown_policy(policy, declared)) is not None:
            raise error
        policy = declared.get(policy, STRICT)
    key = "all_of" if source.all_of is not None else "average"
    combined = source.all_of is not None or member.average is not None
    if combined and "training_state" in policy.model_fields_set and policy.training_state:
        raise fault(
            f"policy `{policy.name}` has `training_state`, and a source with `{key}` has no "
            "training state: it starts a new training",
            hint="remove `training_state` from the policy, or use another policy for this source",
        )


class Config(Model):
    """A tfckpt config file."""

    version: Annotated[Literal[1], BeforeValidator(_version)]
    """Version of the config format; must be 1."""
    manager: Manager | None = None
    """Where and when to save checkpoints, and which to keep."""
    policies: Annotated[dict[str, Policy], BeforeValidator(_named)] = Field(default_factory=dict)
    """Restore policies by name; strict is built in, and unused ones are allowed."""
    restore: Restore | None = None
    """Where to restore from: one source, or several under `first_of`."""

    @field_validator("policies")
    @classmethod
    def _strict_is_built_in(cls, value: dict[str, Policy]) -> dict[str, Policy]:
        if STRICT.name in value:
            raise fault(
                f"`{STRICT.name}` is the built-in policy and cannot be redefined",
                hint="choose another name",
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
    def unused_policy_hint(self) -> str:
        """A hint if a source has no policy and the config has a policy that no source uses.

        >>> from tfckpt.policy import load_config
        >>> restore, policies = {"path": "zoo/ckpt-1"}, {"finetune": {"include": ["model/**"]}}
        >>> load_config({"version": 1, "restore": restore, "policies": policies}).unused_policy_hint
        'no source uses the policy `finetune`: write `policy: finetune` beside its `path`'
        """
        first_of = self.restore.first_of if self.restore else ()
        members = [member for source in first_of for member in source.members]
        unnamed = sorted(
            self.policies.keys()
            - {member.policy for member in members if isinstance(member.policy, str)}
        )
        without = [source for source in members if "policy" not in source.model_fields_set]
        if not unnamed or not without:
            return ""
        which = ", ".join(f"`{name}`" for name in unnamed)
        key = next(each for each in _LOCATIONS if getattr(without[0], each, None) is not None)
        return f"no source uses the policy {which}: write `policy: {unnamed[0]}` beside its `{key}`"

    def policy_of(self, source: Source) -> Policy:
        """The policy of a source of this config.

        >>> Config(version=1).policy_of(Source(path="zoo/ckpt-1")).name
        'strict'
        """
        if isinstance(source.policy, Policy):
            return source.policy
        return STRICT if source.policy == STRICT.name else self.policies[source.policy]
