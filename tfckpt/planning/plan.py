"""What a restore will do, value by value, before it does anything.

A :class:`Plan` is a value: frozen, comparable, printable, writable as JSON, so that it can be read
by a person, reviewed in CI, kept beside the run, and applied as it stands. Every live value and
every stored value ends in one step; nothing is left out because it is harmless, since what one run
ignores is what the next one misses. The steps are sorted by name: two plans of the same two
inventories are equal whatever order those were listed in.

A plan never refuses by raising. It carries what is wrong (``errors`` and ``problems``), all of it
at once, and whoever applies it refuses when ``ok`` is false.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfckpt.errors import RefusedError
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status

if TYPE_CHECKING:
    from tfckpt.core.inventory import Entry, Origin
    from tfckpt.errors import Problem
    from tfckpt.planning.checks.step import Step


@dataclasses.dataclass(frozen=True)
class Plan:
    """Every step of a restore, and what is wrong with the policy itself.

    Attributes:
        policy: name of the policy it was made by.
        source: where the stored values come from.
        steps: by name.
        problems: faults that belong to no single value, such as a rule that matches nothing.
        file: the config file that ``problems`` point into.
        origins: each source, with what identifies it; () in a plan of bare inventories.
        drift: what resolves otherwise than the policy's lock says.
        training: what of a training comes back besides the values, as a sentence; ``""`` where no
            config asks, as in ``tfckpt.Checkpoint.restore``.
        training_state: the same in the words of the policy; () where a new training begins.

    """

    policy: str
    source: str
    steps: tuple[Step, ...]
    problems: tuple[Problem, ...] = ()
    file: str = ""
    origins: tuple[Origin, ...] = ()
    drift: tuple[Problem, ...] = ()
    training: str = ""
    training_state: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it may be applied."""
        return not self.faults and not self.errors

    @property
    def faults(self) -> tuple[Problem, ...]:
        """What is wrong beside the steps: the problems and the drift."""
        return *self.problems, *self.drift

    @cached_property
    def errors(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.severity is Severity.ERROR)

    @cached_property
    def assignments(self) -> tuple[Step, ...]:
        """The steps that read a stored value and assign it to a live one."""
        return tuple(step for step in self.steps if step.status in ASSIGNED)

    @cached_property
    def resets(self) -> tuple[Step, ...]:
        """The steps that set a live value back to what it started from."""
        return tuple(step for step in self.steps if step.status is Status.RESET)

    @cached_property
    def counts(self) -> dict[Status, int]:
        """How many steps there are of each status that occurs, in the order of :class:`Status`."""
        found = dict.fromkeys(Status, 0)
        for step in self.steps:
            found[step.status] += 1
        return {status: count for status, count in found.items() if count}

    @property
    def nbytes(self) -> int:
        """Bytes that will be read."""
        return sum(entry.nbytes for step in self.assignments for entry in step.reads)

    def to_json(self) -> dict[str, Any]:
        """The plan in plain JSON types; keys are only ever added to within ``version`` 1."""
        return {
            "version": 1,
            "policy": self.policy,
            "file": self.file,
            "source": self.source,
            "ok": self.ok,
            "nbytes": self.nbytes,
            "counts": {status.value: count for status, count in self.counts.items()},
            "sources": [dataclasses.asdict(origin) for origin in self.origins],
            "training": self.training,
            "training_state": list(self.training_state),
            "problems": [problem._asdict() for problem in self.faults],
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

    def lock(self) -> str:
        """What the plan comes to, as the content of the file that a policy's ``lock`` names.

        One value a line, sorted: which stored value goes into which live one, types, shapes and
        checksums, and what identifies each source. Its path is in it for the reader alone.

        Raises:
            RefusedError: the plan may not be applied, whatever an older lock says.
        """
        from tfckpt.planning.lock import render  # lock is written in terms of a Plan

        if self.problems or self.errors:
            message = f"a plan that is refused cannot be locked\n{self}"
            raise RefusedError(message, plan=self)
        return render(self)

    def __str__(self) -> str:
        from tfckpt.planning.report import render_text  # report is written in terms of a Plan

        return render_text(self)

    def __repr__(self) -> str:
        from tfckpt.planning.report import verdict

        return f"<Plan: {verdict(self)}>"

    def _repr_html_(self) -> str:
        from tfckpt.planning.notebook import plan_html

        return plan_html(self)


def _value(entry: Entry | None) -> dict[str, Any] | None:
    return None if entry is None else _plain(entry)


def _plain(entry: Entry) -> dict[str, Any]:
    shape = None if entry.shape is None else list(entry.shape)
    return {"dtype": entry.dtype, "shape": shape, "nbytes": entry.nbytes}
