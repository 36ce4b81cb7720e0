"""A restore with what a training makes of it: where a ``fit`` goes on, or that a new one begins.

Besides the objects of the run, a checkpoint has the state of a ``fit`` under one keyword,
``training``: the iterator, arrays of callbacks, and variables outside these objects. When the
restore is planned, no object exists for it yet, so the plan leaves it out.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
from absl import logging

from tfckpt.core.inventory import Role
from tfckpt.errors import TfckptError
from tfckpt.live import data, generators
from tfckpt.live.inventory import collect
from tfckpt.live.restore import TRAINING, RestoreSource, only, restore, warn_of_fallback
from tfckpt.live.workers import workers_among
from tfckpt.manager.sources import absent, candidates
from tfckpt.planning.checks.step import is_save_counter
from tfckpt.training import fits
from tfckpt.training.position import KEY, of_the_data, position_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.live.lineage import Lineage
    from tfckpt.live.restore import Prepared
    from tfckpt.planning import Plan, RestoreReport, Step
    from tfckpt.policy import Config
    from tfckpt.training.position import Position

_ITERATOR = f"{TRAINING}/iterator"
_NONE = "restore: none: nothing is restored; training starts from the model's current values"
_KINDS = {
    "weights": {Role.WEIGHT, Role.STATE},
    "optimizer": {Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER},
    "seeds": {Role.SEED},
}


class Restoring:
    """What a training makes of a restore: the words of its plan, and what a ``fit`` resumes.

    Attributes:
        rejected: why checkpoints were passed over.
        resumption: the checkpoint that a ``fit`` resumes; None if a new training begins.
    """

    def __init__(self, fit: int | None, lineage: Lineage | None) -> None:
        """``fit`` is the number of the one that asks."""
        self.rejected: list[str] = []
        self.resumption: Resumption | None = None
        self._fit, self._lineage = fit, lineage

    def prepared(self, prepared: Prepared) -> Prepared:
        """The plan with its training state; checked only, if a ``fit`` restores it later."""
        state = _restored_state(prepared)
        self.resumption = None
        if state:
            self.resumption = Resumption(prepared, state, self.rejected, self._lineage)
        words = _in_words(prepared, self.resumption)
        if self.resumption is not None:
            self.resumption.words = words
        plan = dataclasses.replace(prepared.plan, training=words, training_state=state)
        prepared = dataclasses.replace(prepared, plan=plan)
        if self._fit is None or self.resumption is None or not self.resumption.waits(self._fit):
            return prepared
        return self.resumption.for_fit(prepared, self._fit)


def restore_from(
    source: Config | RestoreSource,
    objects: Mapping[str, Any],
    counter: Any = None,
    lineage: Lineage | None = None,
    *,
    fit: int | None = None,
    only_plan: bool = False,
) -> tuple[RestoreReport, Resumption | None]:
    """Restore what a config selects, or one checkpoint; and what a ``fit`` resumes from it.

    Args:
        source: a config with a ``restore`` section, or the checkpoint.
        objects: by keyword.
        counter: the ``save_counter`` of a run that goes on.
        lineage: of the checkpoint whose objects these are.
        fit: the number of the ``fit`` that asks. What it restores at the saved position is only
            checked.
        only_plan: assigns nothing, and refuses nothing.
    """
    restoring = Restoring(fit, lineage)
    rejected, workers = restoring.rejected, None if only_plan else workers_among(objects)
    if isinstance(source, RestoreSource):
        tried = only(source, workers)
    else:
        tried = candidates(source, rejected, workers)
    report = restore(
        tried,
        objects,
        restoring.prepared,
        counter=counter,
        lineage=lineage,
        rejected=rejected,
        only_plan=only_plan,
    )
    if not report.path and not isinstance(source, RestoreSource):
        if source.restore is not None and not source.restore.first_of:
            return dataclasses.replace(report, nothing=_NONE), None
        return dataclasses.replace(report, absent=absent(source)), None
    warn_of_fallback(rejected, report.path)
    return report, restoring.resumption


def plan_from(
    source: Config | RestoreSource, objects: Mapping[str, Any], counter: Any = None
) -> Plan:
    """The plan that :func:`restore_from` would carry out; assigns nothing."""
    report, _ = restore_from(source, objects, counter, only_plan=True)
    if not report.path:
        nothing = "no checkpoint yet: nothing would be restored"
        nothing = _NONE if report.nothing == _NONE else nothing
        logging.warning("%s", "\n  ".join([nothing, *report.absent]))
    return report.plan


def warn_of(report: RestoreReport) -> None:
    """Log the warnings of a restore outside of ``fit``."""
    if not report.path:
        logging.warning("%s", report)
    for text in filter(None, (report.replacements, report.warnings)):
        logging.warning("%s: %s", report.path, text)


class Resumption:
    """A checkpoint that a ``fit`` resumes.

    Nothing of it is assigned before the ``fit`` has reached the saved position, unless the caller
    has restored it before.
    """

    def __init__(
        self,
        prepared: Prepared,
        state: tuple[str, ...],
        rejected: list[str],
        lineage: Lineage | None,
    ) -> None:
        """``state`` is what is restored of the training's state."""
        (self._source,), record = prepared.sources, prepared.stored.record
        self.prefix = prepared.stored.prefix
        self._objects, self._rejected, self._lineage = prepared.objects, rejected, lineage
        self._iterator = prepared.stored.inventory.entries.get(_ITERATOR)
        stored = prepared.stored.inventory.entries.items()
        self._metrics = [name for name, entry in stored if entry.role is Role.METRIC]
        self._kept: frozenset[str] = frozenset()
        self._state = state
        self.parts = frozenset(state)
        self.words = ""
        self.epoch = (record.epoch if record else None) or 0
        self.position = position_in(record.training, self.prefix) if record else None
        self.histories = record.training.get(fits.KEY) if record else None
        self.passes = fits.passes_in(record.training) if record else []
        self._training = record.training if record else {}
        self._versions = record.versions if record else {}
        self._of_loop = (record.training.get(generators.KEY) if record else None) or {}
        self._generators()

    def restore_iterator(self, iterator: Any) -> None:
        """Restore the state of a new iterator."""
        if self._iterator is None:
            raise of_the_data(f"{self.prefix}: the checkpoint has no iterator", restored=True)
        try:
            data.restore_iterator(self.prefix, self._iterator.key, iterator)
        except Exception as error:
            what = f"{self.prefix}: the dataset does not accept the saved iterator ({error})"
            raise of_the_data(what, restored=True) from error

    def keep(self) -> None:
        """The caller has restored it before: variables that exist now keep their values."""
        entries = collect(self._objects).inventory.entries
        self._kept = frozenset(n for n, entry in entries.items() if entry.role is not Role.METRIC)
        self._lineage = None

    @property
    def metrics_to_come(self) -> list[str]:
        """The metrics of the checkpoint that no object has."""
        entries = collect(self._objects).inventory.entries
        return [name for name in self._metrics if name not in entries]

    def check(self, fit: int) -> None:
        """Raise if it cannot be restored when this ``fit`` begins; assigns nothing."""
        self._restore(lambda prepared: self.for_fit(prepared, fit))

    def restore_end(self, end: str) -> None:
        """Restore the checkpoint at the end of a ``fit``, for the code between it and a later one.

        Its weights alone where its optimizer is another one by now.
        """
        self._restore(lambda found: _weights_of(found) if found.plan.errors else found, path=end)

    def restore_weights(self) -> None:
        """Restore only the models' weights of the checkpoint of a later ``fit``."""
        self._restore(_weights_of)

    def waits(self, fit: int) -> bool:
        """Whether nothing is assigned when this ``fit`` begins, since the position is ahead."""
        return self.position is not None and self.position.fit >= fit

    def for_fit(self, prepared: Prepared, fit: int) -> Prepared:
        """What is checked when a ``fit`` begins: only the models' weights if it is an earlier one.

        Optimizer slots and the like are restored when the program gets to the later ``fit``: by
        then layers may be frozen or not, and the model compiled again.
        """
        later = self.position is not None and self.position.fit > fit
        prepared = _weights_of(prepared) if later else prepared
        return dataclasses.replace(prepared, waits=True)

    def restore(self) -> tuple[RestoreReport, Mapping[str, Any]]:
        """Assign all variables, also those created since ``fit`` began; and the arrays, by name."""
        arrays: Mapping[str, Any] = {}

        def whole(prepared: Prepared) -> Prepared:
            nonlocal arrays
            arrays = self._arrays(prepared)
            prepared = _some(prepared, lambda step: step.name not in self._kept)
            plan = dataclasses.replace(
                prepared.plan, training=self.words, training_state=self._state
            )
            return dataclasses.replace(prepared, plan=plan)

        report = self._restore(whole, lineage=self._lineage)
        self._check_loss()
        return report, arrays

    def _restore(
        self,
        chosen: Callable[[Prepared], Prepared],
        *,
        path: str | None = None,
        lineage: Lineage | None = None,
    ) -> RestoreReport:
        source = self._source._replace(path=path or self._source.path)
        return restore(
            only(source, workers_among(self._objects)),
            self._objects,
            chosen,
            lineage=lineage,
            rejected=self._rejected,
        )

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
        stored = {name: entries.get(f"{TRAINING}/array_{n}") for n, name in enumerate(names)}
        return {name: values.read(entry.key) for name, entry in stored.items() if entry}

    def ends(self) -> dict[int, fits.FitEnd]:
        """What each earlier ``fit`` has left behind; opens the checkpoint."""
        arrays: Mapping[str, Any] = {}

        def nothing(prepared: Prepared) -> Prepared:
            nonlocal arrays
            arrays = self._arrays(prepared)
            return dataclasses.replace(_some(prepared, lambda step: False), waits=True)

        self._restore(nothing)
        return fits.ends_in(self._training, arrays)

    def restore_generators(self, but: Sequence[str] = ()) -> None:
        """Restore the process's random generators; of a loop of one's own at once."""
        for assign in self._generators(but):
            assign()

    def _generators(self, but: Sequence[str] = ()) -> Sequence[Callable[[], object]]:
        """Functions that restore each random generator."""
        if "seeds" not in self.parts:
            return ()
        saved = self.position.generators if self.position else self._of_loop
        left = {name: state for name, state in saved.items() if name not in but}
        return generators.of_record(left, self.prefix)


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
    return {KEY: msgspec.to_builtins(position), TRAINING: held is not None, **more}


def check_keywords(objects: Mapping[str, Any]) -> None:
    """Raise a TfckptError if an object was passed by the reserved keyword."""
    if TRAINING in objects:
        raise TfckptError(
            f"the keyword {TRAINING!r} is reserved for the state of `fit`",
            hint="pass the object by another keyword",
        )


@contextlib.contextmanager
def attached(checkpoint: Any, held: Any) -> Iterator[None]:
    """Make the checkpoint save ``held`` inside the block."""
    if held is None:
        yield
        return
    checkpoint._track_trackable(held, TRAINING, overwrite=True)
    try:
        yield
    finally:
        checkpoint._delete_tracking(TRAINING)


def _restored_state(prepared: Prepared) -> tuple[str, ...]:
    """The training state that is restored.

    A run that resumes itself restores its own. A checkpoint from elsewhere is where a new training
    begins: its epoch, callbacks and data position belong to another one, unless the policy lists
    ``training_state`` itself.
    """
    source, *others = prepared.sources
    policy = source.policy
    listed = source.resumes or "training_state" in policy.model_fields_set
    if others or policy.api != "restore" or not listed or "epoch" not in policy.training_state:
        return ()
    return policy.training_state


def _in_words(prepared: Prepared, resumption: Resumption | None) -> str:
    """The restored training state as a sentence."""
    if resumption is not None:
        record = prepared.stored.record
        return f"training resumes {_after(resumption, record.step if record else None)}"
    kinds, others = _values(prepared.plan)
    if others:  # of a custom loop, which has its own counters
        return f"{_listed([*kinds, *others])} only, no other training state"
    what = f"{kinds[0]} only" if len(kinds) == 1 else _listed(kinds) or "no values"
    sentence = f"{what}: a new training begins"
    source, *more = prepared.sources
    continues = not more and source.policy.api == "restore"
    if (
        "optimizer" in kinds
        and continues
        and "training_state" not in source.policy.model_fields_set
    ):
        sentence += "; to resume the old one, list `training_state` in the policy"
    return sentence


def _values(plan: Plan) -> tuple[list[str], list[str]]:
    """What is assigned: kinds of values of models and optimizers, names of other objects."""
    within = {step.entry.role for step in plan.assignments if "/" in step.name}
    others = [
        step.name
        for step in plan.assignments
        if "/" not in step.name and not is_save_counter(step.entry)
    ]
    return [kind for kind, roles in _KINDS.items() if within & roles], others


def _after(resumption: Resumption, step: int | None) -> str:
    position, parts = resumption.position, resumption.parts
    if position is None:
        counted = step is not None and not resumption.epoch
        return f"after step {step:,}" if counted else f"after {_many(resumption.epoch, 'epoch')}"
    restored = [word for word in ("callbacks", "iterator", "seeds") if word in parts]
    details = f", with its {_listed(restored)}" if restored else ""
    return f"{_position(position, whole='batch' not in parts)}{details}"


def _position(position: Position, *, whole: bool) -> str:
    fit = f"in `fit` {position.fit + 1} " if position.fit else ""
    batches = 0 if position.ended else position.calls * position.steps_per_execution
    done = [_many(position.finished, "epoch")] if position.finished or not batches else []
    done += [_many(batches, "batch")] if batches else []
    restarted = f"; epoch {position.epoch + 1} starts again" if batches and whole else ""
    return f"{fit}after {' and '.join(done)}{restarted}"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else {'epoch': 'epochs', 'batch': 'batches'}[word]}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
