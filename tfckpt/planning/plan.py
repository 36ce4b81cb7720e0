"""What a restore will do, value by value, before it changes anything.

A :class:`Plan` is frozen, comparable, printable and can be written as JSON: read it, review it in
CI, keep it with the run, apply it. Every live value and every stored value ends in exactly one
step, harmless ones included. The steps are sorted by name, so plans of the same two inventories are
equal whatever order those were listed in. A :class:`RestoreReport` says what became of a plan, and
what it left out, in one line, for users who do not read the report.

Making a plan does not raise for what it refuses. It collects all that is wrong (``errors`` and
``problems``), and applying it is refused unless ``ok`` is true.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import preformatted
from tfckpt.errors import TfckptError
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status
from tfckpt.planning.left_out import warned_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfckpt.core.inventory import Entry, Origin
    from tfckpt.errors import Problem
    from tfckpt.planning.checks.step import Step
    from tfckpt.planning.outputs import OutputCheck
    from tfckpt.planning.suggested import Suggestion
    from tfckpt.policy import Policy


@dataclasses.dataclass(frozen=True)
class Plan:
    """Every step of a restore, and what is wrong with the policy itself.

    Attributes:
        policy: name of the policy that it was made with.
        source: path of the checkpoint.
        steps: one for each value, sorted by name.
        problems: errors that concern no single value, such as a rule that matches nothing.
        file: the config file that ``problems`` refer to.
        origins: each source with its SHA-256 digest; () for a plan of inventories alone.
        training: a sentence that says which training state is restored besides the values; ``""``
            if no config asks for it, as in ``tfckpt.Checkpoint.restore``.
        training_state: the same as keys of the policy; () if a new training begins.
        chosen: why this checkpoint, ``the best of 3 by val_loss (0.41)``; ``""`` if it is the
            newest, or the one that was named.
        policies: those of the config, one for each source; () for a plan of inventories alone.
        suggest: finds what would make the plan possible, or that of another ``policy=`` for the
            same values; None for a plan of several sources.

    """

    policy: str
    source: str
    steps: tuple[Step, ...]
    problems: tuple[Problem, ...] = ()
    file: str = ""
    origins: tuple[Origin, ...] = ()
    training: str = ""
    training_state: tuple[str, ...] = ()
    chosen: str = ""
    policies: tuple[Policy, ...] = dataclasses.field(default=(), compare=False, repr=False)
    suggest: Callable[..., Suggestion | None] | None = dataclasses.field(
        default=None, compare=False, repr=False
    )

    @property
    def ok(self) -> bool:
        """Whether the plan may be applied."""
        return not self.problems and not self.errors

    @cached_property
    def errors(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.severity is Severity.ERROR)

    @cached_property
    def assignments(self) -> tuple[Step, ...]:
        """The steps that assign a stored value to a variable."""
        return tuple(step for step in self.steps if step.status in ASSIGNED)

    @cached_property
    def resets(self) -> tuple[Step, ...]:
        """The steps that reset a variable to its initial value."""
        return tuple(step for step in self.steps if step.status is Status.RESET)

    @cached_property
    def counts(self) -> dict[Status, int]:
        """Number of steps by status, in the order of :class:`Status`, without zeros."""
        found = dict.fromkeys(Status, 0)
        for step in self.steps:
            found[step.status] += 1
        return {status: count for status, count in found.items() if count}

    @cached_property
    def suggestion(self) -> Suggestion | None:
        """What would make a refused plan possible; None if the plan is fine or nothing is known."""
        return None if self.ok or self.suggest is None else self.suggest()

    @property
    def nbytes(self) -> int:
        """Number of bytes that will be read."""
        return sum(entry.nbytes for step in self.assignments for entry in step.reads)

    def to_json(self) -> dict[str, Any]:
        """The plan in plain JSON types; within ``version`` 1, keys are added but never removed."""
        return {
            "version": 1,
            "policy": self.policy,
            "policies": {policy.name: _keys(policy) for policy in self.policies},
            "file": self.file,
            "source": self.source,
            "ok": self.ok,
            "nbytes": self.nbytes,
            "counts": {status.value: count for status, count in self.counts.items()},
            "sources": [dataclasses.asdict(origin) for origin in self.origins],
            "training": self.training,
            "training_state": list(self.training_state),
            "chosen": self.chosen,
            "suggestion": dict(self.suggestion.changes) if self.suggestion else {},
            "problems": [problem._asdict() for problem in self.problems],
            "steps": [
                {
                    "status": step.status.value,
                    "severity": step.severity.value,
                    "name": step.name,
                    "source": step.source,
                    "role": step.entry.role.value,
                    "live": _value(step.live),
                    "stored": _value(step.stored),
                    "reason": step.reason,
                    "hint": step.hint,
                    "target": step.target,
                    "parts": [{"source": part.name, **_plain(part)} for part in step.parts],
                    "changes": [change.to_json() for change in step.changes],
                    "origin": step.origin,
                }
                for step in self.steps
            ],
        }

    def __str__(self) -> str:
        from tfckpt.planning.report import render_text  # report imports Plan

        found = self.suggestion
        return "\n\n".join(filter(None, (render_text(self, found), str(found or ""))))

    def __repr__(self) -> str:
        from tfckpt.planning.report import verdict

        return f"<Plan: {verdict(self)}>"

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def _keys(policy: Policy) -> dict[str, Any]:
    """The keys that were written, as in a config."""
    keys: dict[str, Any] = policy.model_dump(
        mode="json", by_alias=True, exclude_unset=True, exclude={"name"}
    )
    return keys


def _value(entry: Entry | None) -> dict[str, Any] | None:
    return None if entry is None else _plain(entry)


def _plain(entry: Entry) -> dict[str, Any]:
    shape = None if entry.shape is None else list(entry.shape)
    return {"dtype": entry.dtype, "shape": shape, "nbytes": entry.nbytes}


@dataclasses.dataclass(frozen=True)
class RestoreReport:
    """What was restored, and from where. Print it, keep it with the run, assert on it.

    Attributes:
        plan: every value and what happened to it.
        path: the checkpoint's prefix; ``""`` if none was found and the policy allows that.
        step: training step of the checkpoint; None if its record does not say.
        epoch: epochs finished when it was saved; None if its record does not say.
        metrics: metrics that were saved with it, by name.
        rejected: checkpoints that were tried before this one, each with the reason.
        absent: if none was found, what each of the searched paths contains instead.
        replaced: hyperparameters that had another value in the code: the code's value, and the
            checkpoint's, which they now have.
        nothing: why nothing was restored, if so.
        checker: what :meth:`check_outputs` calls.
    """

    plan: Plan
    path: str
    step: int | None = None
    epoch: int | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    rejected: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    replaced: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    nothing: str = "no checkpoint yet: training starts from the initial values"
    checker: Callable[[], OutputCheck] | None = dataclasses.field(
        default=None, compare=False, repr=False
    )

    @property
    def restored(self) -> bool:
        """Whether any value was assigned."""
        return bool(self.plan.assignments)

    @property
    def counts(self) -> dict[Status, int]:
        return self.plan.counts

    @property
    def training(self) -> str:
        """A sentence that says which training state was restored besides the values."""
        return self.plan.training

    @property
    def replacements(self) -> str:
        """The hyperparameters that were replaced, as a sentence; ``""`` if there are none."""
        if not self.replaced:
            return ""
        each = (f"{n} was {old} and is {new}" for n, (old, new) in self.replaced.items())
        return (
            f"{', '.join(each)}, as in the checkpoint; a policy with "
            "`optimizer: {hyperparameters: config}` keeps the values from your code"
        )

    @property
    def warnings(self) -> str:
        """What the policy asks to warn about (``on_missing: warn``); ``""`` for nothing."""
        return warned_of(self.plan)

    def check_outputs(self) -> OutputCheck:
        """Call the models on the batch of ``save(…, probe=batch)``, and compare their outputs.

        It leaves the models as they are: variables are put back to their bytes.

        Raises:
            TfckptError: the save has recorded no outputs, a model cannot be called on that batch,
                or changes more than variables when it is called.

        >>> import keras, numpy, tempfile, tfckpt
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
        >>> checkpoint = tfckpt.Checkpoint(model=model)
        >>> path = checkpoint.save(tempfile.mkdtemp() + "/ckpt", probe=numpy.ones((8, 4), "f"))
        >>> report = tfckpt.restore(path, model)
        >>> print(report.check_outputs())
        equal in every bit: 1 output of 8 examples
        >>> _ = model.layers[0].bias.assign([0.5, 0.0])
        >>> print(report.check_outputs().outputs[0].largest)
        0.5
        """
        if self.checker is None:
            raise TfckptError("no checkpoint with a record was restored: no outputs to compare")
        return self.checker()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "checker": None}

    def to_json(self) -> dict[str, Any]:
        """The report in plain JSON types: the keys of the plan, and those of the report."""
        return {
            **self.plan.to_json(),
            "path": self.path,
            "step": self.step,
            "epoch": self.epoch,
            "metrics": dict(self.metrics),
            "rejected": list(self.rejected),
            "absent": list(self.absent),
            "replaced": [
                {"name": name, "code": old, "checkpoint": new}
                for name, (old, new) in self.replaced.items()
            ],
        }

    def __str__(self) -> str:
        result = str(self.plan)
        if not self.path:
            result = "\n  ".join([self.nothing, *self.absent])
        return "\n".join((*self._above(), result))

    def __repr__(self) -> str:
        from tfckpt.planning.report import verdict  # imports Plan

        recorded = (("step", self.step), ("epoch", self.epoch))
        details = "".join(f", {word} {value}" for word, value in recorded if value is not None)
        return f"<RestoreReport: {verdict(self.plan)}{details}>"

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def _above(self) -> list[str]:
        lines = [f"passed over: {reason}" for reason in self.rejected]
        return [*lines, self.replacements] if self.replaced else lines
