"""A restore by config from top to bottom: choose a source, open, name, plan, check, apply, report.

The first checkpoint that exists and can be read is restored. With several workers the chief tries
the candidates in order and sends the one it has read and checked to the others. All of them restore
it, or none does.

A run that resumes itself restores its training state too. A checkpoint from elsewhere is where a
new training begins: its epoch, callbacks and data position belong to another one, unless the policy
lists ``training_state`` itself.
"""

from __future__ import annotations

import dataclasses
import os
import re
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from tfckpt.core.inventory import Role
from tfckpt.errors import CheckpointError, RestoreError
from tfckpt.live.restore import carry_out, check, prepare
from tfckpt.live.variables import as_int
from tfckpt.live.workers import (
    ALONE,
    PassedOverError,
    Together,
    choices_of_chief,
    chose_nothing,
    offered,
    workers_among,
)
from tfckpt.manager.absent import absent
from tfckpt.manager.source_selection import PASSED_OVER, Selection, choice_from_json, choice_to_json
from tfckpt.planning import Plan, RestoreReport
from tfckpt.planning.checks.step import is_save_counter
from tfckpt.stored.bundles.keys import OBJECT_GRAPH
from tfckpt.stored.io.files import same_directory
from tfckpt.training.resumption import KEYWORD, Restoration, Resumption, for_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.live.restore import Choice, Prepared
    from tfckpt.policy import Config, Manager
    from tfckpt.training.position import Position

_KINDS = {
    "weights": {Role.WEIGHT, Role.STATE},
    "optimizer": {Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER},
    "seeds": {Role.SEED},
}


def restore_first(
    config: Config, objects: Mapping[str, Any], counter: Any = None, fit: int | None = None
) -> Restoration:
    """Restore the checkpoint that a config selects."""
    workers = workers_among(objects)
    rejected: tuple[str, ...] = ()
    if workers is None or workers.chief:
        selection = Selection(config)
        tried = (_Chosen.of(config, choices, selection.rejected) for choices in selection)
        for chosen in offered(workers, tried, partial(_sent, config)):
            with selection.trying(), Together(workers, passes=PASSED_OVER) as together:
                return _restore(chosen, objects, counter, fit, together)
        rejected = selection.rejected
        chose_nothing(workers, choice_to_json(config, (), rejected))
    else:
        for sent in choices_of_chief(workers):
            choices, rejected = choice_from_json(config, sent)
            if not choices:
                break
            choices = _with_all(choices) if _goes_on(config, choices) else choices
            chosen = _Chosen(choices, tuple(sent["training_state"]), rejected)
            with suppress(PassedOverError), Together(workers) as together:
                return _restore(chosen, objects, counter, fit, together)
    report = RestoreReport(Plan("", "", ()), "", rejected=rejected, absent=absent(config))
    return Restoration(report)


def _sent(config: Config, chosen: _Chosen) -> Any:
    """What the other workers get of the chief's choice."""
    sent = choice_to_json(config, chosen.choices, chosen.rejected)
    return {**sent, "training_state": chosen.training_state}


def _restore(
    chosen: _Chosen, objects: Mapping[str, Any], counter: Any, fit: int | None, workers: Together
) -> Restoration:
    with _planned(chosen, objects, counter, workers) as (prepared, resumption):
        _check_stored_step(prepared)
        graph = prepared.stored.graph if resumption is not None else None
        if graph is not None:  # TensorFlow reads these within `fit`
            states = (key for key, one in graph.entries.items() if one.dtype == "variant")
            graph.verify([OBJECT_GRAPH, *states])
        if fit is not None and resumption is not None and resumption.waits(fit):
            check(for_fit(prepared, resumption, fit), workers)
            return Restoration(prepared.report(chosen.rejected), None, resumption)
        carry_out(prepared, workers)
        report = prepared.report(chosen.rejected)
        return Restoration(report, prepared, resumption)


def plan_first(config: Config, objects: Mapping[str, Any], counter: Any = None) -> Plan:
    """What :func:`restore_first` would do; assigns nothing."""
    selection = Selection(config)
    plan = None
    for choices in selection:
        chosen = _Chosen.of(config, choices)
        with selection.trying(), _planned(chosen, objects, counter) as (prepared, _):
            plan = prepared.plan
            break
    for reason in selection.rejected:
        logging.warning("passed over: %s", reason)
    if plan is not None:
        return plan
    logging.warning("\n  ".join(["no checkpoint yet: nothing would be restored", *absent(config)]))
    return Plan("", "", ())


def warn_of(report: RestoreReport) -> None:
    """Log the warnings of a restore outside of ``fit``."""
    if not report.path:
        logging.warning("%s", report)
    for text in filter(None, (report.replacements, report.warnings)):
        logging.warning("%s: %s", report.path, text)


class _Chosen(NamedTuple):
    """What is tried."""

    choices: Sequence[Choice]
    training_state: tuple[str, ...]
    rejected: tuple[str, ...]

    @classmethod
    def of(
        cls, config: Config, choices: Sequence[Choice], rejected: tuple[str, ...] = ()
    ) -> _Chosen:
        policy, goes_on = choices[0].policy, _goes_on(config, choices)
        listed = "training_state" in policy.model_fields_set
        resumes = goes_on or (_continues(choices) and listed)
        state = policy.training_state if resumes and "epoch" in policy.training_state else ()
        return cls(_with_all(choices) if goes_on else choices, state, rejected)


@contextmanager
def _planned(
    chosen: _Chosen, objects: Mapping[str, Any], counter: Any, workers: Together = ALONE
) -> Iterator[tuple[Prepared, Resumption | None]]:
    """Open, name and plan; adds the restored training state, and what a later ``fit`` resumes."""
    if counter is not None and _continues(chosen.choices):
        objects = {**objects, "save_counter": counter}
    choices = [dataclasses.replace(choice, leave=(KEYWORD,)) for choice in chosen.choices]
    with prepare(choices, objects, workers=workers) as prepared:
        state, resumption = chosen.training_state, None
        if state:
            resumption = Resumption(prepared, choices[0], state, objects, chosen.rejected)
        words = _in_words(prepared, choices, resumption)
        if resumption is not None:
            resumption.words = words
        plan = dataclasses.replace(prepared.plan, training=words, training_state=state)
        yield dataclasses.replace(prepared, plan=plan), resumption


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


def _continues(choices: Sequence[Choice]) -> bool:
    """Whether a single checkpoint is continued, including its save counter."""
    first, *others = choices
    return not others and isinstance(first.place, str) and first.policy.api == "restore"


def _goes_on(config: Config, choices: Sequence[Choice]) -> bool:
    """Whether a run goes on from its own directory."""
    return _continues(choices) and _is_of(config.manager, str(choices[0].place))


def _with_all(choices: Sequence[Choice]) -> list[Choice]:
    """The same, and everything of both sides is asked for."""
    return [dataclasses.replace(choice, whole=True) for choice in choices]


def _is_of(manager: Manager | None, prefix: str) -> bool:
    """Whether a checkpoint is of the run's directory and name."""
    if manager is None or not same_directory(prefix, manager.directory):
        return False
    name = os.path.split(prefix)[1]
    return re.fullmatch(rf"{re.escape(manager.checkpoint_name)}-\d+", name) is not None


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
    if "optimizer" in kinds and _continues(choices) and not listed:
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
