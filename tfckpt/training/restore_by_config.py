"""A restore by config: the first checkpoint that is there and can be read, for all workers.

Under several workers the chief tries what there is, in order; what it has read and checked it tells
the others, which restore the same with it, or all refuse.
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

    Given = Callable[[Sequence[Choice]], dict[str, Any]]


def restore_first(
    config: Config, objects: Mapping[str, Any], given: Given, fit: int | None = None
) -> Restoration:
    """Restore what a config means.

    Args:
        config: what was declared.
        objects: the live ones, by keyword.
        given: what a restore from some choices takes besides.
        fit: the number of the ``fit`` that begins, if one does: what it, or a later one, goes on
            from is only looked for and checked, and ``prepared`` is None.

    Raises:
        TfckptError: as ``Run.restore`` says.
    """

    def restore(
        choices: Sequence[Choice],
        rejected: tuple[str, ...],
        state: tuple[str, ...],
        told: Any = None,
        *,
        follows: bool = False,
    ) -> Restoration:
        choices, here = without_training(choices), partial(given, choices)
        with (
            Restoring(workers_among(objects), told, follows=follows) as workers,
            prepare(choices, here(), workers=workers) as plain,
        ):
            prepared, resumption = _with_training(plain, choices, state, here, rejected)
            check_stored_step(prepared)
            if fit is not None and resumption is not None and resumption.waits(fit):
                check(for_fit(prepared, resumption, fit), workers)
                return Restoration(prepared.report(rejected), None, resumption)
            carry_out(prepared, workers)
            return Restoration(prepared.report(rejected), prepared, resumption)

    def attempt(choices: Sequence[Choice], rejected: tuple[str, ...]) -> Restoration:
        state = training_state_of(config, choices)
        told = {**choice_to_json(config, choices, rejected), "training_state": state}
        return restore(choices, rejected, state, told)

    def follow(told: Any) -> Selected:
        choices, rejected = choice_from_json(config, told)
        if not choices:
            return Selected(None, rejected)
        state = tuple(told["training_state"])
        return Selected(restore(choices, rejected, state, follows=True), rejected)

    found = chosen(
        workers_among(objects),
        lambda: first_readable(config, attempt),
        follow,
        lambda found: choice_to_json(config, (), found.rejected),
    )
    if isinstance(found.result, Restoration):
        return found.result
    nothing = Plan("", "", ())
    return Restoration(RestoreReport(nothing, "", rejected=found.rejected, absent=absent(config)))


def plan_first(config: Config, given: Given) -> Plan:
    """What :func:`restore_first` would do; assigns nothing."""

    def attempt(choices: Sequence[Choice], rejected: tuple[str, ...]) -> Plan:
        state, here = training_state_of(config, choices), partial(given, choices)
        choices = without_training(choices)
        with prepare(choices, here()) as prepared:
            return _with_training(prepared, choices, state, here)[0].plan

    found = first_readable(config, attempt)
    for reason in found.rejected:
        logging.warning("passed over: %s", reason)
    if isinstance(found.result, Plan):
        return found.result
    logging.warning("\n  ".join(["no checkpoint yet: nothing would be restored", *absent(config)]))
    return Plan("", "", ())


def warn_of(report: RestoreReport) -> None:
    """Log what a restore outside of ``fit`` has to warn of."""
    if not report.path:
        logging.warning("%s", report)
    for text in filter(None, (report.replacements, report.warnings)):
        logging.warning("%s: %s", report.path, text)


def _with_training(
    prepared: Prepared,
    choices: Sequence[Choice],
    state: tuple[str, ...],
    given: Callable[[], Mapping[str, Any]],
    rejected: tuple[str, ...] = (),
) -> tuple[Prepared, Resumption | None]:
    """The plan says what of a training comes back; and it, for the ``fit`` that goes on."""
    resumption = None
    if state:
        resumption = Resumption(prepared, choices[0], state, given, rejected)
    words = in_words(prepared, choices, resumption)
    if resumption is not None:
        resumption.words = words
    plan = dataclasses.replace(prepared.plan, training=words, training_state=state)
    return dataclasses.replace(prepared, plan=plan), resumption
