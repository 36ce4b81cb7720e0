"""The state of a ``fit`` in a checkpoint, besides the objects of the run, and how it is restored.

It is saved under one keyword, ``training``: the iterator, arrays of callbacks, and variables
outside the objects of the run. When the restore is planned, no object exists for it yet, so the
plan leaves it out.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.core.inventory import Role
from tfckpt.errors import TfckptError
from tfckpt.live import data, generators
from tfckpt.live.inventory import collect
from tfckpt.live.restore import carry_out, check, prepare
from tfckpt.live.workers import Together, workers_among
from tfckpt.training import fits
from tfckpt.training.position import KEY, of_the_data, position_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.live.restore import Choice, Prepared
    from tfckpt.planning import RestoreReport, Step
    from tfckpt.training.position import Position


@dataclasses.dataclass(frozen=True)
class Restoration:
    """The result of a restore."""

    report: RestoreReport
    prepared: Prepared | None = None
    resumption: Resumption | None = None


KEYWORD = "training"
_ITERATOR = f"{KEYWORD}/iterator"


class Resumption:
    """A checkpoint that a ``fit`` resumes.

    Nothing of it is assigned before the ``fit`` has reached the saved position, unless the caller
    has restored it before.
    """

    def __init__(
        self,
        prepared: Prepared,
        choice: Choice,
        objects: Mapping[str, Any],
        rejected: Sequence[str],
    ) -> None:
        record = prepared.stored.record
        self.prefix = prepared.stored.prefix
        self._choice = choice
        self._objects = objects
        self._rejected = tuple(rejected)
        self._iterator = prepared.stored.inventory.entries.get(_ITERATOR)
        stored = prepared.stored.inventory.entries.items()
        self._metrics = [name for name, entry in stored if entry.role is Role.METRIC]
        self._kept: frozenset[str] = frozenset()
        self._state = choice.state
        self.parts = frozenset(choice.state)
        self.words = ""
        self.epoch = (record.epoch if record else None) or 0
        self.position = position_in(record.training, self.prefix) if record else None
        self.histories = record.training.get(fits.KEY) if record else None
        self.passes = fits.passes_in(record.training) if record else []
        self._versions = record.versions if record else {}
        self._of_loop = (record.training.get(generators.KEY) if record else None) or {}
        self._generators()

    def place(self, iterator: Any) -> None:
        """Restore the state of a new iterator."""
        if self._iterator is None:
            raise of_the_data(f"{self.prefix}: the checkpoint has no iterator", restored=True)
        try:
            data.place(self.prefix, self._iterator.key, iterator)
        except Exception as error:
            what = f"{self.prefix}: the dataset does not accept the saved iterator ({error})"
            raise of_the_data(what, restored=True) from error

    def keep(self) -> None:
        """The caller has restored it before: variables that exist now keep their values."""
        entries = collect(self._objects).inventory.entries
        self._kept = frozenset(n for n, entry in entries.items() if entry.role is not Role.METRIC)

    @property
    def metrics_to_come(self) -> list[str]:
        """The metrics of the checkpoint that no object has."""
        entries = collect(self._objects).inventory.entries
        return [name for name in self._metrics if name not in entries]

    def check(self, fit: int) -> None:
        """Raise if it cannot be restored when this ``fit`` begins; assigns nothing."""
        with self._prepared() as (prepared, workers):
            check(for_fit(prepared, self, fit), workers)

    def restore_end(self, end: str) -> None:
        """Restore the checkpoint at the end of a ``fit``, for the code between it and a later one.

        Its weights alone where its optimizer is another one by now.
        """
        with self._prepared(end) as (prepared, workers):
            carry_out(_weights_of(prepared) if prepared.plan.errors else prepared, workers)

    def restore_weights(self) -> None:
        """Restore only the models' weights of the checkpoint of a later ``fit``."""
        with self._prepared() as (prepared, workers):
            carry_out(_weights_of(prepared), workers)

    def waits(self, fit: int) -> bool:
        """Whether nothing is assigned when this ``fit`` begins, since the position is ahead."""
        return self.position is not None and self.position.fit >= fit

    def restore(self) -> tuple[Restoration, Mapping[str, Any]]:
        """Assign all variables, also those created since ``fit`` began; and the arrays, by name."""
        with self._prepared() as (whole, workers):
            prepared = _some(whole, lambda step: step.name not in self._kept)
            carry_out(prepared, workers)
            self._check_loss()
            report = prepared.report(self._rejected)
            plan = dataclasses.replace(report.plan, training=self.words, training_state=self._state)
            report = dataclasses.replace(report, plan=plan)
            return Restoration(report, prepared, self), self._arrays(prepared)

    def _check_loss(self) -> None:
        """Warn if the loss of an epoch is counted in two ways, before and after a batch of it.

        Keras 3.1 takes the mean over batches, later versions over examples.
        """
        import keras

        live, stored = keras.__version__, self._versions.get("keras", "")
        old = [version.startswith("3.1.") for version in (live, stored)]
        among = any(isinstance(each, keras.Model) for each in self._objects.values())
        if among and stored and old[0] != old[1] and self.position and not self.position.ended:
            logging.warning(
                "%s: saved within an epoch by Keras %s, which counts the loss of an epoch in "
                "another way than Keras %s: the loss in the logs of this epoch is not exact, nor "
                "what a callback decides by it",
                *(self.prefix, stored, live),
            )

    def _arrays(self, prepared: Prepared) -> Mapping[str, Any]:
        entries, values = prepared.stored.inventory.entries, prepared.stored.values
        names = self.position.arrays if self.position else []
        stored = {name: entries.get(f"{KEYWORD}/array_{n}") for n, name in enumerate(names)}
        return {name: values.read(entry.key) for name, entry in stored.items() if entry}

    def put_generators(self, but: Sequence[str] = ()) -> None:
        """Restore the process's random generators; of a loop of one's own at once."""
        for assign in self._generators(but):
            assign()

    @contextlib.contextmanager
    def _prepared(self, place: str | None = None) -> Iterator[tuple[Prepared, Together]]:
        choice = dataclasses.replace(self._choice, place=place or self._choice.place)
        with (
            Together(workers_among(self._objects)) as workers,
            prepare([choice], self._objects, workers=workers) as prepared,
        ):
            yield prepared, workers

    def _generators(self, but: Sequence[str] = ()) -> Sequence[Callable[[], object]]:
        """Functions that restore each random generator."""
        if "seeds" not in self.parts:
            return ()
        saved = self.position.generators if self.position else self._of_loop
        left = {name: state for name, state in saved.items() if name not in but}
        return generators.of_record(left, self.prefix)


def for_fit(prepared: Prepared, resumption: Resumption, fit: int) -> Prepared:
    """What is restored when a ``fit`` begins: only the models' weights if the position is later.

    Optimizer slots and the like are restored when the program gets to the later ``fit``: by then
    layers may be frozen or not, and the model compiled again.
    """
    position = resumption.position
    later = position is not None and position.fit > fit
    return _weights_of(prepared) if later else prepared


def _weights_of(prepared: Prepared) -> Prepared:
    models = prepared.live.models
    plan = dataclasses.replace(prepared.plan, problems=())

    def of_a_model(step: Step) -> bool:
        held = step.name.partition("/")[0] in models
        return held and step.entry.role in (Role.WEIGHT, Role.STATE)

    return _some(dataclasses.replace(prepared, plan=plan), of_a_model)


def _some(prepared: Prepared, chosen: Callable[[Step], bool]) -> Prepared:
    steps = tuple(filter(chosen, prepared.plan.steps))
    return dataclasses.replace(prepared, plan=dataclasses.replace(prepared.plan, steps=steps))


def described(position: Position, held: Any, calls: fits.Fits) -> dict[str, Any]:
    """The training state for the commit record."""
    more = {key: value for key, value in calls.described(position.fit).items() if value}
    return {KEY: position.to_json()[KEY], KEYWORD: held is not None, **more}


def check_keywords(objects: Mapping[str, Any]) -> None:
    """Raise a TfckptError if an object was passed by the reserved keyword."""
    if KEYWORD in objects:
        raise TfckptError(
            f"the keyword {KEYWORD!r} is reserved for the state of `fit`",
            hint="pass the object by another keyword",
        )


@contextlib.contextmanager
def attached(checkpoint: Any, held: Any) -> Iterator[None]:
    """Make the checkpoint save ``held`` inside the block."""
    if held is None:
        yield
        return
    checkpoint._track_trackable(held, KEYWORD, overwrite=True)
    try:
        yield
    finally:
        checkpoint._delete_tracking(KEYWORD)
