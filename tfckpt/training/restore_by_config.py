"""A restore by config from top to bottom: choose a source, open, name, plan, check, apply, report.

The first checkpoint that exists and can be read is restored. A run that resumes itself restores its
training state too.
"""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.core.inventory import Role
from tfckpt.errors import CheckpointError, RestoreError
from tfckpt.live.restore import carry_out, check, prepare, refuse
from tfckpt.live.variables import as_int
from tfckpt.live.workers import ALONE, workers_among
from tfckpt.manager.remarks import warn_of_fallback
from tfckpt.manager.sources import Selection, absent, continues
from tfckpt.planning import Plan, RestoreReport
from tfckpt.planning.checks.step import is_save_counter
from tfckpt.stored.bundles.keys import OBJECT_GRAPH
from tfckpt.training.resumption import KEYWORD, Restoration, Resumption, for_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.live.restore import Choice, Prepared
    from tfckpt.live.workers import Together
    from tfckpt.policy import Config
    from tfckpt.training.position import Position

_KINDS = {
    "weights": {Role.WEIGHT, Role.STATE},
    "optimizer": {Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER},
    "seeds": {Role.SEED},
}


def restore_by_config(
    config: Config, objects: Mapping[str, Any], counter: Any = None, fit: int | None = None
) -> Restoration:
    """Restore the checkpoint that a config selects; for a ``fit``, what it needs when it begins.

    Args:
        config: with a ``restore`` section.
        objects: by keyword.
        counter: the ``save_counter`` of a run that goes on.
        fit: the number of the ``fit`` that asks. What it restores at the saved position is only
            checked.
    """
    selection = Selection(config, workers_among(objects))
    for choices in selection:
        with (
            selection.trying() as workers,
            _prepared(choices, selection.rejected, objects, counter, workers) as (
                prepared,
                resumption,
            ),
        ):
            wanted, waits = prepared, False
            if fit is not None and resumption is not None and resumption.waits(fit):
                wanted, waits = for_fit(prepared, resumption, fit), True
            refuse(wanted.plan)
            _check_stored_step(wanted)
            if resumption is not None:
                _check_iterators(wanted)
            if waits:
                check(wanted, workers)
            else:
                carry_out(wanted, workers)
            report = prepared.report(selection.rejected)
            warn_of_fallback(selection.rejected, report.path)
            return Restoration(report, None if waits else prepared, resumption)
    nothing = RestoreReport(
        Plan("", "", ()), "", rejected=tuple(selection.rejected), absent=absent(config)
    )
    return Restoration(nothing)


def plan_by_config(config: Config, objects: Mapping[str, Any], counter: Any = None) -> Plan:
    """What :func:`restore_by_config` would do; assigns nothing."""
    selection = Selection(config)
    plan = None
    for choices in selection:
        with selection.trying(), _prepared(choices, [], objects, counter) as (prepared, _):
            plan = prepared.plan
            break
    if plan is not None:
        warn_of_fallback(selection.rejected, plan.source)
        return plan
    logging.warning("\n  ".join(["no checkpoint yet: nothing would be restored", *absent(config)]))
    return Plan("", "", ())


def warn_of(report: RestoreReport) -> None:
    """Log the warnings of a restore outside of ``fit``."""
    if not report.path:
        logging.warning("%s", report)
    for text in filter(None, (report.replacements, report.warnings)):
        logging.warning("%s: %s", report.path, text)


@contextmanager
def _prepared(
    choices: Sequence[Choice],
    rejected: Sequence[str],
    objects: Mapping[str, Any],
    counter: Any,
    workers: Together = ALONE,
) -> Iterator[tuple[Prepared, Resumption | None]]:
    """Open, name and plan; adds the restored training state, and what a later ``fit`` resumes."""
    if counter is not None and continues(choices):
        objects = {**objects, "save_counter": counter}
    choices = [dataclasses.replace(choice, leave=(KEYWORD,)) for choice in choices]
    with prepare(choices, objects, workers=workers) as prepared:
        state, resumption = choices[0].state, None
        if state:
            resumption = Resumption(prepared, choices[0], objects, rejected)
        words = _in_words(prepared, choices, resumption)
        if resumption is not None:
            resumption.words = words
        plan = dataclasses.replace(prepared.plan, training=words, training_state=state)
        yield dataclasses.replace(prepared, plan=plan), resumption


def _check_iterators(prepared: Prepared) -> None:
    """Compare the checksums of the object graph and of iterators: TensorFlow reads these later."""
    if (graph := prepared.stored.graph) is not None:
        states = (key for key, one in graph.entries.items() if one.dtype == "variant")
        graph.verify([OBJECT_GRAPH, *states])


def _check_stored_step(prepared: Prepared) -> None:
    """Raise a RestoreError if the stored value of ``step`` is not an integer."""
    stored = {part.source: part.stored for part in prepared.parts}
    for step in prepared.plan.assignments:
        if step.name != "step" or step.stored is None or step.stored.shape is None:
            continue
        source = stored[step.origin or prepared.plan.source]
        try:
            as_int(source.values.read(step.stored.key))
        except CheckpointError:  # damaged: the one before is tried
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise RestoreError(
                f"{source.prefix}: the stored value of `step` is not the number of a training "
                f"step: {error}",
                hint="exclude `step` in the policy, or restore another checkpoint",
            ) from None


def _in_words(prepared: Prepared, choices: Sequence[Choice], resumption: Resumption | None) -> str:
    """The restored training state as a sentence."""
    if resumption is not None:
        record = prepared.stored.record
        return f"training resumes {_after(resumption, record.step if record else None)}"
    kinds, others = _values(prepared.plan)
    if others:  # of a custom loop, which has its own counters
        return f"{_listed([*kinds, *others])} only, no other training state"
    what = f"{kinds[0]} only" if len(kinds) == 1 else _listed(kinds) or "no values"
    sentence = f"{what}: a new training begins"
    listed = "training_state" in choices[0].policy.model_fields_set
    if "optimizer" in kinds and continues(choices) and not listed:
        sentence += "; to resume the old one, list `training_state` in the policy"
    return sentence


def _values(plan: Plan) -> tuple[list[str], list[str]]:
    """What is assigned: kinds of values of models and optimizers, names of other objects."""
    within = {step.entry.role for step in plan.assignments if "/" in step.name}
    others = [
        step.name
        for step in plan.assignments
        if "/" not in step.name and not is_save_counter(step.entry)
    ]
    return [kind for kind, roles in _KINDS.items() if within & roles], others


def _after(resumption: Resumption, step: int | None) -> str:
    position, parts = resumption.position, resumption.parts
    if position is None:
        counted = step is not None and not resumption.epoch
        return f"after step {step:,}" if counted else f"after {_many(resumption.epoch, 'epoch')}"
    restored = [word for word in ("callbacks", "iterator", "seeds") if word in parts]
    details = f", with its {_listed(restored)}" if restored else ""
    return f"{_position(position, whole='batch' not in parts)}{details}"


def _position(position: Position, *, whole: bool) -> str:
    fit = f"in `fit` {position.fit + 1} " if position.fit else ""
    batches = 0 if position.ended else position.calls * position.steps_per_execution
    done = [_many(position.finished, "epoch")] if position.finished or not batches else []
    done += [_many(batches, "batch")] if batches else []
    restarted = f"; epoch {position.epoch + 1} starts again" if batches and whole else ""
    return f"{fit}after {' and '.join(done)}{restarted}"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else {'epoch': 'epochs', 'batch': 'batches'}[word]}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
