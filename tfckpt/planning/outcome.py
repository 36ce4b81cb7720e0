"""What a restore did: its plan, carried out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.planning.checks.step import Status
    from tfckpt.planning.plan import Plan


@dataclasses.dataclass(frozen=True)
class RestoreReport:
    """What was restored from where. Print it, keep it beside the run, assert on it.

    Attributes:
        plan: every value and what became of it.
        path: the checkpoint's prefix; ``""`` where none was found and the policy said to go on.
        step: training step of the checkpoint, where its record knows it.
        epoch: epochs finished when it was saved, where its record knows it.
        metrics: what was measured when it was saved.
        rejected: checkpoints that were tried before this one, each with its reason.
        absent: where there was none, what lies at the places where it was looked for.
        replaced: hyperparameters that had another value in the code: that one, and the
            checkpoint's, which they have now.
        nothing: where nothing was restored, why.

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
        """What of a training has come back besides the values, as a sentence."""
        return self.plan.training

    @property
    def replacements(self) -> str:
        """The hyperparameters that were replaced, as a sentence; ``""`` where none was."""
        if not self.replaced:
            return ""
        each = (f"{n} was {old} and is {new}" for n, (old, new) in self.replaced.items())
        return (
            f"{', '.join(each)}, as in the checkpoint; a policy with "
            "`optimizer: {hyperparameters: config}` keeps the values from your code"
        )

    @property
    def warnings(self) -> str:
        """What the policy says to warn of (``on_missing: warn``); ``""`` for nothing."""
        from tfckpt.planning.left_out import warned_of  # as of a Plan

        return warned_of(self.plan)

    def to_json(self) -> dict[str, Any]:
        """The report in plain JSON types: the plan's, and what was restored from where."""
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
        from tfckpt.planning.report import verdict  # as of a Plan

        known = (("step", self.step), ("epoch", self.epoch))
        about = "".join(f", {word} {value}" for word, value in known if value is not None)
        return f"<RestoreReport: {verdict(self.plan)}{about}>"

    def _repr_html_(self) -> str:
        from tfckpt.planning.notebook import plan_html

        return plan_html(self.plan, [*self._above(), *self.absent])

    def _above(self) -> list[str]:
        lines = [f"passed over: {reason}" for reason in self.rejected]
        return [*lines, self.replacements] if self.replaced else lines
