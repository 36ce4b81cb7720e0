"""What is checked and said before a training starts: why it would not be exact, or train nothing.

The model that ``fit`` trains may be a wrapper around the run's models, or share layers with one:
its weights are then the run's, and variables that only it has are reported. A model that shares
nothing with the run is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from tfckpt.core import versions
from tfckpt.core.inventory import Role
from tfckpt.core.text import listed
from tfckpt.errors import TfckptError
from tfckpt.live import data
from tfckpt.live.inventory import collect
from tfckpt.live.private import fit, tf_data
from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.live.private.runtime import global_seed
from tfckpt.live.restore import TRAINING
from tfckpt.live.variables import is_averaged, is_variable, raw
from tfckpt.live.workers import strategy_without_fit
from tfckpt.planning import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfckpt.live.data import Captured
    from tfckpt.planning import RestoreReport, Step
    from tfckpt.training.position import Position

_SHOWN = 3
_DRAWS = re.compile("Random(?!Dataset).*|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial")
_ANEW = "start over with start_over=True"

INTERRUPTED = (
    "the last `fit` of this callback was interrupted; this `fit` restores nothing and starts from "
    "the model's current values: to resume, create the model and the callback again"
)
AGAIN = (
    "the last `fit` of this model was interrupted: this one resumes from the last save; that is "
    "exact if the dataset is created again, after {} if it is random"
)
ONCE_MORE = (
    "another `fit` of this model: trains all its epochs, from the weights that the model has, as "
    "each later one does; to run a notebook cell again without training twice, create the model in "
    "that cell"
)
AGAIN_WITHOUT_A_SAVE = (
    "the last `fit` of this model was interrupted before its first save, and the model keeps what "
    "it learned since: create the model again to start from scratch"
)
OF_ANOTHER_MODEL = (
    "{} has the checkpoints of another model that this process has trained to the end: this model "
    "restores the weights and History of that one; use one directory per model, or start over with "
    "start_over=True"
)
COMPILED_AGAIN = (
    "the model was compiled after the restore, so its new optimizer does not have the restored "
    "state; compile the model before the restore"
)
NOTHING_RESTORED = (
    "nothing is restored: the callback restores when `fit` begins; before `evaluate` or `predict`, "
    "call tfckpt.restore(path, model), or run.restore()"
)
NO_METRICS = (
    "not exact: the metrics of this epoch begin again, since its step cannot be traced before it "
    "runs; so do the logs of the epoch, and what a callback decides by them"
)
UNREAD = (
    "not exact: the dataset has variables, or a shuffle inside a repeat or another shuffle, and an "
    "earlier `fit` that reads it too was finished and is skipped, so they start again; give each "
    "`fit` its own dataset"
)


def set_seed_of(model: Any) -> str:
    """The function that sets the seeds, of the Keras that a model is of."""
    return f"{'keras' if fit.is_keras3(model) else 'tf_keras'}.utils.set_random_seed"


def about_data(iterator: Any, captured: Captured, model: Any) -> Iterator[str]:
    """Why another process would not get the same batches again."""
    if not tf_data.shows_seeds():
        yield (
            "tfckpt does not know what the datasets of this TensorFlow draw from "
            f"({versions.in_use()}): a resumed training reads its epoch again, and is exact if "
            "the same batches come in the same order"
        )
        return
    seeded = global_seed() is not None
    kind = data.kind_of(iterator, captured, seeded=seeded)
    if kind == data.REPLAYED:
        yield (
            "the dataset has a state that cannot be saved (of Python code, of a distribution "
            "strategy, of a shuffle inside a shuffle, repeat or cache in memory, or of random "
            "operations beside variables): a resumed training reads its epoch again, and is "
            "exact if the same batches come in the same order"
        )
    elif data.draws(iterator, captured, seeded=seeded):
        what = (
            ": a resumed training completes its epoch exactly, but draws other numbers in later "
            "epochs"
            if kind == data.SAVED
            else " and cannot be saved, so a resumed training is not exact"
        )
        yield (
            f"the data are shuffled or drawn without a seed{what}; call {set_seed_of(model)} to "
            "make it exact"
        )


def about_validation(times: int, steps: int | None, *, exact: bool) -> str:
    """What is read before the training goes on."""
    far = "to their end" if steps is None else f"{steps:,} {'batch' if steps == 1 else 'batches'}"
    return (
        f"reads the validation data again, {times:,} × {far}: they shuffle inside a repeat, "
        "another shuffle or a cache, where only reading draws the same numbers"
        + ("" if exact else "; of two shuffles that is not exact: use one")
    )


VALIDATION_GOES_ON = (
    "validation by `validation_steps` is not exact: Keras before 3.7 begins it where the last ended"
)
READ_BESIDE = (
    "not exact: a callback reads the data of `fit` itself, and their shuffle goes on with that; "
    "give it a dataset of its own"
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


def about_step(graphs: Iterable[Any], model: Any) -> Iterator[str]:
    """TensorFlow's operations that draw in a step that was traced."""
    found: dict[str, str] = {}
    for definition in (graph.as_graph_def() for graph in graphs):
        for nodes in (definition.node, *(each.node_def for each in definition.library.function)):
            found |= {node.name: node.op for node in nodes if _DRAWS.fullmatch(node.op)}
    drawn = (f"{op} in {n.rpartition('/')[0] or n}" for n, op in sorted(found.items()))
    return _about_draws(drawn, model)


def about_eager_layers(model: Any) -> Iterator[str]:
    """Layers of tf_keras that draw eagerly by a seed, which they count on in Python."""
    generators = {
        each.name: getattr(each, "_random_generator", None) for each in with_layers_below(model)
    }
    drawn = (
        f"the layer {name!r}"
        for name, one in generators.items()
        if getattr(one, "_seed", None) is not None and getattr(one, "_generator", None) is None
    )
    return _about_draws(drawn, model)


def about_eager_steps(one: set[Any], other: set[Any], model: Any) -> Iterator[str]:
    """Operations of two eager steps that draw by a seed of their own, which does not change."""
    again = sorted({kind for kind, *seeds in one & other if any(seeds) and _DRAWS.fullmatch(kind)})
    return _about_draws((f"{kind} with a seed" for kind in again), model)


def _about_draws(found: Iterable[str], model: Any) -> Iterator[str]:
    if shown := listed(list(found), _SHOWN):
        draw_by = (
            "keras.random and a SeedGenerator of the layer, or with a tf.random.Generator"
            if fit.is_keras3(model)
            else "a tf.random.Generator of the layer; layers of tf_keras do so after "
            "tf_keras.backend.experimental.enable_tf_random_generator()"
        )
        yield (
            f"not exact: a training step draws by {shown}, whose state TensorFlow cannot save, as "
            f"all of tf.random but its generators; draw with {draw_by}"
        )


def about_objects(model: Any, objects: Mapping[str, Any]) -> Iterator[str]:
    """Variables of the model that are not in the objects of the run."""
    if own_variables(model, objects):
        yield (
            f"`fit` trains {model.name!r}, which was not passed to the run: what only this model "
            "has, such as its optimizer and metrics, is not saved, so a resumed training is not "
            "exact; pass the model to the run"
        )


def about_replicas(model: Any) -> Iterator[str]:
    """Variables of tf_keras of which each replica has its own."""
    if fit.is_keras3(model) or model.distribute_strategy.num_replicas_in_sync == 1:
        return
    variables = collect({"model": model}).variables
    if averaged := [name for name, variable in variables.items() if is_averaged(variable)]:
        yield (
            f"not exact in the last digit: a file has the mean of {listed(averaged, _SHOWN)} "
            "over replicas"
        )


def about_metrics(missing: Sequence[str]) -> Iterator[str]:
    """Metrics of the checkpoint that the model has only after the next validation."""
    if missing:
        yield (
            f"the model gets {listed(missing, _SHOWN)} only by the next validation, so the logs of "
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


def summary(report: RestoreReport | None) -> str:
    """What was restored, in the lines that a person sees first."""
    if report is None:
        return "nothing is restored: the config has no `restore` section"
    if not report.path:
        return str(report)
    counted = Counter(step.status for step in report.plan.steps if not _of_fit(step))
    counts = ", ".join(f"{counted[each]} {each}" for each in Status if counted[each])
    epoch = "" if report.epoch is None else f" (epoch {report.epoch})"
    chosen = f", {report.plan.chosen}" if report.plan.chosen else ""
    lines = f"restored {report.path}{epoch}{chosen}: {counts}", report.training, report.replacements
    return "\n".join(filter(None, lines))


def _of_fit(step: Step) -> bool:
    """Whether a line of the plan is of the training state, which has a sentence of its own."""
    made_later = step.entry.role is Role.METRIC and step.status is Status.UNEXPECTED
    return made_later or step.source.partition("/")[0] == TRAINING


# The model that is trained


def check_trained(model: Any, objects: Mapping[str, Any]) -> None:
    """Raise a TfckptError if a model shares nothing with the run."""
    if any(obj is model for obj in objects.values()):
        return
    run, its = collect(objects), collect({"model": model})
    held = _identities(run.variables) | {id(layer) for layer in run.unbuilt.values()}
    entries = its.inventory.entries
    weights = {n: v for n, v in its.variables.items() if entries[n].role is Role.WEIGHT}
    if held.isdisjoint(_identities(weights) | {id(layer) for layer in with_layers_below(model)}):
        raise TfckptError(
            f"`fit` trains {model.name!r}, which shares no weights with the objects of the run "
            f"({', '.join(objects) or 'nothing'})",
            hint="pass the trained model to the run",
        )


def check_fit(objects: Mapping[str, Any]) -> None:
    """Raise a TfckptError with an alternative if ``fit`` does not work under a strategy."""
    for obj in objects.values():
        strategy, keras3 = strategy_without_fit(obj)
        if strategy and keras3:
            raise TfckptError(
                f"Keras 3 has no `fit` under {strategy} (keras#20585)",
                hint="train in a custom loop, with `run.restore()` before it and "
                "`run.save_if_due()` after each step, or use tf_keras, whose `fit` works there",
            )
        if strategy:
            raise TfckptError(
                f"tf_keras's `fit` does not support batch-level callbacks under {strategy}",
                hint="call `run.restore()` before `fit`, and pass it initial_epoch=run.epoch and "
                "callbacks=[LambdaCallback(on_epoch_end="
                "lambda epoch, _: run.save(epoch=epoch + 1))]",
            )


def own_variables(model: Any, objects: Mapping[str, Any]) -> list[Any]:
    """The current variables of a model that are not in the objects of the run."""
    if any(obj is model for obj in objects.values()):
        return []
    held = _identities(collect(objects).variables)
    its = collect({"model": model}).variables.values()
    return [raw(each) for each in its if is_variable(each) and id(raw(each)) not in held]


def _identities(variables: Mapping[str, Any]) -> set[int]:
    return {id(raw(each)) for each in variables.values() if is_variable(each)}
