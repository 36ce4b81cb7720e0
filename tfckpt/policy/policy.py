"""A policy, as a frozen value: what a restore may change, and which differences it puts up with.

Each class is one mapping of the file, each field one key (``assert_`` is ``assert``; a policy's
``name`` is its key under ``policies``). Words are TensorFlow's and Keras's where they have one.
``assert`` and ``expect_partial`` are presets over ``on_missing`` and ``on_unexpected``, resolved
when the value is made, so that nobody downstream has to know them.

Refused: unknown keys, wrong types, selectors that mean nothing, and two keys that contradict each
other.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

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

from tfckpt.policy.adaptations import Adapt  # noqa: TC001 - pydantic reads it
from tfckpt.policy.fields import (
    Count,
    Listed,
    Model,
    OneOrMore,
    PathText,
    Selectors,
    SelectorText,
    check_pairs,
    fault,
    one_or_listed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Action = Literal["error", "warn", "ignore"]
Assertion = Literal["consumed", "existing_objects_matched", "nontrivial_match", "none"]
Dtype = Literal[
    "bfloat16", "bool", "complex64", "complex128", "float16", "float32", "float64", "int8", "int16",
    "int32", "int64", "string", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

_PRESETS: Mapping[str | None, tuple[Action, Action]] = MappingProxyType(
    {
        "consumed": ("error", "error"),
        "existing_objects_matched": ("error", "warn"),
        "nontrivial_match": ("warn", "warn"),
        "none": ("warn", "warn"),
        None: ("error", "error"),
    }
)


@dataclasses.dataclass(frozen=True)
class Places:
    """Where the rules of a policy stand; no part of its value, so all are equal."""

    file: str = dataclasses.field(default="", compare=False)
    at: Mapping[tuple[str, int], tuple[int, int]] = dataclasses.field(
        default_factory=dict, compare=False
    )


class Rename(Model):
    """Stored names that match ``checkpoint`` are called what ``model`` says, each of it."""

    checkpoint: SelectorText
    """Selector over stored names."""
    model: OneOrMore
    """What they are called in the live model; the same wildcards, or groups as \\1."""

    @field_validator("model")
    @classmethod
    def _fits(cls, model: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "checkpoint" in info.data:
            check_pairs(info.data["checkpoint"], model)
        if len(set(model)) < len(model):
            raise fault("`model` names a value twice")
        return model


class OptimizerRules(Model):
    """What becomes of an optimizer's state."""

    slots: Literal["restore", "reset"] = "restore"
    """Momenta and the like: take them from the checkpoint, or start them anew."""
    iterations: Literal["restore", "reset"] = "restore"
    """The step counter of the optimizer."""
    hyperparameters: Literal["restore", "config"] = "restore"
    """The learning rate and its like: from the checkpoint, or as configured in the code."""


class InputSpec(Model):
    """Shape and dtype of one input of a Keras model; null is a size that may vary."""

    shape: Annotated[tuple[Count | None, ...], Listed]
    """With the batch: [null, 28, 28, 1]."""
    dtype: Dtype = "float32"
    """TensorFlow's name of it."""


def _kind_of_inputs(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "\0list"
    names = isinstance(value, dict) and not isinstance(value.get("shape"), list | tuple)
    return "\0named" if names and not {"shape", "dtype"} >= set(value) else "\0one"


Inputs = Annotated[
    Annotated[InputSpec, Tag("\0one")]
    | Annotated[tuple[InputSpec, ...], Listed, Tag("\0list")]
    | Annotated[dict[str, InputSpec], Tag("\0named")],
    Discriminator(_kind_of_inputs),
]


TrainingState = Literal["epoch", "batch", "iterator", "seeds", "callbacks"]
# A batch is a place in an epoch's data; callbacks count epochs.
_NEEDED: Mapping[str, set[str]] = MappingProxyType(
    {"batch": {"epoch", "iterator"}, "callbacks": {"epoch"}}
)


_MatchBy = Literal["name", "structure"]
Match = Annotated[
    tuple[_MatchBy, ...],
    BeforeValidator(one_or_listed, json_schema_input_type=_MatchBy | tuple[_MatchBy, ...]),
]


def _preset(data: Mapping[str, Any]) -> tuple[Action, Action]:
    assertion, partial = data.get("assert_"), data.get("expect_partial")
    missing, unexpected = _PRESETS[assertion]
    if not partial:
        return missing, unexpected
    return (missing if assertion == "existing_objects_matched" else "ignore"), "ignore"


class Policy(Model):
    """What one restore may change, and which differences it puts up with.

    Raises:
        PolicyError: a field has the wrong type, a selector means nothing, two fields contradict.

    >>> policy = Policy(include=("model/**",), exclude=("model/head/**",), assert_="none")
    >>> policy.on_missing, policy.on_unexpected
    ('warn', 'warn')

    """

    name: SkipJsonSchema[str] = "policy"
    """The key under ``policies``; no key of the mapping itself."""
    api: Literal["restore", "read"] = "restore"
    """restore takes save_counter along, read does not, as in TensorFlow."""
    assert_: Assertion | None = Field(
        default=None, validation_alias="assert", serialization_alias="assert"
    )
    """The status assertion of tf.train.Checkpoint that must hold; a preset of the on_* keys."""
    expect_partial: bool = False
    """Values that the checkpoint has and nothing uses are no matter, as in TensorFlow."""
    include: Annotated[tuple[SelectorText, ...], Field(min_length=1), Listed] = ("**",)
    """Live names that may be restored, after renaming."""
    exclude: Selectors = ()
    """Live names that are left as they are."""
    exclude_checkpoint: Selectors = ()
    """Stored names that are left in the checkpoint."""
    rename: Annotated[tuple[Rename, ...], Listed] = ()
    """Stored names that the live model calls otherwise; the first pair that matches counts."""
    adapt: Annotated[tuple[Adapt, ...], Listed] = ()
    """What is done to values so that they fit; every rule that matches, in order."""
    expect_missing: Selectors = ()
    """Live names that must be absent from the checkpoint."""
    expect_unexpected: Selectors = ()
    """Stored names that must be used by nothing."""
    on_missing: Action = Field(default_factory=lambda data: _preset(data)[0])
    """Selected, but not in the checkpoint."""
    on_unexpected: Action = Field(default_factory=lambda data: _preset(data)[1])
    """In the checkpoint, used by nothing."""
    on_shape_mismatch: Literal["error", "skip"] = "error"
    """skip leaves the live value as it is."""
    on_dtype_mismatch: Literal["error", "cast"] = "error"
    """cast converts to the dtype of the live value."""
    optimizer: OptimizerRules = OptimizerRules()
    """What becomes of the optimizer's state."""
    min_restored: Annotated[float, Field(ge=0, le=1)] | None = None
    """The least share of the selected parameters that must be restored."""
    allow_empty: bool = False
    """A restore of no value at all is no error."""
    match: Match = ("name", "structure")
    """What must agree for a stored value to be a live one's."""
    ema: Literal["prefer", "only", "ignore"] = "ignore"
    """Moving averages of weights: prefer takes one where there is one, only takes nothing else."""
    verify: Literal["none", "checksums", "values"] = "checksums"
    """What is checked of the bytes that are read."""
    build: dict[str, Inputs] | None = None
    """Input of each Keras model or layer that is not built yet, by its keyword."""
    training_state: Annotated[tuple[TrainingState, ...], Listed] = (
        "epoch",
        "batch",
        "iterator",
        "seeds",
        "callbacks",
    )
    """What of a training comes back; from outside the manager's directory, only if written."""
    lock: PathText | None = None
    """A file that `tfckpt plan --lock` wrote; whatever resolves otherwise now is refused."""

    _places: Places = PrivateAttr(default=Places())

    @property
    def file(self) -> str:
        """The file that the policy comes from, or the empty string."""
        return self._places.file

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what the policy says: of its keys that differ from their defaults.

        The name is no part of it, nor is the lock, which only says when to refuse.

        >>> Policy(name="a", match="name").digest == Policy(match=["name"], lock="a.json").digest
        True
        """
        said = self.model_dump(
            mode="json", by_alias=True, exclude={"name", "lock"}, exclude_defaults=True
        )
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def where(self, field: str, index: int = 0) -> tuple[int, int]:
        """Line and column of a field, or of one rule of it; (0, 0) where it stands in no file.

        >>> Policy(exclude=("model/head/**",)).where("exclude", 0)
        (0, 0)
        """
        return self._places.at.get((field, index), (0, 0))

    @field_validator("expect_partial")
    @classmethod
    def _partial_is_not_consumed(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("assert_") == "consumed":
            raise fault(
                "`expect_partial: true` contradicts `assert: consumed`, which lets no value of "
                "the checkpoint go unused",
                hint="leave one of the two out",
                other="assert",
            )
        return value

    @field_validator("on_missing", "on_unexpected")
    @classmethod
    def _agrees_with_assert(cls, value: Action, info: ValidationInfo) -> Action:
        assertion = info.data.get("assert_")
        meant = dict(zip(("on_missing", "on_unexpected"), _preset(info.data), strict=True))
        if assertion is not None and value != meant[str(info.field_name)]:
            partial = " with `expect_partial: true`" if info.data.get("expect_partial") else ""
            raise fault(
                f"`{info.field_name}: {value}` contradicts `assert: {assertion}`{partial}, which "
                f"means `{info.field_name}: {meant[str(info.field_name)]}`",
                hint="leave one of the two out",
                other="assert",
            )
        return value

    @field_validator("on_shape_mismatch")
    @classmethod
    def _skips_no_variable(cls, value: str, info: ValidationInfo) -> str:
        assertion = info.data.get("assert_")
        if value == "skip" and _PRESETS[assertion][0] == "error" and assertion is not None:
            raise fault(
                f"`on_shape_mismatch: skip` contradicts `assert: {assertion}`, which lets no "
                "variable go without its value",
                hint="leave one of the two out, or exclude those that may keep theirs",
                other="assert",
            )
        return value

    @field_validator("match", "training_state")
    @classmethod
    def _once_each(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if info.field_name == "match" and not value:
            raise fault("`match` names nothing to match by", hint="write name, structure, or both")
        if len(set(value)) < len(value):
            raise fault(f"`{info.field_name}` names a word twice")
        for word, needed in _NEEDED.items() if info.field_name == "training_state" else ():
            if word in value and (absent := needed - set(value)):
                raise fault(
                    f"`{word}` means nothing without `{min(absent)}`", hint="list both, or neither"
                )
        return value
