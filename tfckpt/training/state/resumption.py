"""What a checkpoint holds of a ``fit`` besides the objects given to it, and how it comes back.

It hangs under one keyword, ``training``: the iterator, what callbacks hold of arrays, and variables
that no object of the run holds. When the restore is planned none of them is there to take it, so
that the plan leaves it out.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.errors import DamagedCheckpointError, TfckptError
from tfckpt.live.distribution.agreement import Restoring, workers_among
from tfckpt.live.io.remote_files import files_of
from tfckpt.live.objects.collect import collect
from tfckpt.live.program_state import iterators, random_state
from tfckpt.live.restoring.restore import carry_out, check, prepare
from tfckpt.stored.commits import record_file
from tfckpt.training.state import extra_state, fits, refusals
from tfckpt.training.state.position import KEY, position_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.live.restoring.restore import Choice, Prepared
    from tfckpt.planning import RestoreReport, Step
    from tfckpt.training.state.position import Position


@dataclasses.dataclass(frozen=True)
class Restoration:
    """What a restore came to.

    Attributes:
        report: of it.
        prepared: what was carried out, None where there was nothing.
        resumption: for the ``fit`` that goes on from it.
    """

    report: RestoreReport
    prepared: Prepared | None = None
    resumption: Resumption | None = None


KEYWORD = "training"
_ITERATOR = f"{KEYWORD}/iterator"


class Resumption:
    """A checkpoint that a ``fit`` goes on from.

    Nothing of it is assigned before the ``fit`` is where it was saved, unless its caller has
    restored it before.

    Attributes:
        prefix: of the checkpoint.
        epoch: epochs finished.
        position: in the data, None where no ``fit`` has saved it.
        histories: what ``History`` knew of each ``fit`` before the one that was saved.
        values: plain values that no object of the run holds.
        parts: what comes back of the state of a training.
        words: the same as a sentence, for the report.
    """

    def __init__(
        self,
        prepared: Prepared,
        choice: Choice,
        state: tuple[str, ...],
        given: Callable[[], Mapping[str, Any]],
        rejected: tuple[str, ...],
    ) -> None:
        record = prepared.stored.record
        self.prefix = prepared.stored.prefix
        # What the lock says is held against it once; since then, more may have come to exist.
        unlocked = choice.policy.model_copy(update={"lock": None})
        self._choice = dataclasses.replace(choice, policy=unlocked)
        self._given = given
        self._rejected = rejected
        self._iterator = prepared.stored.inventory.entries.get(_ITERATOR)
        self._kept: frozenset[str] = frozenset()
        self._state = state
        self.parts = frozenset(state)
        self.words = ""
        self.epoch = (record.epoch if record else None) or 0
        self.position = position_in(record.training, self.prefix) if record else None
        self.histories = record.training.get(fits.KEY) if record else None
        self.values = record.training.get(extra_state.KEY, {}) if record else {}
        self._generators()

    def place(self, iterator: Any, mark: Any) -> None:
        """Give an iterator the state that was saved; ``mark`` is its own, before a batch.

        Raises:
            RestoreError: none was saved, or it is one of other data.
        """
        if self._iterator is None:
            raise refusals.of_the_data(f"{self.prefix}: the checkpoint has no iterator")
        try:
            iterators.place(self.prefix, self._iterator.key, iterator, mark)
        except Exception as error:
            what = f"{self.prefix}: the dataset does not accept the saved iterator ({error})"
            raise refusals.of_the_data(what) from error

    def keep(self) -> None:
        """Its caller has restored it before: what there is by now stays as the caller left it."""
        entries = collect(self._given()).inventory.entries
        self._kept = frozenset(n for n, entry in entries.items() if entry.role is not Role.METRIC)

    def check(self, fit: int) -> None:
        """Raise where it cannot be restored as this ``fit`` begins; nothing is assigned."""
        with self._prepared() as (prepared, workers):
            check(for_fit(prepared, self, fit), workers)

    def restore_weights(self) -> None:
        """Of a later ``fit``: the models' own values, for what the program does in between."""
        with self._prepared() as (prepared, workers):
            carry_out(_weights_of(prepared), workers)

    def waits(self, fit: int) -> bool:
        """Whether nothing is assigned as this ``fit`` begins, since its place lies ahead."""
        return self.position is not None and self.position.fit >= fit

    def restore(self) -> tuple[Restoration, Mapping[str, Any]]:
        """Assign every variable, those included that have come to exist since ``fit`` began.

        Returns:
            What was done, and what :meth:`arrays` gives.
        """
        with self._prepared() as (whole, workers):
            prepared = _some(whole, lambda step: step.name not in self._kept)
            carry_out(prepared, workers)
            report = prepared.report(self._rejected)
            told = dataclasses.replace(report.plan, training=self.words, training_state=self._state)
            report = dataclasses.replace(report, plan=told)
            return Restoration(report, prepared, self), self._arrays(prepared)

    def arrays(self) -> Mapping[str, Any]:
        """What the checkpoint holds of the training itself, by name."""
        with self._prepared() as (prepared, _):
            return self._arrays(prepared)

    def _arrays(self, prepared: Prepared) -> Mapping[str, Any]:
        entries, values = prepared.stored.inventory.entries, prepared.stored.values
        names = self.position.arrays if self.position else []
        found = {name: entries.get(f"{KEYWORD}/array_{n}") for n, name in enumerate(names)}
        return {name: values.read(entry.key) for name, entry in found.items() if entry}

    def put_generators(self) -> None:
        """Give the process's random generators the state they had."""
        for assign in self._generators():
            assign()

    @contextlib.contextmanager
    def _prepared(self) -> Iterator[tuple[Prepared, Restoring]]:
        given = self._given()
        with (
            Restoring(workers_among(given)) as workers,
            prepare([self._choice], given, workers=workers) as prepared,
        ):
            yield prepared, workers

    def _generators(self) -> Sequence[Callable[[], object]]:
        """What gives each random generator its state.

        Raises:
            DamagedCheckpointError: a state is none.
        """
        if self.position is None or "seeds" not in self.parts:
            return ()
        saved = dict(self.position.generators)
        if (
            self.position.data == iterators.REPLAYED
        ):  # what gives the batches has them in its own hands
            saved = {name: saved[name] for name in saved.keys() - {"python", "numpy"}}
        try:
            return random_state.checked(saved)
        except (TypeError, ValueError, KeyError) as error:
            message = (
                f"the commit record's 'training' has an invalid random generator state: {error}"
            )
            raise DamagedCheckpointError(message, path=self.prefix) from None


def for_fit(prepared: Prepared, resumption: Resumption, fit: int) -> Prepared:
    """What is restored as a ``fit`` begins: of a later one's checkpoint, the models' own values.

    The others, such as the slots of an optimizer, are what they were only once the program has come
    to the later one: by then layers may be frozen or not, and the model compiled again.
    """
    position = resumption.position
    later = position is not None and position.fit > fit
    return _weights_of(prepared) if later else prepared


def _weights_of(prepared: Prepared) -> Prepared:
    models = prepared.live.models
    plan = dataclasses.replace(prepared.plan, problems=(), drift=())

    def of_a_model(step: Step) -> bool:
        held = step.name.partition("/")[0] in models
        return held and step.entry.role in (Role.WEIGHT, Role.STATE)

    return _some(dataclasses.replace(prepared, plan=plan), of_a_model)


def _some(prepared: Prepared, chosen: Callable[[Step], bool]) -> Prepared:
    steps = tuple(filter(chosen, prepared.plan.steps))
    return dataclasses.replace(prepared, plan=dataclasses.replace(prepared.plan, steps=steps))


def without_training(choices: Sequence[Choice]) -> Sequence[Choice]:
    """The choices without what hangs under the keyword, where something does."""
    return [_without_training(choice) for choice in choices]


def _without_training(choice: Choice) -> Choice:
    paths = (choice.place,) if isinstance(choice.place, str) else choice.place.paths
    heads = [
        record_file.read_head(record_file.path_of(path), path, files_of(path)) for path in paths
    ]
    if not any(head is not None and head.training.get(KEYWORD) for head in heads):
        return choice
    return dataclasses.replace(choice, leave=(*choice.leave, KEYWORD))


def described(
    position: Position, held: Any, histories: Sequence[Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """What the commit record says."""
    found = {fits.KEY: list(histories), extra_state.KEY: dict(values)}
    more = {key: value for key, value in found.items() if value}
    return {KEY: position.to_json()[KEY], KEYWORD: held is not None, **more}


def check_keywords(objects: Mapping[str, Any]) -> None:
    """Raise where the keyword is taken.

    Raises:
        TfckptError: an object was given by it.
    """
    if KEYWORD in objects:
        raise TfckptError(
            f"the keyword {KEYWORD!r} is reserved for the state of `fit`",
            hint="pass the object by another keyword",
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
