"""Warnings before a training starts: why it would not be exact, or has nothing to train."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.core.text import listed
from tfckpt.live.private import fit, tf_data, versions
from tfckpt.live.private.runtime import global_seed
from tfckpt.live.program_state import iterators
from tfckpt.live.variables.flavors import flavor_of, has_own_step
from tfckpt.planning import Status
from tfckpt.training.trained import own_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.live.program_state.captured import Captured
    from tfckpt.planning import Plan
    from tfckpt.training.position import Position

_SHOWN = 3
_DRAWS = re.compile("Random(?!Dataset).*|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial")
_ANEW = "start over with start_over=True"

UNREAD = (
    "not exact: the dataset has variables, or a shuffle inside a repeat or another shuffle, and an "
    "earlier `fit` that reads it too was finished and is skipped, so they start again; give each "
    "`fit` its own dataset"
)


def about_data(iterator: Any, captured: Captured) -> Iterator[str]:
    """Why another process would not get the same batches again."""
    if not tf_data.shows_seeds():
        yield (
            "tfckpt does not know what the datasets of this TensorFlow draw from "
            f"({versions.in_use()}): a resumed training reads its epoch again, and is exact if "
            "the same batches come in the same order"
        )
        return
    seeded = global_seed() is not None
    kind = iterators.kind_of(iterator, captured, seeded=seeded)
    if kind == iterators.REPLAYED:
        yield (
            "the dataset has a state that cannot be saved (of Python code, of a distribution "
            "strategy, of a shuffle inside a shuffle, repeat or cache in memory, or of random "
            "operations beside variables): a resumed training reads its epoch again, and is "
            "exact if the same batches come in the same order"
        )
    elif iterators.draws(iterator, captured, seeded=seeded):
        yield (
            "the dataset is random without a seed: a resumed training completes its epoch exactly, "
            "but draws other numbers in later epochs; call keras.utils.set_random_seed to make it "
            "exact"
            if kind == iterators.SAVED
            else "the dataset is random without a seed and cannot be saved, so a resumed training "
            "is not exact; call keras.utils.set_random_seed to make it exact"
        )


def about_calls(captured: Captured) -> Iterator[str]:
    """Whether functions of the dataset run in parallel and draw from the same state."""
    if captured.races:
        yield (
            "a function of the dataset draws random numbers or counts, and num_parallel_calls runs "
            "it for several elements at once, in an order that changes from run to run: neither a "
            "resumed nor a repeated training is exact; remove num_parallel_calls, or call "
            "tf.config.experimental.enable_op_determinism()"
        )


def about_step(function: Any) -> Iterator[str]:
    """TensorFlow's operations that draw in a step that was traced."""
    found: dict[str, str] = {}
    for definition in fit.definitions_of(function):
        for nodes in (definition.node, *(each.node_def for each in definition.library.function)):
            found |= {node.name: node.op for node in nodes if _DRAWS.fullmatch(node.op)}
    if found:
        each = (f"{op} in {name.rpartition('/')[0] or name}" for name, op in sorted(found.items()))
        shown = listed(list(each), _SHOWN)
        yield (
            f"not exact: a training step draws by {shown}, whose state TensorFlow cannot save, as "
            "all of tf.random but its generators; draw with keras.random and a SeedGenerator of "
            "the layer, or with a tf.random.Generator"
        )


def about_objects(model: Any, objects: Mapping[str, Any]) -> Iterator[str]:
    """Variables of the model that are not in the objects of the run."""
    if own_variables(model, objects):
        yield (
            f"`fit` trains {model.name!r}, which was not passed to the run: what only this model "
            "has, such as its optimizer and metrics, is not saved, so a resumed training is not "
            "exact; pass the model to the run"
        )


def about_metrics(model: Any, plan: Plan) -> Iterator[str]:
    """Metrics of the checkpoint that the model has only after the next validation.

    Where ``train_step`` updates no metric, tf_keras puts into the logs of an epoch what it returns;
    once a validation has made metrics of these names, it puts in their values
    (``_validate_and_get_metrics_result`` in tf_keras/src/engine/training.py).
    """
    flavor = flavor_of(model)
    if flavor is None or flavor.name != "tf_keras" or not has_own_step(model):
        return
    missing = [s for s in plan.steps if s.status is Status.UNEXPECTED]
    if names := [step.source for step in missing if step.entry.role is Role.METRIC]:
        yield (
            f"the model gets {listed(names, _SHOWN)} only by the next validation, so the logs of "
            "this epoch are not exact; the weights are"
        )


def about_end(done: int, epochs: int, fit: int) -> str:
    """The message if nothing is left to train."""
    of = f"{done:,} of {epochs:,} epochs" + (f" of `fit` {fit + 1}" if fit else "")
    if done < epochs:
        return (
            f"a callback stopped the training after {of}: nothing to train; to continue anyway, "
            f"set `training_state: [epoch, batch, iterator, seeds]` in the policy, or {_ANEW}"
        )
    return f"{of} are done: nothing to train; raise `epochs`, or {_ANEW}"


def about_another(fit: int, position: Position, *, kept: bool) -> str:
    """The message if the checkpoint is of a later ``fit``; ``kept`` if the end of this one is."""
    until_then = "as they were at its end" if kept else "those of the checkpoint"
    return (
        f"`fit` {fit + 1} of this program was finished, nothing to train: the checkpoint is of "
        f"`fit` {position.fit + 1}, {position.finished:,} of {position.epochs:,} epochs done, "
        f"which resumes when it is called (until then, the weights are {until_then}); if one "
        "notebook cell was run twice, run it again, or "
        f"{_ANEW}"
    )
