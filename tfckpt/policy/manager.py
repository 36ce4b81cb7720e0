"""The ``manager`` section of a config: where, when and how to save, and what to keep.

Each class is one mapping of the file. Refused, besides what every model refuses: ``keep`` together
with ``max_to_keep``, two retention rules in one item, and a key whose companion key is missing.
"""

from __future__ import annotations

import re
import signal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from tfckpt.core.similar import did_you_mean
from tfckpt.policy.fields import (
    Count,
    FileName,
    GoesWith,
    Listed,
    Model,
    Once,
    OneOf,
    PathText,
    Positive,
    Text,
    beside,
    fault,
    lacks,
    missing,
)
from tfckpt.policy.messages import ABOVE, show_value

# The first two cannot be caught. The others signal an error in the process itself, and Python's
# handler never runs: the error repeats, or the process ends.
_UNCATCHABLE = frozenset(
    {"SIGKILL", "SIGSTOP", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGIOT"}
)

_Number = Annotated[int, Field(ge=0)]


def _signal(name: str) -> str:
    known = signal.Signals.__members__
    if name in _UNCATCHABLE:
        raise fault(f"no program can save when it receives {name}")
    if name not in known:
        raise fault(
            f"{show_value(name).removeprefix('the text ')} is not a signal on this platform",
            hint=did_you_mean(name.upper(), known.keys() - _UNCATCHABLE),
        )
    return name


class Save(Model):
    """When to save; without any key, only run.save() saves."""

    section: ClassVar[str] = "manager.save"

    every_steps: Count | None = None
    """Save N steps after the last save; in fit, N batches unless a `step` is given."""
    every_epochs: Count | None = None
    """Save at the end of every N epochs."""
    every_minutes: Positive | None = None
    """Save N minutes after the last save."""
    on_signal: Annotated[tuple[Annotated[str, AfterValidator(_signal)], ...], Once, Listed] = ()
    """Signals to answer with a save before the process ends: [SIGTERM, SIGINT]."""
    grace_seconds: Positive = 25.0
    """Seconds after the signal until the process ends, even if the save is not complete."""

    goes_with: ClassVar[tuple[GoesWith, ...]] = (
        GoesWith(
            "grace_seconds",
            "on_signal",
            lacks,
            "`grace_seconds` needs `on_signal`: it counts from a signal",
            "add `on_signal: [SIGTERM]`, or remove `grace_seconds`",
        ),
    )

    @property
    def is_due_in_a_loop(self) -> bool:
        """Whether anything but the end of an epoch can make a save due."""
        counted = (self.every_steps, self.every_minutes)
        return any(each is not None for each in counted) or bool(self.on_signal)

    @property
    def is_due_ever(self) -> bool:
        """Whether anything can make a save due."""
        return self.every_epochs is not None or self.is_due_in_a_loop


BY_A_METRIC = (
    "e.g. {best: 2, monitor: score, mode: max}: `mode` is min if lower is better, max if higher "
    "is better"
)
MONITOR_AND_MODE = GoesWith(
    "mode",
    "monitor",
    missing,
    "`monitor: {against}` needs `mode`: its name does not say which values are better",
    BY_A_METRIC,
    f"{ABOVE}monitor",
)

_Mode = Literal["min", "max"]
_LOWER = "loss error entropy crossentropy perplexity hinge mse mae mape msle rmse nll wer cer"
_HIGHER = "accuracy acc auc precision recall fmeasure f1 iou bleu"


def better(monitor: str) -> _Mode | None:
    """Whether lower or higher values of a metric are better; None if its name does not say.

    >>> better("val_loss"), better("sparse_categorical_accuracy"), better("score")
    ('min', 'max', None)
    """
    words = {*re.findall("[a-z]+1?", monitor.lower())}
    lower, higher = (not words.isdisjoint(each.split()) for each in (_LOWER, _HIGHER))
    return None if lower == higher else "min" if lower else "max"


def _inferred(value: Any, info: ValidationInfo) -> Any:
    monitor = info.data.get("monitor")
    return better(monitor) if value is None and monitor else value


Mode = Annotated[_Mode | None, BeforeValidator(_inferred), Field(validate_default=True)]


class Keep(Model):
    """One retention rule; a checkpoint that no rule keeps is deleted.

    Raises:
        PolicyError: there is not exactly one rule, or a field has the wrong type.

    >>> Keep(best=2, monitor="val_loss", mode="min").best
    2
    """

    expected: ClassVar[bool] = True
    # If no checkpoint has the metric, its name is taken for misspelled and nothing is deleted.

    latest: Count | None = None
    """Keep the N newest checkpoints."""
    best: Count | None = None
    """Keep the N best checkpoints by a metric, `monitor`."""
    monitor: Text | None = Field(default=None, validate_default=True)
    """Name of the metric that `best` compares, e.g. val_loss."""
    mode: Mode = None
    """Whether the lowest (min) or highest (max) value is best; by default as its name says."""
    every_n_steps: Count | None = None
    """Keep the first checkpoint at or after each multiple of N steps."""
    every_n_hours: Positive | None = None
    """Keep one checkpoint per N hours, like keep_checkpoint_every_n_hours in TensorFlow."""
    pin: Annotated[tuple[_Number, ...], Field(min_length=1), Listed] | None = Field(
        default=None, validate_default=True
    )
    """Keep the checkpoints with these numbers: 12 is ckpt-12."""

    one_of: ClassVar[OneOf] = OneOf(
        ("latest", "best", "every_n_steps", "every_n_hours", "pin"),
        "a rule must have exactly one of `latest`, `best`, `every_n_steps`, `every_n_hours`, `pin`"
        "; this one has",
        "none",
        "write one rule per list item; a checkpoint is kept if any rule keeps it",
    )
    goes_with: ClassVar[tuple[GoesWith, ...]] = (
        GoesWith(
            "monitor",
            "best",
            missing,
            "`best` needs `monitor`",
            BY_A_METRIC,
            ABOVE,
        ),
        MONITOR_AND_MODE,
        GoesWith("monitor mode", "best", lacks, "`{key}` goes with `best`", "remove `{key}`"),
    )


class KeepWhereMeasured(Keep):
    """``best`` by a default metric: it keeps nothing until a checkpoint has that metric."""

    expected: ClassVar[bool] = False


class Export(Model):
    """Files for inference, beside the checkpoints of a run."""

    section: ClassVar[str] = "manager.export"

    weights_h5: Literal["best", "latest"] | None = None
    """Let Keras write best.weights.h5 or latest.weights.h5, of the best or the latest save."""


def _directory(value: str) -> str:
    """Refuse what ModelCheckpoint takes: the name of a file, with the epoch to be filled in."""
    if value.endswith(_OF_KERAS) or _FILLED_IN.search(value):
        raise fault(
            f"{value!r} is the name of a file, but checkpoints are numbered in a directory",
            hint=f"write the directory, e.g. {value.rpartition('/')[0] or 'runs/first'!r}",
        )
    return value


_NO_BEST = "needs a rule that says which checkpoint is the best"
_A_BEST = "e.g. `keep: [{latest: 3}, {best: 1, monitor: val_loss}]`"
_OF_KERAS = (".keras", ".h5", ".hdf5")
_FILLED_IN = re.compile(r"\{\w+(:[^}]*)?\}")


class Manager(Model):
    """Where and when to save the checkpoints of a run, and which to keep."""

    section: ClassVar[str] = "manager"

    directory: Annotated[PathText, AfterValidator(_directory)]
    """Directory of the checkpoints; a relative path is relative to the working directory."""
    checkpoint_name: FileName = "ckpt"
    """What the names of the checkpoints begin with: ckpt for ckpt-1."""
    save: Save = Field(default_factory=Save)
    """When to save; without it, only run.save() saves."""
    max_to_keep: Count | None = None
    """Keep the N newest checkpoints; without `max_to_keep` and `keep`, all are kept."""
    keep: Annotated[tuple[Keep, ...], Listed] = ()
    """Retention rules; a checkpoint is kept if any of them keeps it."""
    load_best_when_done: bool = False
    """When `fit` is done, load the weights of the best checkpoint, by the first `best` rule."""
    export: Export = Field(default_factory=Export)
    """Files for inference, written beside the checkpoints."""
    api: Literal["save", "write"] = "save"
    """save also counts the saves, in save_counter, write does not, as in tf.train.Checkpoint."""
    durable: bool = True
    """Wait until the files would survive a power cut; false leaves that to the system."""
    enable_async: bool = False
    """Write the files in the background while training continues."""
    if_busy: Literal["wait", "skip"] = "wait"
    """What to do when a save is due while an asynchronous one is still being written."""
    on_nonfinite: Literal["warn", "save", "refuse"] = "warn"
    """If a weight or slot is NaN or infinite: save and warn, just save, or refuse to save."""
    on_unsavable: Literal["warn", "error"] = "warn"
    """If TensorFlow cannot save an object: leave it out and warn, or fail."""
    on_save_error: Literal["warn", "error"] = "error"
    """If a save that was due fails: warn and continue training, or fail."""
    include: Literal["all", "trainable"] = "all"
    """What a save writes: all, or what trains beside the file of an earlier save with the rest."""
    callbacks: dict[str, Annotated[tuple[Text, ...], Listed]] = Field(default_factory=dict)
    """State of your own callbacks: class name → attributes, e.g. {Curriculum: [level]}."""

    goes_with: ClassVar[tuple[GoesWith, ...]] = (
        GoesWith(
            "keep",
            "max_to_keep",
            beside,
            "`keep` and `max_to_keep` both say which checkpoints to keep",
            "remove one of them; `max_to_keep: 3` means `keep: [{latest: 3}]`",
        ),
        GoesWith(
            "load_best_when_done",
            "keep",
            lambda wanted, keep: wanted and not any(rule.best for rule in keep),
            f"`load_best_when_done` {_NO_BEST}",
            _A_BEST,
        ),
        GoesWith(
            "export",
            "keep",
            lambda export, keep: export.weights_h5 == "best" and not any(r.best for r in keep),
            f"`weights_h5: best` {_NO_BEST}",
            _A_BEST,
            "weights_h5",
        ),
        GoesWith(
            "export",
            "directory",
            lambda export, directory: export.weights_h5 and "://" in directory,
            "Keras writes `weights_h5` only into a local directory",
            "remove `export`, and make the file from a checkpoint by `tfckpt export`",
            "weights_h5",
        ),
        GoesWith(
            "include",
            "directory",
            lambda include, directory: include == "trainable" and "://" in directory,
            "`include: trainable` needs hard links, which only local directories have",
            "remove it, or save into a local directory and copy that",
        ),
        GoesWith(
            "if_busy",
            "enable_async",
            lacks,
            "`if_busy` applies to asynchronous saves only, and saves are not asynchronous",
            "add `enable_async: true`, or remove `if_busy`",
        ),
    )

    @property
    def rules(self) -> tuple[Keep, ...]:
        """The retention rules, from ``keep`` or ``max_to_keep``; without any, all are kept.

        >>> Manager(directory="runs/a", max_to_keep=3).rules == (Keep(latest=3),)
        True
        """
        return self.keep if self.max_to_keep is None else (Keep(latest=self.max_to_keep),)
