"""A restore by config: the first checkpoint that exists and can be read, on all workers.

With several workers the chief tries the candidates in order and sends the one it has read and
checked to the others. All of them restore it, or none does.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.live.distribution.agreement import Restoring, chosen, workers_among
from tfckpt.live.restoring.restore import Prepared, carry_out, check, prepare
from tfckpt.manager.absent import absent
from tfckpt.manager.source_selection import (
    Selected,
    choice_from_json,
    choice_to_json,
    first_readable,
)
from tfckpt.planning import Plan, RestoreReport
from tfckpt.training.state.resumption import Restoration, Resumption, for_fit, without_training
from tfckpt.training.state.training_state import in_words, training_state_of
from tfckpt.training.steps import check_stored_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfckpt.live.restoring.restore import Choice
    from tfckpt.policy import Config

    ObjectsFor = Callable[[Sequence[Choice]], dict[str, Any]]


def restore_first(
    config: Config, objects: Mapping[str, Any], objects_for: ObjectsFor, fit: int | None = None
) -> Restoration:
    """Restore the checkpoint that a config selects.

    Args:
        config: with a ``restore`` section.
        objects: of the run, by keyword.
        objects_for: the objects to restore, for the chosen checkpoints.
        fit: index of the ``fit`` that begins, if any; a checkpoint that it or a later one resumes
            is only found and checked, and ``prepared`` is None.

    Raises:
        TfckptError: as ``Run.restore`` says.
    """

    def restore(
        choices: Sequence[Choice],
        rejected: tuple[str, ...],
        state: tuple[str, ...],
        choice: Any = None,
        *,
        follows: bool = False,
    ) -> Restoration:
        choices, to_restore = without_training(choices), partial(objects_for, choices)
        with (
            Restoring(workers_among(objects), choice, follows=follows) as workers,
            prepare(choices, to_restore(), workers=workers) as plain,
        ):
            prepared, resumption = _with_training(plain, choices, state, to_restore, rejected)
            check_stored_step(prepared)
            if fit is not None and resumption is not None and resumption.waits(fit):
                check(for_fit(prepared, resumption, fit), workers)
                return Restoration(prepared.report(rejected), None, resumption)
            carry_out(prepared, workers)
            return Restoration(prepared.report(rejected), prepared, resumption)

    def attempt(choices: Sequence[Choice], rejected: tuple[str, ...]) -> Restoration:
        state = training_state_of(config, choices)
        choice = {**choice_to_json(config, choices, rejected), "training_state": state}
        return restore(choices, rejected, state, choice)

    def follow(choice: Any) -> Selected:
        choices, rejected = choice_from_json(config, choice)
        if not choices:
            return Selected(None, rejected)
        state = tuple(choice["training_state"])
        return Selected(restore(choices, rejected, state, follows=True), rejected)

    selected = chosen(
        workers_among(objects),
        lambda: first_readable(config, attempt),
        follow,
        lambda selected: choice_to_json(config, (), selected.rejected),
    )
    if isinstance(selected.result, Restoration):
        return selected.result
    nothing = Plan("", "", ())
    return Restoration(
        RestoreReport(nothing, "", rejected=selected.rejected, absent=absent(config))
    )


def plan_first(config: Config, objects_for: ObjectsFor) -> Plan:
    """What :func:`restore_first` would do; assigns nothing."""

    def attempt(choices: Sequence[Choice], rejected: tuple[str, ...]) -> Plan:
        state = training_state_of(config, choices)
        to_restore = partial(objects_for, choices)
        choices = without_training(choices)
        with prepare(choices, to_restore()) as prepared:
            return _with_training(prepared, choices, state, to_restore)[0].plan

    selected = first_readable(config, attempt)
    for reason in selected.rejected:
        logging.warning("passed over: %s", reason)
    if isinstance(selected.result, Plan):
        return selected.result
    logging.warning("\n  ".join(["no checkpoint yet: nothing would be restored", *absent(config)]))
    return Plan("", "", ())


def warn_of(report: RestoreReport) -> None:
    """Log the warnings of a restore outside of ``fit``."""
    if not report.path:
        logging.warning("%s", report)
    for text in filter(None, (report.replacements, report.warnings)):
        logging.warning("%s: %s", report.path, text)


def _with_training(
    prepared: Prepared,
    choices: Sequence[Choice],
    state: tuple[str, ...],
    to_restore: Callable[[], Mapping[str, Any]],
    rejected: tuple[str, ...] = (),
) -> tuple[Prepared, Resumption | None]:
    """Add the restored training state to the plan; and the resumption for a later ``fit``."""
    resumption = None
    if state:
        resumption = Resumption(prepared, choices[0], state, to_restore, rejected)
    words = in_words(prepared, choices, resumption)
    if resumption is not None:
        resumption.words = words
    plan = dataclasses.replace(prepared.plan, training=words, training_state=state)
    return dataclasses.replace(prepared, plan=plan), resumption
