"""Errors for a ``fit`` that differs from the saved one, so that it cannot resume exactly.

Refused is what would silently continue differently: another global seed, another number of steps in
the middle of an epoch, a dataset that yields other batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.errors import RestoreError

if TYPE_CHECKING:
    from tfckpt.training.state.position import Position


def restart_with(*parts: str) -> str:
    """How to restart the epoch with less training state, in a config and in one line of Python."""
    listed = ", ".join(parts)
    quoted = ", ".join(f'"{part}"' for part in parts)
    return (
        f"set `training_state: [{listed}]` in the policy "
        f'(resume(…, policy={{"training_state": [{quoted}]}}))'
    )


_RESTART = f"to restart that epoch, {restart_with('epoch', 'callbacks', 'seeds')}"


def check_seed(position: Position, now: int | None) -> None:
    """Raise if the global seed has changed."""
    then = position.global_seed
    if now == then:
        return
    call = "set no seed" if then is None else f"call keras.utils.set_random_seed({then})"
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
    """The warning if the dataset has other values, which is allowed after a complete epoch."""
    if element != position.element:
        raise of_the_data(f"a batch was {position.element} and is now {element}")
    if not (position.content and content) or content == position.content:
        return ""
    if not position.ended:
        raise of_the_data("the checkpoint was saved in the middle of an epoch, with other values")
    epoch = position.finished + 1  # as Keras prints it
    return f"the dataset has other values than before: epoch {epoch} uses the new ones"


def of_the_data(what: str) -> RestoreError:
    """The error if the dataset turns out to be another one."""
    return RestoreError(
        f"{what}: the dataset is not the one of the checkpoint",
        hint="pass the same dataset to `fit`, created again since it has been read; or, "
        + _RESTART,
    )
