"""What is said before a training starts: why it would not be exact, or has nothing to train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.live.program_state import iterators, random_state
from tfckpt.training.state.trained import own_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.live.program_state.captured import Captured
    from tfckpt.training.state.position import Position

_SHOWN = 3
_ANEW = "start over with start_over=True"


def about_data(iterator: Any, found: Captured) -> Iterator[str]:
    """What of the data another process would not give again."""
    seeded = random_state.global_seed() is not None
    kind = iterators.kind_of(iterator, found, seeded=seeded)
    if kind == iterators.REPLAYED:
        yield (
            "the data has a state that cannot be saved (Python's own, a strategy's, of a shuffle "
            "within a shuffle or repetition, or of operations that draw beside variables): "
            "training that is resumed asks for every batch again, and is exact if the same come "
            "in the same order"
        )
    elif iterators.draws(iterator, found, seeded=seeded):
        yield (
            "the data is drawn without a seed: training that is resumed completes the epoch it is "
            "in, and draws later ones anew; keras.utils.set_random_seed makes it exact"
            if kind == iterators.SAVED
            else "the data is drawn without a seed and cannot be saved: training that is resumed "
            "is not exact; keras.utils.set_random_seed makes it exact"
        )


def about_calls(found: Captured) -> Iterator[str]:
    """That the functions of the data are called at the same time, and draw from the same state."""
    if found.races:
        yield (
            "a function of the data draws or counts, and is called for several elements at once "
            "(num_parallel_calls), in an order that changes from run to run: training that is "
            "resumed is not exact, nor is one that starts again; leave num_parallel_calls out, or "
            "call tf.config.experimental.enable_op_determinism()"
        )


def about_model(model: Any) -> Iterator[str]:
    """What of the model no checkpoint holds."""
    layers = [
        layer.name
        for layer in model._flatten_layers()
        if getattr(getattr(layer, "_random_generator", None), "_rng_type", "") == "legacy_stateful"
    ]
    if layers:
        more = f" and {len(layers) - _SHOWN} more" if len(layers) > _SHOWN else ""
        yield (
            f"{', '.join(layers[:_SHOWN])}{more}: draws by an operation whose state cannot be "
            "saved, so that training that is resumed is not exact; call "
            "tf_keras.backend.experimental.enable_tf_random_generator() before the model is made"
        )


def about_objects(model: Any, objects: Mapping[str, Any]) -> Iterator[str]:
    """What of the model the run does not know of."""
    if own_variables(model, objects):
        yield (
            f"the run was not given {model.name!r}, which `fit` trains: what it alone has, such as "
            "its optimizer and metrics, is in no checkpoint, so that training that is resumed is "
            "not exact; give it to the run"
        )


def about_end(done: int, epochs: int, fit: int) -> str:
    """That nothing is left to train."""
    of = f"{done:,} of {epochs:,} epochs" + (f" of `fit` {fit + 1}" if fit else "")
    if done < epochs:
        return (
            f"a callback ended the training after {of}: nothing to train; to go on all the same, "
            f"give `training_state: [epoch, batch, iterator, seeds]` in the policy, or {_ANEW}"
        )
    return f"{of} are done: nothing to train; raise `epochs`, or {_ANEW}"


def about_another(fit: int, position: Position) -> str:
    """That the checkpoint is of a ``fit`` that comes after this one."""
    return (
        f"`fit` {fit + 1} of this program was over, nothing to train: the checkpoint is of `fit` "
        f"{position.fit + 1}, {position.finished:,} of {position.epochs:,} epochs done, which "
        "resumes when it is called; where it was one cell that was run again, run it again, or "
        f"{_ANEW}"
    )
