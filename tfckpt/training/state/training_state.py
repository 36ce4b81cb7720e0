"""Which training state a restore brings back, besides the variables.

A checkpoint of the run's own directory is an interrupted training. One from elsewhere starts a new
training, which must not end at once because the other one had as many epochs; unless the policy
lists ``training_state`` itself.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.planning.checks.completeness import is_save_counter
from tfckpt.stored.io.files import same_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.live.restoring.restore import Choice, Prepared
    from tfckpt.planning import Plan
    from tfckpt.policy import Config, Manager
    from tfckpt.training.state.position import Position
    from tfckpt.training.state.resumption import Resumption

_KINDS = {
    "weights": {Role.WEIGHT, Role.STATE},
    "optimizer": {Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER},
    "seeds": {Role.SEED},
}


def takes_up(choices: Sequence[Choice]) -> bool:
    """Whether a single checkpoint is continued, including its save counter."""
    first, *others = choices
    return not others and isinstance(first.place, str) and first.policy.api == "restore"


def training_state_of(config: Config, choices: Sequence[Choice]) -> tuple[str, ...]:
    """The parts that are restored, as in the policy; () if a new training begins."""
    policy, place = choices[0].policy, str(choices[0].place)
    listed = "training_state" in policy.model_fields_set
    if not takes_up(choices) or not (listed or _is_of(config.manager, place)):
        return ()
    return policy.training_state if "epoch" in policy.training_state else ()


def _is_of(manager: Manager | None, prefix: str) -> bool:
    """Whether a checkpoint is of the run's directory and name."""
    if manager is None or not same_directory(prefix, manager.directory):
        return False
    name = os.path.split(prefix)[1]
    return re.fullmatch(rf"{re.escape(manager.checkpoint_name)}-\d+", name) is not None


def in_words(prepared: Prepared, choices: Sequence[Choice], resumption: Resumption | None) -> str:
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
    if "optimizer" in kinds and takes_up(choices) and not listed:
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
