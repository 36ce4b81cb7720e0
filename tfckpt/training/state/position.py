"""The position of a training in its data, as the commit record stores it.

It counts what Keras does in ``fit``: calls of the train function in this epoch, iterators passed to
it so far, batches taken from the current one. Repeating these calls leads to the same position,
however a Keras release iterates over its data.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.errors import DamagedCheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "fit"
_OPTIONAL: tuple[type, ...] = (int, type(None))
_LARGEST = 2**63 - 1  # Keras counts in int64
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
    """A position in one ``fit``."""

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
        """Number of finished epochs."""
        return self.epoch + self.ended

    def to_json(self) -> dict[str, Any]:
        return {KEY: dataclasses.asdict(self)}


def position_in(training: Mapping[str, Any], path: str) -> Position | None:
    """The position in a record; None if no ``fit`` has written it."""
    if KEY not in training:
        return None
    fields = training[KEY]
    if not isinstance(fields, dict) or fields.keys() != _TYPES.keys():
        raise DamagedCheckpointError("the commit record's 'training' is not complete", path=path)
    for name, types in _TYPES.items():
        if type(fields[name]) not in types or not _is_valid(name, fields[name]):
            message = f"the commit record's 'training' has an invalid {name!r}"
            raise DamagedCheckpointError(message, path=path)
    return Position(**fields)


def _is_valid(name: str, value: Any) -> bool:
    """Whether the content of a field is valid, so that nothing fails on it later."""
    if name == "logs":
        return all(type(number) in (int, float) for number in value.values())
    if name == "arrays":
        return all(type(each) is str for each in value)
    return type(value) is not int or name == "global_seed" or 0 <= value <= _LARGEST
