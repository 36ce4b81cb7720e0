"""A config file as frozen values: where to restore from, by which policy, and how to save.

Each class is one mapping of the file; those under ``manager:`` are in ``policy.manager``. Refused,
besides what every model refuses: a source with two of ``path``, ``directory`` and ``all_of``; a
policy that is not declared; and ``training_state`` for a source that combines several checkpoints,
which has none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    field_validator,
)

from tfckpt.core.similar import did_you_mean, nearly_same
from tfckpt.policy.fields import (
    Expanded,
    FileName,
    GoesWith,
    Listed,
    Model,
    OneOf,
    PathText,
    Text,
    beside,
    fault,
    lacks,
)
from tfckpt.policy.manager import BY_A_METRIC, MONITOR_AND_MODE, Manager, Mode
from tfckpt.policy.messages import show_value
from tfckpt.policy.policy import Policy, RuleLocations

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = "own"
"""As a source: the manager's directory."""

STRICT = Policy(name="strict")
"""The default policy: everything must match, and everything is restored."""


def _select(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not number and value not in ("latest", "best"):
        raise fault(f"expected latest, best or a checkpoint number, found {show_value(value)}")
    return value


_Select = Annotated[Literal["latest", "best"] | int, BeforeValidator(_select), Expanded]


_PolicyOrName = Annotated[
    Annotated[str, Expanded, Tag("\0name")] | Annotated[Policy, Tag("\0inline")],
    Discriminator(lambda v: "\0inline" if isinstance(v, dict | Policy) else "\0name"),
]


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

    section: ClassVar[str] = "restore"

    path: PathText | None = None
    """Path of one checkpoint, without .index: zoo/imagenet/ckpt-900."""
    directory: PathText | None = None
    """Directory of numbered checkpoints; own is the manager's (./own is one of that name)."""
    all_of: Annotated[tuple[Annotated[Source, AfterValidator(_member)], ...], Listed] | None = (
        Field(default=None, validate_default=True)
    )
    """Sources to restore together, each by its own policy; no two may restore the same value."""
    checkpoint_name: FileName = "ckpt"
    """What the names of the checkpoints in the directory begin with: ckpt for ckpt-1."""
    select: _Select = "latest"
    """Which checkpoint of the directory: latest, best, or its number."""
    monitor: Text | None = None
    """Metric of `select: best`; without it, that of the `best` rule by which the run was saved."""
    mode: Mode = None
    """Whether the lowest (min) or highest (max) value is best; by default as its name says."""
    policy: _PolicyOrName = STRICT.name
    """Name of a policy under `policies`, or the policy itself."""
    on_damaged: Literal["error", "next"] = "error"
    """If there are checkpoints and none can be read: fail, or try the next source."""

    one_of: ClassVar[OneOf] = OneOf(
        ("path", "directory", "all_of"),
        "a source has",
        "neither `path`, `directory` nor `all_of`",
        "write one of them: `path` is one checkpoint; `directory` is a directory of numbered "
        "checkpoints; `all_of` is a list of sources",
    )
    goes_with: ClassVar[tuple[GoesWith, ...]] = (
        GoesWith(
            "checkpoint_name select",
            "path all_of",
            beside,
            "`{key}` applies to a `directory`, and this source has `{other}`",
            "remove `{key}`",
        ),
        GoesWith(
            "monitor mode",
            "select",
            lambda value, select: value is not None and select != "best",
            "`{key}` goes with `select: best`",
            "add `select: best`, or remove `{key}`",
        ),
        GoesWith("mode", "monitor", lacks, "`mode` needs `monitor`", BY_A_METRIC),
        MONITOR_AND_MODE,
        GoesWith(
            "policy",
            "all_of",
            beside,
            "`policy` cannot stand beside `all_of`: each of its sources has its own policy",
            "move `policy` into the sources, beside their `path` or `directory`",
        ),
    )

    @property
    def members(self) -> tuple[Source, ...]:
        """The sources that values come from: those of ``all_of``, or this one."""
        return self.all_of or (self,)

    @field_validator("all_of")
    @classmethod
    def _several(cls, value: Any) -> Any:
        if isinstance(value, tuple) and len(value) < 2:
            raise fault("`all_of` must be a list of at least two")
        return value

    @field_validator("policy")
    @classmethod
    def _declared(cls, value: str | Policy, info: ValidationInfo) -> str | Policy:
        if isinstance(value, str) and info.context is not None:
            _check_name(value, info.context["policies"])
        return value


def _short(value: Any) -> Any:
    return {"directory": OWN} if value == OWN else value


_IfNone = Literal["error", "initialize"]
_S = TypeVar("_S", bound=Source)
_Short = BeforeValidator(_short, json_schema_input_type=Source | Literal["own"])


class Restore(Model):
    """Where to restore from: the first source that holds a checkpoint."""

    section: ClassVar[str] = "restore"

    first_of: Annotated[tuple[Annotated[Source, _Short], ...], Field(min_length=1), Listed]
    """Sources to try in order, own among them; the first that holds a checkpoint is used."""
    if_none: _IfNone = "error"
    """If no source holds a checkpoint: fail, or start from the initial values."""


class OnlySource(Source):
    """The only source to restore from, which stands under ``restore`` itself.

    >>> OnlySource(path="zoo/ckpt-1").first_of[0].path
    'zoo/ckpt-1'
    """

    if_none: _IfNone = "error"
    """If it holds no checkpoint: fail, or initialize, the default of own: start as the model is."""

    @property
    def first_of(self) -> tuple[Source, ...]:
        """Itself, as in :class:`Restore`."""
        return (self,)


def _form_of_restore(value: Any) -> str:
    listed = isinstance(value, Restore) or (isinstance(value, dict) and "first_of" in value)
    return "\0first_of" if listed else "\0only"


_Restore = Annotated[
    Annotated[Restore, Tag("\0first_of")]
    | Annotated[
        OnlySource,
        BeforeValidator(_short, json_schema_input_type=OnlySource | Literal["own", "none"]),
        Tag("\0only"),
    ],
    Discriminator(_form_of_restore),
]


def _with_own(source: _S, manager: Manager) -> _S:
    """The source, with the manager's directory in place of ``own``."""
    if source.all_of is not None:
        members = tuple(_with_own(member, manager) for member in source.all_of)
        return source.model_copy(update={"all_of": members})
    if source.directory != OWN:
        return source
    own = {"checkpoint_name": manager.checkpoint_name, "if_none": "initialize"}
    unset = type(source).model_fields.keys() - source.model_fields_set
    own = {key: value for key, value in own.items() if key in unset}
    return source.model_copy(update={"directory": manager.directory, **own})


def _version(value: Any) -> Any:
    # A Literal compares by value, and True == 1 == 1.0.
    if type(value) is not int or value != 1:
        raise fault(f"expected 1, found {show_value(value)}", hint="write `version: 1`")
    return value


def _check_name(policy: str, declared: Any) -> None:
    names = {STRICT.name, *declared}
    if policy not in names:
        raise fault(f"there is no policy `{policy}`", hint=did_you_mean(policy, names))


class Config(Model):
    """A tfckpt config file."""

    section: ClassVar[str] = "config"

    version: Annotated[Literal[1], BeforeValidator(_version)]
    """Version of the config format; must be 1."""
    manager: Manager | None = None
    """Where and when to save checkpoints, and which to keep."""
    policies: dict[str, Policy] = Field(default_factory=dict)
    """Restore policies by name; strict is built in, and unused ones are allowed."""
    restore: _Restore | None = Field(default=None, validate_default=True)
    """Where to restore from: own, the default beside a manager; none; a source; or `first_of`."""
    _locations: RuleLocations = PrivateAttr(default=RuleLocations())

    @field_validator("policies")
    @classmethod
    def _named(cls, value: dict[str, Policy]) -> dict[str, Policy]:
        if STRICT.name in value:
            raise fault(
                f"`{STRICT.name}` is the built-in policy and cannot be redefined",
                hint="choose another name",
                at=STRICT.name,
            )
        return {name: one.model_copy(update={"name": name}) for name, one in value.items()}

    @field_validator("restore", mode="before")
    @classmethod
    def _own_by_default(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None:
            return OWN if info.data.get("manager") else None
        return (
            Restore.model_construct(first_of=(), if_none="initialize") if value == "none" else value
        )

    @field_validator("restore")
    @classmethod
    def _of_the_manager(cls, value: Any, info: ValidationInfo) -> Any:
        sources = value.first_of if value is not None else ()
        own = [one for source in sources for one in source.members if one.directory == OWN]
        if not own or "manager" not in info.data:
            return value
        if (manager := info.data["manager"]) is None:
            raise fault(
                f"`{OWN}` is the directory of the `manager`, and the config has none",
                hint="add `manager: {directory: …}`, or write the directory here",
            )
        if isinstance(value, OnlySource):
            return _with_own(value, manager)
        first_of = tuple(_with_own(source, manager) for source in sources)
        return value.model_copy(update={"first_of": first_of})

    @field_validator("restore")
    @classmethod
    def _policies_exist(cls, value: Any, info: ValidationInfo) -> Any:
        declared = {STRICT.name: STRICT, **info.data.get("policies", {})}
        sources = value.first_of if value is not None and "policies" in info.data else ()
        for source, member in ((each, one) for each in sources for one in each.members):
            if isinstance(policy := member.policy, str):
                _check_name(policy, declared)
                policy = declared[policy]
            given = "training_state" in policy.model_fields_set and policy.training_state
            if given and member is not source:
                raise fault(
                    f"policy `{policy.name}` has `training_state`, and a source with `all_of` has "
                    "no training state: it starts a new training",
                    hint="remove `training_state` from the policy, or use another policy for this "
                    "source",
                )
        return value

    @property
    def members(self) -> tuple[Source, ...]:
        """All sources that values may come from."""
        first_of = self.restore.first_of if self.restore else ()
        return tuple(member for source in first_of for member in source.members)

    @property
    def unused_policy_hint(self) -> str:
        """A hint if a source has no policy and the config has a policy that no source uses.

        >>> from tfckpt.policy import load_config
        >>> restore, policies = {"path": "zoo/ckpt-1"}, {"finetune": {"include": ["model/**"]}}
        >>> load_config({"version": 1, "restore": restore, "policies": policies}).unused_policy_hint
        'no source uses the policy `finetune`: write `policy: finetune` beside its `path`'
        """
        used = {each.extends for each in self.policies.values()}
        used |= {each if isinstance(each := s.policy, str) else each.extends for s in self.members}
        unnamed = sorted(self.policies.keys() - used)
        without = [source for source in self.members if "policy" not in source.model_fields_set]
        if not unnamed or not without:
            return ""
        which = ", ".join(f"`{name}`" for name in unnamed)
        key = next(
            each for each in Source.one_of.keys if getattr(without[0], each, None) is not None
        )
        return f"no source uses the policy {which}: write `policy: {unnamed[0]}` beside its `{key}`"

    def policy_of(self, source: Source) -> Policy:
        """The policy of a source of this config.

        >>> Config(version=1).policy_of(Source(path="zoo/ckpt-1")).name
        'strict'
        """
        if isinstance(source.policy, Policy):
            return source.policy
        return STRICT if source.policy == STRICT.name else self.policies[source.policy]


def directory_mismatch(config: Config) -> str:
    """Why a restarted run does not find its own checkpoints, "" if it does.

    Saving and restoring in two directories is reported only if their names are nearly the same, or
    if every start would begin from the initial values.

    >>> from tfckpt.policy import load_config
    >>> run = {"manager": {"directory": "runs/digits"}, "restore": {"directory": "runs/digit"}}
    >>> print(directory_mismatch(load_config({"version": 1, **run})))
    manager.directory 'runs/digits' and restore.directory 'runs/digit' are nearly the same: ...
    """
    if config.manager is None or config.restore is None or restores_its_own(config):
        return ""
    own, name = config.manager.directory, config.manager.checkpoint_name
    sources = list(_directories(config))
    key = "restore.directory" if len(config.restore.first_of) == 1 else "restore.first_of"
    for path, other in sources:
        if same_directory(own, path):
            return (
                f"manager.checkpoint_name is {name!r}, but checkpoint_name of {key} {path!r} is "
                f"{other!r}: the run does not restore what it saves"
            )
        if nearly_same(_absolute(own), _absolute(path)):
            return (
                f"manager.directory {own!r} and {key} {path!r} are nearly the same: the run does "
                "not restore what it saves"
            )
    if sources and config.restore.if_none == "initialize":
        return (
            f"the run saves into manager.directory {own!r} but does not restore from it: with "
            "if_none: initialize, every start begins from the initial values"
        )
    return ""


def restores_its_own(config: Config) -> bool:
    """Whether a restarted run finds what it has saved."""
    if config.manager is None:
        return False
    own, name = config.manager.directory, config.manager.checkpoint_name
    return any(same_directory(own, at) and name == other for at, other in _directories(config))


def _directories(config: Config) -> Iterator[tuple[str, str]]:
    for source in config.members:
        if source.directory is not None:
            yield source.directory, source.checkpoint_name


def _absolute(path: str) -> str:
    return path.rstrip("/") if "://" in path else os.path.realpath(path)


def same_directory(path: str, other: str) -> bool:
    """Whether two paths are the same directory."""
    return _absolute(path) == _absolute(other)
