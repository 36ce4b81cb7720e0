"""A policy as a frozen value: what a restore may change, and which differences it accepts.

Each class is one mapping of the file, each field one key (``assert_`` is ``assert``; a policy's
``name`` is its key under ``policies``). Keys are named as in TensorFlow and Keras where possible.
``assert`` and ``expect_partial`` are presets over ``on_missing`` and ``on_unexpected``, resolved
when the policy is created, so that no other module has to know them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import SkipJsonSchema  # noqa: TC002 - pydantic reads it
from pydantic_core import PydanticCustomError

from tfckpt.policy.adapt import Adapt  # noqa: TC001 - pydantic reads it
from tfckpt.policy.fields import (
    Count,
    GoesWith,
    Listed,
    Model,
    Names,
    Once,
    Selectors,
    SelectorText,
    fault,
    one_or_listed,
    unpaired,
)
from tfckpt.policy.messages import show_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.policy.messages import Path

Action = Literal["error", "warn", "ignore"]
Assertion = Literal["consumed", "existing_objects_matched", "nontrivial_match", "none"]
Dtype = Literal[
    "bfloat16", "bool", "complex64", "complex128", "float16", "float32", "float64", "int8", "int16",
    "int32", "int64", "string", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

_PRESETS: dict[str | None, tuple[Action, Action]] = {
    "consumed": ("error", "error"),
    "existing_objects_matched": ("error", "warn"),
    "nontrivial_match": ("warn", "warn"),
    "none": ("warn", "warn"),
    None: ("error", "error"),
}


@dataclasses.dataclass(frozen=True)
class RuleLocations:
    """Lines and columns of a policy in its file; ignored by comparison, so all are equal."""

    file: str = dataclasses.field(default="", compare=False)
    path: Path = dataclasses.field(default=(), compare=False)
    at: Mapping[Path, tuple[int, int]] = dataclasses.field(default_factory=dict, compare=False)


class Rename(Model):
    """Map checkpoint names that match `checkpoint` to each name in `model`."""

    checkpoint: SelectorText
    """Selector over checkpoint names."""
    model: Names
    """Name or names in the model; with the same wildcards, or groups of the regex as \\1."""

    goes_with: ClassVar[tuple[GoesWith, ...]] = (GoesWith("model", "checkpoint", unpaired),)


class OptimizerRules(Model):
    """What to restore of an optimizer's state."""

    section: ClassVar[str] = "policy.optimizer"

    slots: Literal["restore", "reset"] = "restore"
    """Momentums and other slots: restore them (written out, by index, as what is frozen now was
    frozen then), or reset them as in a new optimizer."""
    iterations: Literal["restore", "reset"] = Field(
        default_factory=lambda data: data.get("slots", "restore")
    )
    """Step counter of the optimizer: restore it, or reset it to 0; by default as the slots."""
    hyperparameters: Literal["restore", "config"] = "restore"
    """Learning rate and the like: restore them, or keep what the code configured."""


def _as_a_whole(value: Any) -> Any:
    if value == "reset":
        return {"slots": "reset", "hyperparameters": "config"}
    if not isinstance(value, dict | OptimizerRules):
        raise fault(
            f"expected reset or a mapping, found {show_value(value)}",
            hint="leave it out: the optimizer is restored without it"
            if value in (True, "restore")
            else "write `optimizer: reset`, and it begins as a new one",
        )
    return value


class InputSpec(Model):
    """Shape and dtype of one input of a Keras model."""

    shape: Annotated[tuple[Count | None, ...], Listed]
    """Shape with the batch dimension, null for an unknown size: [null, 28, 28, 1]."""
    dtype: Dtype = "float32"
    """Name of the dtype in TensorFlow."""


def _inputs_tag(value: Any) -> str:
    if isinstance(value, list | tuple):
        return (
            "\0one"
            if value and all(type(size) in {int, type(None)} for size in value)
            else "\0list"
        )
    is_mapping_of_specs = isinstance(value, dict) and not isinstance(
        value.get("shape"), list | tuple
    )
    return "\0named" if is_mapping_of_specs and not {"shape", "dtype"} >= set(value) else "\0one"


Inputs = Annotated[
    Annotated[InputSpec, Tag("\0one")]
    | Annotated[tuple[InputSpec, ...], Listed, Tag("\0list")]
    | Annotated[dict[str, InputSpec], Tag("\0named")],
    Discriminator(_inputs_tag),
]


TrainingState = Literal["epoch", "batch", "iterator", "seeds", "callbacks"]
# A batch is a position in an epoch's data; callbacks count epochs.
_NEEDED = {"batch": {"epoch", "iterator"}, "callbacks": {"epoch"}}


_MatchBy = Literal["name", "structure"]
Match = Annotated[
    tuple[_MatchBy, ...],
    Once,
    BeforeValidator(one_or_listed, json_schema_input_type=_MatchBy | tuple[_MatchBy, ...]),
]


def _preferred(value: Any) -> Any:
    if value in ("prefer", None):
        return value
    raise fault(
        "`ema` is `prefer`, or left out",
        hint="averages alone: `exclude_checkpoint: ['model/**']` with "
        "`rename: [{checkpoint: 'optimizer/moving_average/**', model: 'model/**'}]`",
    )


def _preset(data: Mapping[str, Any]) -> tuple[Action, Action]:
    assertion, partial = data.get("assert_"), data.get("expect_partial")
    missing, unexpected = _PRESETS[assertion]
    if not partial:
        return missing, unexpected
    return (missing if assertion == "existing_objects_matched" else "ignore"), "ignore"


class Policy(Model):
    """What a restore may change, and which differences it accepts.

    Raises:
        PolicyError: a field has the wrong type, a selector is invalid, or two fields contradict.

    >>> policy = Policy(include=("model/**",), exclude=("model/head/**",), assert_="none")
    >>> policy.on_missing, policy.on_unexpected
    ('warn', 'warn')

    """

    section: ClassVar[str] = "policy"

    name: SkipJsonSchema[str] = "policy"
    """The policy's key under ``policies``; not a key of its mapping."""
    extends: str | None = None
    """Name of a policy of this config whose keys apply, too, where this one does not have them."""
    api: Literal["restore", "read"] = "restore"
    """restore also restores save_counter, read does not, as in tf.train.Checkpoint."""
    assert_: Assertion | None = Field(default=None, alias="assert")
    """Status assertion of tf.train.Checkpoint that must hold; sets on_missing, on_unexpected."""
    expect_partial: bool = False
    """Accept missing and unused values without a warning, like TensorFlow's expect_partial()."""
    include: Annotated[tuple[SelectorText, ...], Field(min_length=1), Listed] = ("**",)
    """Selectors over model names: what may be restored."""
    exclude: Selectors = ()
    """Selectors over model names: what to leave unchanged."""
    exclude_checkpoint: Selectors = ()
    """Selectors over checkpoint names: what not to use."""
    rename: Annotated[tuple[Rename, ...], Listed] = ()
    """Checkpoint names that differ in the model; the first rule that matches a name applies."""
    adapt: Annotated[tuple[Adapt, ...], Listed] = ()
    """How to change values so that they fit the model; all rules that match, in order."""
    expect_missing: Selectors = ()
    """Selectors over model names: what must not be in the checkpoint."""
    expect_unexpected: Selectors = ()
    """Selectors over checkpoint names: what nothing may use."""
    on_missing: Action = Field(default_factory=lambda data: _preset(data)[0])
    """If a selected variable is not in the checkpoint: fail, warn, or only report it."""
    on_unexpected: Action = Field(default_factory=lambda data: _preset(data)[1])
    """If nothing uses a value of the checkpoint: fail, warn, or only report it."""
    on_shape_mismatch: Literal["error", "skip"] = "error"
    """If shapes differ: fail, or skip the value and leave the variable unchanged."""
    on_dtype_mismatch: Literal["error", "cast"] = "error"
    """If dtypes differ: fail, or cast to the dtype of the variable."""
    optimizer: Annotated[
        OptimizerRules,
        BeforeValidator(_as_a_whole, json_schema_input_type=OptimizerRules | Literal["reset"]),
    ] = OptimizerRules()
    """What to restore of the optimizer's state; reset: nothing, it begins as a new one."""
    min_restored: Annotated[float, Field(ge=0, le=1)] | None = None
    """Minimum fraction (0 to 1) of the selected parameters that must be restored."""
    allow_empty: bool = False
    """Allow a restore that restores no value at all."""
    match: Match = ("name", "structure")
    """What must agree for automatically named layers: their names, their order, or both."""
    ema: Annotated[Literal["prefer"] | None, BeforeValidator(_preferred)] = None
    """prefer: a weight gets its moving average, where the checkpoint has one."""
    verify: Literal["none", "checksums", "values"] = "checksums"
    """Assign values as read, or once checksums hold, or also compare the variables afterwards."""
    build: dict[str, Inputs] | None = None
    """Input shapes and dtypes of Keras models or layers that are not built yet, by keyword."""
    training_state: Annotated[tuple[TrainingState, ...], Once, Listed] = get_args(TrainingState)
    """Training state to restore; outside the manager's directory, only if written here."""

    goes_with: ClassVar[tuple[GoesWith, ...]] = (
        GoesWith(
            "expect_partial",
            "assert_",
            lambda partial, assertion: partial and assertion == "consumed",
            "`expect_partial: true` contradicts `assert: consumed`, which requires that every "
            "value of the checkpoint is used",
            "remove one of the two",
        ),
        GoesWith(
            "on_shape_mismatch",
            "assert_",
            lambda action, preset: action == "skip" and preset and _PRESETS[preset][0] == "error",
            "`{key}: {value}` contradicts `{other}: {against}`, which requires that every variable "
            "is restored",
            "remove one of the two, or exclude the variables to skip",
        ),
    )

    _locations: RuleLocations = PrivateAttr(default=RuleLocations())

    @property
    def file(self) -> str:
        """The file that the policy comes from, ``""`` for a mapping."""
        return self._locations.file

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the keys that differ from their defaults and that decide what is restored.

        >>> Policy(name="a", match="name").digest == Policy(match=["name"]).digest
        True
        """
        keys = self.model_dump(
            mode="json", by_alias=True, exclude={"name", "extends"}, exclude_defaults=True
        )
        return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()

    def where(self, field: str, index: int = 0) -> tuple[int, int]:
        """Line and column of a field or of one of its rules; (0, 0) if it is not from a file.

        >>> Policy(exclude=("model/head/**",)).where("exclude", 0)
        (0, 0)
        """
        at, key = self._locations.at, (*self._locations.path, field.rstrip("_"))
        return at.get((*key, index)) or ((0, 0) if index else at.get(key, (0, 0)))

    @field_validator("name", mode="before")
    @classmethod
    def _is_no_key(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is not None:
            raise PydanticCustomError("extra_forbidden", "unknown key")
        return value

    @field_validator("extends")
    @classmethod
    def _within_a_config(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and not (info.context or {}).get("policies"):
            raise fault("it names another policy of a config, and here there is none")
        return value

    @field_validator("on_missing", "on_unexpected")
    @classmethod
    def _agrees_with_assert(cls, value: Action, info: ValidationInfo) -> Action:
        assertion = info.data.get("assert_")
        meant = dict(zip(("on_missing", "on_unexpected"), _preset(info.data), strict=True))
        key = str(info.field_name)
        if assertion is not None and value != meant[key]:
            partial = " with `expect_partial: true`" if info.data.get("expect_partial") else ""
            raise fault(
                f"`{key}: {value}` contradicts `assert: {assertion}`{partial}, which means "
                f"`{key}: {meant[key]}`",
                hint="remove one of the two",
                other="assert",
            )
        return value

    @field_validator("match")
    @classmethod
    def _by_something(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise fault("`match` is empty", hint="write name, structure, or both")
        return value

    @field_validator("training_state")
    @classmethod
    def _with_what_it_needs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word, needed in _NEEDED.items():
            if word in value and (absent := needed - set(value)):
                raise fault(f"`{word}` needs `{min(absent)}`", hint="list both, or neither")
        return value
