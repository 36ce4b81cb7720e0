"""Where a training is in its data, as the commit record of a checkpoint has it.

Counted is what Keras does in ``fit``: calls of the train function in this epoch, iterators that it
was given so far, batches taken from the one in use. The same calls again lead to the same place,
whichever way Keras goes through its data.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.errors import DamagedCheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "fit"
_OPTIONAL: tuple[type, ...] = (int, type(None))
_LARGEST = 2**63 - 1  # what a counter of Keras's holds
_TYPES: Mapping[str, tuple[type, ...]] = {
    "fit": (int,),
    "initial_epoch": (int,),
    "epochs": (int,),
    "epoch": (int,),
    "calls": (int,),
    "ended": (bool,),
    "iterators": (int,),
    "pulled": (int,),
    "ran_out": (list,),
    "steps": _OPTIONAL,
    "steps_per_execution": (int,),
    "data": (str,),
    "element": (str,),
    "content": (str,),
    "global_seed": _OPTIONAL,
    "stopped": (bool,),
    "counter": _OPTIONAL,
    "logs": (dict,),
    "generators": (dict,),
    "callbacks": (dict,),
    "arrays": (list,),
}


@dataclasses.dataclass(frozen=True)
class Position:
    """One place in one ``fit``.

    Attributes:
        fit: how many ``fit`` of the run came before this one.
        initial_epoch: the first epoch of this ``fit``.
        epochs: the one before which it was to end.
        epoch: the one that was running, or has just ended.
        calls: of the train function, in that epoch.
        ended: whether the epoch's end was seen by all callbacks.
        iterators: that the train function was given in this ``fit``.
        pulled: batches taken from the last of them.
        ran_out: epoch and calls, wherever the data was at its end before Keras knew.
        steps: of an epoch, where Keras knew.
        steps_per_execution: batches of one call.
        data: ``saved``, ``counted`` or ``replayed``.
        element: types and shapes of a batch.
        content: a checksum of what the data is made of, "" where that is not known.
        global_seed: of ``tf.random.set_seed``.
        stopped: whether a callback had asked for the end of the training.
        counter: tf_keras's count of steps in this ``fit``.
        logs: of the last call, those that are numbers.
        generators: state of the process's random generators.
        callbacks: state of the other callbacks.
        arrays: names of what the checkpoint holds for them, for the data and for variables that no
            object of the run holds.
    """

    fit: int
    initial_epoch: int
    epochs: int
    epoch: int
    calls: int
    ended: bool
    iterators: int
    pulled: int
    ran_out: list[list[int]]
    steps: int | None
    steps_per_execution: int
    data: str
    element: str
    content: str
    global_seed: int | None
    stopped: bool
    counter: int | None
    logs: dict[str, float]
    generators: dict[str, Any]
    callbacks: dict[str, Any]
    arrays: list[str]

    @property
    def finished(self) -> int:
        """How many epochs are behind it."""
        return self.epoch + self.ended

    def to_json(self) -> dict[str, Any]:
        return {KEY: dataclasses.asdict(self)}


def position_in(training: Mapping[str, Any], path: str) -> Position | None:
    """What a record says of a ``fit``, None where none has written it.

    Raises:
        DamagedCheckpointError: it is not what a ``fit`` has written.
    """
    if KEY not in training:
        return None
    found = training[KEY]
    if isinstance(found, dict):
        found = {"content": "", **found}  # which older records do not have
    if not isinstance(found, dict) or found.keys() != _TYPES.keys():
        raise DamagedCheckpointError("the commit record's 'training' is not complete", path=path)
    for name, types in _TYPES.items():
        if type(found[name]) not in types or not _is_valid(name, found[name]):
            message = f"the commit record's 'training' has an invalid {name!r}"
            raise DamagedCheckpointError(message, path=path)
    return Position(**found)


def _is_valid(name: str, value: Any) -> bool:
    """Whether what a value holds is what a ``fit`` writes, so that nothing fails on it later."""
    if name == "logs":
        return all(type(number) in (int, float) for number in value.values())
    if name == "arrays":
        return all(type(each) is str for each in value)
    return type(value) is not int or name == "global_seed" or 0 <= value <= _LARGEST
