"""What differs from the ``fit`` that was saved, so that it cannot go on exactly: it is refused.

What would go on otherwise than before without a word: another global seed, other steps of an epoch
in the middle of one, data that is gone through in another way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.errors import RestoreError

if TYPE_CHECKING:
    from tfckpt.training.state.position import Position


def begin_again(*parts: str) -> str:
    """How to begin the epoch again with less of the training's state, for a config and one line."""
    listed = ", ".join(parts)
    quoted = ", ".join(f'"{part}"' for part in parts)
    return (
        f"set `training_state: [{listed}]` in the policy "
        f'(resume(…, policy={{"training_state": [{quoted}]}}))'
    )


_BEGIN_AGAIN = f"to restart that epoch, {begin_again('epoch', 'callbacks', 'seeds')}"


def check_seed(position: Position, now: int | None) -> None:
    """Raise where the global seed is another."""
    then = position.global_seed
    if now == then:
        return
    call = "set no seed" if then is None else f"call keras.utils.set_random_seed({then})"
    raise RestoreError(
        f"the global seed was {then} and is now {now}: the data of later epochs would come in "
        "another order",
        hint=f"{call} before creating the dataset, as before; or, to restart that epoch with "
        f"another seed, {begin_again('epoch', 'callbacks')}",
    )


def other_steps(position: Position, steps: int | None, of_a_call: int, model: Any) -> str:
    """How the steps of an epoch differ from what they were; "" where they do not."""
    now = {
        "steps per epoch": (position.steps, steps),
        "steps_per_execution": (position.steps_per_execution, of_a_call),
    }
    differ = [f"{what} changed from {a} to {b}" for what, (a, b) in now.items() if a != b]
    if getattr(model, "autotune_steps_per_execution", False):
        differ.append("steps_per_execution is tuned during training")
    return ", ".join(differ)


def other_initial_epoch(position: Position, epoch: int) -> RestoreError:
    """``fit`` is to begin in the middle of what was trained."""
    return RestoreError(
        f"`initial_epoch` changed from {position.initial_epoch} to {epoch}, but the checkpoint was "
        f"saved in the middle of the training, at epoch {position.finished}",
        hint="leave it as it was: the callback goes to the right epoch by itself",
    )


def in_mid_epoch(differs: str) -> RestoreError:
    """The steps of the epoch in which it was saved are others."""
    return RestoreError(
        f"the checkpoint was saved in the middle of an epoch, and {differs}", hint=_BEGIN_AGAIN
    )


def other_data(position: Position, element: str, content: str) -> str:
    """What is said of data of other values, which the next epoch may have; "" where it has none.

    Raises:
        RestoreError: its batches are of another kind, or the epoch that was saved is not over.
    """
    if element != position.element:
        raise of_the_data(f"a batch was {position.element} and is now {element}")
    if not (position.content and content) or content == position.content:
        return ""
    if not position.ended:
        raise of_the_data("the checkpoint was saved in the middle of an epoch, with other values")
    return f"the dataset has other values than before: epoch {position.finished} uses the new ones"


def of_the_data(what: str) -> RestoreError:
    """The data is not what it was, as it turned out when it was gone through."""
    return RestoreError(
        f"{what}: the dataset is not the one of the checkpoint",
        hint="pass the same dataset to `fit`, created again since it has been read; or, "
        + _BEGIN_AGAIN,
    )
