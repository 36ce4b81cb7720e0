"""What a config says of saving: when, what to keep, and how, as frozen values.

Each class is one mapping of the file, as in ``model``. Refused besides what every model refuses:
both spellings of how many checkpoints to keep, two rules in one, and what says nothing without
another key.
"""

from __future__ import annotations

import signal
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tfckpt.policy.fields import Count, FileName, Listed, Model, PathText, Positive, Text, fault
from tfckpt.policy.messages import did_you_mean, show_value

# The kernel keeps the first two to itself. Where the others come from the process itself, Python's
# handler never runs: the fault happens again, or the process ends.
_NEVER_SEEN = frozenset(
    {"SIGKILL", "SIGSTOP", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGIOT"}
)

_Number = Annotated[int, Field(ge=0)]


def _signal(name: str) -> str:
    known = signal.Signals.__members__
    if name in _NEVER_SEEN:
        raise fault(f"no program can save when {name} comes")
    if name not in known:
        raise fault(
            f"there is no signal {show_value(name).removeprefix('the text ')} on this platform",
            hint=did_you_mean(name.upper(), known.keys() - _NEVER_SEEN),
        )
    return name


class Save(Model):
    """When to save; no key, no saving but by hand."""

    every_steps: Count | None = None
    """After so many batches."""
    every_epochs: Count | None = None
    """After so many epochs."""
    every_minutes: Positive | None = None
    """After so many minutes."""
    on_signal: Annotated[tuple[Annotated[str, AfterValidator(_signal)], ...], Listed] = ()
    """Signals that end the process, after a save: SIGTERM, SIGINT."""
    grace_seconds: Positive = 25.0
    """From the signal to the end of the process, saved or not."""

    @property
    def is_due_in_a_loop(self) -> bool:
        """Whether anything but the end of an epoch ever asks for a save."""
        counted = (self.every_steps, self.every_minutes)
        return any(each is not None for each in counted) or bool(self.on_signal)

    @property
    def is_due_ever(self) -> bool:
        """Whether anything ever asks for a save."""
        return self.every_epochs is not None or self.is_due_in_a_loop

    @field_validator("on_signal")
    @classmethod
    def _once_each(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise fault("`on_signal` names a signal twice")
        return value

    @field_validator("grace_seconds")
    @classmethod
    def _after_a_signal(cls, value: float, info: ValidationInfo) -> float:
        if info.data.get("on_signal") == ():
            raise fault(
                "`grace_seconds` counts from a signal, and no signal is named",
                hint="add `on_signal: [SIGTERM]`, or leave it out",
            )
        return value


class Keep(Model):
    """One rule of what to keep; what no rule keeps is deleted.

    Raises:
        PolicyError: it is not exactly one rule, or a field has the wrong type.

    >>> Keep(best=2, monitor="val_loss", mode="min").best
    2
    """

    expected: ClassVar[bool] = True
    # Whether a metric that no checkpoint has is taken for misspelt, and nothing deleted.

    latest: Count | None = None
    """The so many newest."""
    best: Count | None = None
    """The so many best by a metric."""
    monitor: Text | None = None
    """The metric of best: val_loss."""
    mode: Literal["min", "max"] | None = None
    """Whether the best value of the metric is the least or the greatest."""
    every_n_steps: Count | None = None
    """The first at or after each multiple of so many steps."""
    every_n_hours: Positive | None = None
    """One per so many hours, as keep_checkpoint_every_n_hours in TensorFlow."""
    pin: Annotated[tuple[_Number, ...], Field(min_length=1), Listed] | None = None
    """Those of these numbers."""

    @model_validator(mode="after")
    def _one_rule(self) -> Keep:
        rules = ("latest", "best", "every_n_steps", "every_n_hours", "pin")
        given = [rule for rule in rules if getattr(self, rule) is not None]
        if len(given) != 1:
            found = f"has both `{given[0]}` and `{given[1]}`" if given else "has none"
            raise fault(
                f"a rule has exactly one of {', '.join(f'`{r}`' for r in rules)}; this one {found}",
                hint="each rule is an item of the list; what any of them keeps is kept",
                at=given[1] if given else "",
                other=given[0] if given else "",
            )
        beside = {"monitor": self.monitor, "mode": self.mode}
        if self.best is None:
            for key, value in beside.items():
                if value is not None:
                    raise fault(
                        f"`{key}` belongs to `best`, and this rule is `{given[0]}`",
                        hint=f"leave `{key}` out",
                        at=key,
                        other=given[0],
                    )
        elif missing := [f"`{key}`" for key, value in beside.items() if value is None]:
            raise fault(
                f"`best` needs {' and '.join(missing)}",
                hint="{best: 2, monitor: val_loss, mode: min}: `monitor` is the name of a metric, "
                "`mode` is min where less is better, and max where more is",
            )
        return self


class KeepWhereMeasured(Keep):
    """``best`` by a metric that nobody asked for: it keeps nothing until a checkpoint has one."""

    expected: ClassVar[bool] = False


class Manager(Model):
    """Where checkpoints of a run go, when one is saved, and which are kept."""

    directory: PathText
    """Relative ones are relative to the working directory."""
    checkpoint_name: FileName = "ckpt"
    """What their names begin with."""
    save: Save = Field(default_factory=Save)
    """When to save."""
    max_to_keep: Count | None = None
    """The so many newest are kept; without it and keep, all are."""
    keep: Annotated[tuple[Keep, ...], Listed] = ()
    """What is kept: the union of the rules."""
    durable: bool = True
    """A save returns when the disk has it; false leaves that to the operating system."""
    enable_async: bool = False
    """Files are written in the background while training goes on."""
    if_busy: Literal["wait", "skip"] = "wait"
    """What a save does while an asynchronous one is being written."""
    on_nonfinite: Literal["warn", "save", "refuse"] = "warn"
    """What a save does with weights or slots that are NaN or infinite."""
    on_unsavable: Literal["warn", "error"] = "warn"
    """What a save does with an object that TensorFlow cannot save; warn leaves it out."""
    on_save_error: Literal["warn", "error"] = "error"
    """What a save that was due and failed does to the training; warn goes on without it."""
    callbacks: dict[str, Annotated[tuple[Text, ...], Listed]] = Field(default_factory=dict)
    """Class of a callback of one's own to the attributes that are its state."""

    @field_validator("keep")
    @classmethod
    def _one_spelling(cls, value: tuple[Keep, ...], info: ValidationInfo) -> tuple[Keep, ...]:
        if value and info.data.get("max_to_keep") is not None:
            raise fault(
                "`keep` and `max_to_keep` both say how many checkpoints to keep",
                hint=f"`max_to_keep: {info.data['max_to_keep']}` is another spelling of "
                f"`keep: [{{latest: {info.data['max_to_keep']}}}]`",
                other="max_to_keep",
            )
        return value

    @field_validator("if_busy")
    @classmethod
    def _may_be_busy(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("enable_async") is False:
            raise fault(
                "`if_busy` is about asynchronous saves, and saves are not asynchronous",
                hint="add `enable_async: true`, or leave it out",
                other="enable_async",
            )
        return value

    @property
    def rules(self) -> tuple[Keep, ...]:
        """What is kept, by either spelling; without a rule, everything.

        >>> Manager(directory="runs/a", max_to_keep=3).rules == (Keep(latest=3),)
        True
        """
        return self.keep if self.max_to_keep is None else (Keep(latest=self.max_to_keep),)
