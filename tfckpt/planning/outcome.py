"""What a restore did."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.planning.checks.step import Status
    from tfckpt.planning.plan import Plan


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
        from tfckpt.planning.left_out import warned_of  # imports Plan

        return warned_of(self.plan)

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
        from tfckpt.planning.notebook import plan_html

        return plan_html(self.plan, [*self._above(), *self.absent])

    def _above(self) -> list[str]:
        lines = [f"passed over: {reason}" for reason in self.rejected]
        return [*lines, self.replacements] if self.replaced else lines
