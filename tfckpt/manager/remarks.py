"""Messages about the saves of a run: when they happen, what is kept, and which rules cannot work.

A rule may misspell a metric, and a run may start in the directory of another one. Each is reported
once, when it is first noticed, with the names that exist.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from tfckpt.core.similar import near_words, question
from tfckpt.manager.retention import ANOTHER_RUN, may_have, without_metric
from tfckpt.stored.io.files import absolute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Keep, Manager, Save
    from tfckpt.stored.commits.discovery import CheckpointInfo
    from tfckpt.stored.commits.record_file import CommitRecord


def outlook(manager: Manager) -> str:
    """One line: where and when a run saves, and what it keeps.

    >>> from tfckpt.policy import Keep, Manager, Save
    >>> save = Save(every_epochs=1, every_steps=100)
    >>> keep = (Keep(latest=3), Keep(best=2, monitor="val_loss", mode="min"))
    >>> outlook(Manager(directory="/runs/x", save=save, keep=keep)).split("; ")[1]
    'keeps the newest 3 and the best 2 by val_loss'
    """
    kept = [_kept(rule, manager.checkpoint_name) for rule in manager.rules]
    when = _listed(list(_times(manager.save)))
    return f"saves to {absolute(manager.directory)} {when}; keeps {_listed(kept) or 'all'}"


def nothing_saved(manager: Manager | None) -> tuple[str, str]:
    """Why ``fit`` saves nothing, and what to do; two empty strings if it saves."""
    if manager is None:
        message = "nothing is saved: the config has no `manager` section"
        return message, "add `manager: {directory: …, save: {every_epochs: 1}}`"
    if not manager.save.is_due_ever:
        message = "nothing is saved during `fit`: the config has no `manager.save`"
        return message, "add `save: {every_epochs: 1}`"
    return "", ""


def never_due(manager: Manager | None) -> tuple[str, str]:
    """Why ``save_if_due`` would never save in a loop, and what to do; as :func:`nothing_saved`."""
    message = "`run.save_if_due()` would never save: "
    if manager is None:
        reason = "the config has no `manager` section"
        return message + reason, "add `manager: {directory: …, save: {every_steps: 100}}`"
    if manager.save.is_due_in_a_loop:
        return "", ""
    reason = "the config has no `manager.save`"
    if manager.save.every_epochs is not None:
        reason = "it counts steps and minutes, but `manager.save` has only `every_epochs`"
    return message + reason, "add `save: {every_steps: 100}`, or call `run.save()`"


def out_of_reach(manager: Manager) -> Iterator[str]:
    """Rules of the config that cannot take effect in ``fit``."""
    save = manager.save
    if save.every_epochs is None and save.every_minutes is None:
        for rule in manager.rules:
            if rule.monitor is not None and rule.monitor.startswith("val_"):
                yield (
                    f"no checkpoint will have {rule.monitor!r}, which `best` compares: it is "
                    "measured at the end of an epoch, when nothing is saved; add `every_epochs: 1`"
                )


def idle(rule: Keep, saved: Sequence[CheckpointInfo]) -> str:
    """Why a rule keeps nothing: no checkpoint has its metric or step; "" if one has."""
    if rule.best is not None and rule.monitor is not None:
        values = (one.metrics.get(rule.monitor, math.nan) for one in saved)
        if not all(map(math.isnan, values)):
            return ""
        reason = without_metric(saved, rule.monitor)
        names = sorted({name for one in saved for name in one.metrics})
        if rule.monitor in names:
            return reason
        if not names:
            return f"{reason}: save with `metrics={{{rule.monitor!r}: …}}`"
        meant = question(near_words(rule.monitor, names))
        return f"{reason}; the checkpoints have {_listed(names)}{meant and f'; {meant}'}"
    if rule.every_n_steps is not None and all(one.record.step is None for one in saved):
        return (
            "no checkpoint has a step, which `every_n_steps` requires: save an optimizer, or pass "
            "a variable as `step`"
        )
    return ""


class Remarks:
    """Warnings of a manager after its saves, each given once."""

    def __init__(self, rules: Sequence[Keep], directory: str) -> None:
        selective = [
            rule for rule in rules if rule.best is not None or rule.every_n_steps is not None
        ]
        self._unchecked = [rule for rule in selective if rule.expected]
        self._directory = directory
        self._begun = not rules

    def beside(self, others: Sequence[CheckpointInfo]) -> Iterator[str]:
        """The warning for a new run in a directory with checkpoints of others, given once."""
        begun, self._begun = self._begun, True
        if begun or not others:
            return
        newest = others[-1]
        step = newest.record.step
        at = "" if step is None else f" (step {step:,})"
        yield (
            f"{self._directory} has checkpoints of another run, which this run does not resume and "
            f"never deletes; the newest of them is {os.path.split(newest.prefix)[1]}{at}; to go on "
            "with that run, restore from the directory before the first save"
        )

    def after(
        self, own: CommitRecord, decision: Decision, saved: Sequence[CheckpointInfo]
    ) -> Iterator[str]:
        """The warnings after the save with this record, of those that are ``saved`` then."""
        if self._begun and not self._unchecked:
            return
        others = {p for p, why in decision.kept.items() if why == (ANOTHER_RUN,)}
        if len(others) + 1 == len(decision.kept) + len(decision.delete):  # the first of its run
            yield from self.beside([one for one in saved if one.prefix in others])
        self._begun = True
        saved = [one for one in saved if one.prefix not in others]
        for rule in list(self._unchecked):
            reason = idle(rule, saved)
            if reason and not _is_due(rule, own, saved, decision):
                continue
            self._unchecked.remove(rule)
            if reason:
                kept = "nothing is deleted: " if rule.best is not None else ""
                yield f"{self._directory}: {kept}{reason}"


def _is_due(
    rule: Keep, own: CommitRecord, saved: Sequence[CheckpointInfo], decision: Decision
) -> bool:
    """Whether the save should have had the metric, or the rule should have deleted one by now."""
    if rule.monitor is None:
        return True
    if own.metrics and may_have(own.mid_epoch, rule.monitor):
        return True
    return (without_metric(saved, rule.monitor),) in decision.kept.values()


def _times(save: Save) -> Iterator[str]:
    if save.every_epochs is not None:
        yield "after each epoch" if save.every_epochs == 1 else f"every {save.every_epochs} epochs"
    if save.every_steps is not None:
        yield "after each step" if save.every_steps == 1 else f"every {save.every_steps:,} steps"
    if save.every_minutes is not None:
        plural = "minute" if save.every_minutes == 1 else f"{save.every_minutes:g} minutes"
        yield f"every {plural}"
    if save.on_signal:
        yield f"on {' or '.join(save.on_signal)}"


def _kept(rule: Keep, name: str) -> str:
    if rule.latest is not None:
        return "the newest" if rule.latest == 1 else f"the newest {rule.latest}"
    if rule.best is not None:
        best = "the best" if rule.best == 1 else f"the best {rule.best}"
        return f"{best} by {rule.monitor}" + ("" if rule.expected else ", if it is measured")
    if rule.every_n_steps is not None:
        return f"one every {rule.every_n_steps:,} steps"
    if rule.every_n_hours is not None:
        return f"one every {rule.every_n_hours:g} hours"
    return _listed([f"{name}-{number}" for number in rule.pin or ()])


def _listed(parts: Sequence[str]) -> str:
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last
