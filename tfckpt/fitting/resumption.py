"""What a checkpoint holds of a ``fit`` besides the objects given to it, and how it comes back.

It hangs under one keyword, ``training``: the iterator, and what callbacks hold of arrays. When the
restore is planned neither is there to take it, so that the plan leaves it out.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.errors import DamagedCheckpointError, RestoreError, TfckptError
from tfckpt.fitting import fits
from tfckpt.fitting.position import KEY, position_in
from tfckpt.fitting.trained import own_variables
from tfckpt.live import build, data, generators
from tfckpt.live.distribution import Restoring, workers_among
from tfckpt.live.inventory import collect
from tfckpt.live.parts import parts
from tfckpt.live.remote import files_of
from tfckpt.live.restore import carry_out, prepare
from tfckpt.live.variables import is_variable, raw
from tfckpt.records import Role
from tfckpt.stored.commits import commit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tfckpt.fitting.position import Position
    from tfckpt.live.restore import Choice, Prepared

KEYWORD = "training"
_ITERATOR = f"{KEYWORD}/iterator"


class Resumption:
    """A restored checkpoint, for the ``fit`` that goes on from it.

    Attributes:
        epoch: epochs finished.
        position: in the data, None where no ``fit`` has saved it.
        histories: what ``History`` knew of each ``fit`` before the one that was saved.
        parts: what comes back of the state of a training.
    """

    def __init__(
        self,
        prepared: Prepared,
        choice: Choice,
        state: Sequence[str],
        given: Callable[[], Mapping[str, Any]],
    ) -> None:
        record = prepared.stored.record
        self._prefix = prepared.stored.prefix
        # What the lock says has been held against it; since then, more may have come to exist.
        unlocked = choice.policy.model_copy(update={"lock": None})
        self._choice = dataclasses.replace(choice, policy=unlocked)
        self._given = given
        self._iterator = prepared.stored.inventory.entries.get(_ITERATOR)
        self._kept: list[tuple[Any, Any]] = []
        steps = (*prepared.plan.assignments, *prepared.plan.resets)
        self._restored = frozenset(step.name for step in steps)
        self.parts = frozenset(state)
        self.epoch = (record.epoch if record else None) or 0
        self.position = position_in(record.training, self._prefix) if record else None
        self.histories = record.training.get(fits.KEY) if record else None

    def place(self, iterator: Any, mark: Any) -> None:
        """Give an iterator the state that was saved; ``mark`` is its own, before a batch.

        Raises:
            RestoreError: none was saved, or it is one of other data.
        """
        if self._iterator is None:
            raise self._refused("the iterator could not be saved", None)
        try:
            data.place(self._prefix, self._iterator.key, iterator, mark)
        except Exception as error:
            raise self._refused("the data does not take the iterator's state", error) from error

    def keep(self) -> None:
        """What the caller has changed since the restore stays: values of now are put back."""
        self._keep(frozenset())

    def before_a_step(self, model: Any) -> None:
        """A step comes that does not count: what it changes and no restore puts right is kept."""
        given = self._given()
        build.build_compiled(model)
        if not self._kept:
            self._keep(self._restored)
        own = [part for each in own_variables(model, given) for part in parts(each)]
        self._kept += [(part, part.read_value()) for part in own]

    def _keep(self, others: Collection[str]) -> None:
        live = collect(self._given())
        self._kept = [
            (part, part.read_value())
            for name, variable in live.variables.items()
            if name not in others
            and is_variable(variable)
            and live.inventory.entries[name].role is not Role.METRIC
            for part in parts(raw(variable))
        ]

    def settle(self) -> Mapping[str, Any]:
        """Assign every variable, those included that have come to exist since.

        Returns:
            The arrays that callbacks held, by name.
        """
        given = self._given()
        with (
            Restoring(workers_among(given)) as workers,
            prepare([self._choice], given, workers=workers) as prepared,
        ):
            carry_out(prepared, workers)
            for variable, value in self._kept:
                variable.assign(value)
            self._kept.clear()
            entries, values = prepared.stored.inventory.entries, prepared.stored.values
            names = self.position.arrays if self.position else []
            found = {name: entries.get(f"{KEYWORD}/array_{n}") for n, name in enumerate(names)}
            return {name: values.read(entry.key) for name, entry in found.items() if entry}

    def put_generators(self, position: Position) -> None:
        """Give the process's random generators the state they had.

        Raises:
            DamagedCheckpointError: it is none.
        """
        saved = dict(position.generators)
        if position.data == data.REPLAYED:  # what gives the batches has them in its own hands
            saved = {name: saved[name] for name in saved.keys() - {"python", "numpy"}}
        try:
            generators.put(saved)
        except (TypeError, ValueError, KeyError) as error:
            message = f"the record's 'training' has no state of a random generator: {error}"
            raise DamagedCheckpointError(message, path=self._prefix) from None

    def _refused(self, what: str, error: Exception | None) -> RestoreError:
        told = f": {error}" if error else ""
        return RestoreError(
            f"{self._prefix}: {what}{told}",
            hint="to begin that epoch anew, leave `batch` and `iterator` out of training_state",
        )


def without_training(choices: Sequence[Choice]) -> Sequence[Choice]:
    """The choices without what hangs under the keyword, where something does."""
    return [_without_training(choice) for choice in choices]


def _without_training(choice: Choice) -> Choice:
    paths = (choice.place,) if isinstance(choice.place, str) else choice.place.paths
    heads = [commit.read_head(commit.path_of(path), path, files_of(path)) for path in paths]
    if not any(head is not None and head.training.get(KEYWORD) for head in heads):
        return choice
    return dataclasses.replace(choice, leave=(*choice.leave, KEYWORD))


def described(position: Position, held: Any, histories: Sequence[Any]) -> dict[str, Any]:
    """What the commit record says."""
    before = {fits.KEY: list(histories)} if histories else {}
    return {KEY: position.to_json()[KEY], KEYWORD: held is not None, **before}


def check_keywords(objects: Mapping[str, Any]) -> None:
    """Raise where the keyword is taken.

    Raises:
        TfckptError: an object was given by it.
    """
    if KEYWORD in objects:
        raise TfckptError(
            f"the keyword {KEYWORD!r} is what the callback keeps the data's position under",
            hint="give the object another keyword",
        )


@contextlib.contextmanager
def attached(checkpoint: Any, held: Any) -> Iterator[None]:
    """Let the checkpoint hold it for one save."""
    if held is None:
        yield
        return
    checkpoint._track_trackable(held, KEYWORD, overwrite=True)
    try:
        yield
    finally:
        checkpoint._delete_tracking(KEYWORD)
