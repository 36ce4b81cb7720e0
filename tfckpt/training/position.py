"""The position of a training in its data, as the commit record stores it, and what it needs.

It says at which epoch Keras begins, how many calls of the train function it skips there, and how
the next batch is reached: by the saved iterator, or by reading so many batches of a new one.

Refused is what would silently continue differently: another global seed, another number of steps in
the middle of an epoch, a dataset that yields other batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tfckpt.errors import DamagedCheckpointError, RestoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "fit"
_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # Keras counts in int64


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A position in one ``fit``.

    Attributes:
        calls: of the train function in this epoch.
        passes: iterators that Keras has made of the dataset.
        pulled: batches taken from the last of them.
        goes_on: whether the next epoch takes its batches from it, too.
        validated: iterators that Keras has made of the validation data.
        data: how the next batch is reached.
        source: what training has changed on the object that makes the batches, a `PyDataset`.
        generators: the process's random generators.
        first: those of Python and NumPy before the first batch of the iterator.
        arrays: names of the arrays in the checkpoint.
    """

    fit: _Count
    initial_epoch: _Count
    epochs: _Count
    epoch: _Count
    calls: _Count
    ended: bool
    passes: _Count
    pulled: _Count
    goes_on: bool
    validated: _Count
    steps: _Count | None
    steps_per_execution: _Count
    inferred_steps: _Count | None
    data: str
    source: dict[str, Any]
    element: str
    content: str
    global_seed: int | None
    stopped: bool
    counter: _Count | None
    logs: dict[str, float]
    generators: dict[str, Any]
    first: dict[str, Any]
    callbacks: dict[str, Any]
    arrays: list[str]

    @property
    def finished(self) -> int:
        """Number of finished epochs."""
        return self.epoch + self.ended

    @property
    def in_iterator(self) -> bool:
        """Whether the next batch is of an iterator that Keras had made by then."""
        return not self.ended or self.goes_on


def position_in(training: Mapping[str, Any], path: str) -> Position | None:
    """The position in a record; None if no ``fit`` has written it."""
    if KEY not in training:
        return None
    try:
        return msgspec.convert(training[KEY], Position)
    except msgspec.ValidationError as error:
        what = f"the commit record's 'training' has an invalid value: {error}"
        raise DamagedCheckpointError(what, path=path) from None


# What is refused


def restart_with(*parts: str) -> str:
    """How to restart the epoch with less training state, in a config and in one line of Python."""
    listed = ", ".join(parts)
    quoted = ", ".join(f'"{part}"' for part in parts)
    return (
        f"set `training_state: [{listed}]` in the policy "
        f'(resume(…, policy={{"training_state": [{quoted}]}}))'
    )


_RESTART = f"to restart that epoch, {restart_with('epoch', 'callbacks', 'seeds')}"


def check_seed(position: Position, now: int | None, set_seed: str) -> None:
    """Raise if the global seed has changed; ``set_seed`` is the function that sets it."""
    then = position.global_seed
    if now == then:
        return
    call = "set no seed" if then is None else f"call {set_seed}({then})"
    raise RestoreError(
        f"the global seed was {then} and is now {now}: the data of later epochs would come in "
        "another order",
        hint=f"{call} before creating the dataset, as before; or, to restart that epoch with "
        f"another seed, {restart_with('epoch', 'callbacks')}",
    )


def other_steps(position: Position, steps: int | None, of_a_call: int, model: Any) -> str:
    """How the number of steps has changed; "" if it has not."""
    now = {
        "steps per epoch": (position.steps, steps),
        "steps_per_execution": (position.steps_per_execution, of_a_call),
    }
    differ = [f"{what} changed from {a} to {b}" for what, (a, b) in now.items() if a != b]
    if getattr(model, "autotune_steps_per_execution", False):
        differ.append("steps_per_execution is tuned during training")
    return ", ".join(differ)


def other_initial_epoch(position: Position, epoch: int) -> RestoreError:
    """The error if ``initial_epoch`` is in the middle of the saved training."""
    after = f", after epoch {position.finished}" if position.finished else ", in epoch 1"
    return RestoreError(
        f"`initial_epoch` changed from {position.initial_epoch} to {epoch}, but the checkpoint was "
        f"saved in the middle of the training{after}",
        hint="leave it as it was: the callback goes to the right epoch by itself",
    )


def in_mid_epoch(differs: str) -> RestoreError:
    """The error if the number of steps of the saved epoch has changed."""
    return RestoreError(
        f"the checkpoint was saved in the middle of an epoch, and {differs}", hint=_RESTART
    )


def other_data(position: Position, element: str, content: str) -> str:
    """The warning if the dataset is another one, which is allowed after a complete epoch."""
    if position.element and element != position.element:
        changed = f"a batch was {position.element} and is now {element}"
        if not position.ended:
            raise of_the_data(changed)
        return f"{changed}: epoch {position.finished + 1} begins with the new dataset"
    if not (position.content and content) or content == position.content:
        return ""
    if not position.ended:
        raise of_the_data("the checkpoint was saved in the middle of an epoch, with other values")
    epoch = position.finished + 1  # as Keras prints it
    return f"the dataset has other values than before: epoch {epoch} uses the new ones"


def of_the_data(what: str, *, restored: bool = False) -> RestoreError:
    """The error if the dataset turns out to be another one."""
    by_now = ", whose values the model has by now" if restored else ""
    return RestoreError(
        f"{what}: the dataset is not the one of the checkpoint{by_now}",
        hint="pass the same dataset to `fit`, created again since it has been read; or, "
        + _RESTART,
    )
