"""One ``fit`` of Keras 3 or tf_keras: where it begins, what it skips, what a save says of it.

Keras is made to begin at the saved epoch. Before the first ``on_epoch_begin`` everything is
restored; within that epoch, the train function is replaced by one that returns the saved logs, as
often as it was called before, and no other callback is called. Then the training goes on. Before
and after, nothing of the model is replaced.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from tfckpt.errors import NotBuiltError, RefusedError, TfckptError
from tfckpt.live import data, generators
from tfckpt.live.building import build_by_evaluation, build_by_step
from tfckpt.live.built_optimizers import build_compiled
from tfckpt.live.flavors import has_own_step
from tfckpt.live.private import fit, tf_data
from tfckpt.live.private.runtime import global_seed
from tfckpt.live.variables import as_int
from tfckpt.stored.io.files import lies_in
from tfckpt.training import fit_checks
from tfckpt.training.callback_state import States
from tfckpt.training.data import Data
from tfckpt.training.fits import FitEnd, directory_of, of_another_model
from tfckpt.training.position import (
    Position,
    check_seed,
    in_mid_epoch,
    of_the_data,
    other_data,
    other_initial_epoch,
    other_steps,
)
from tfckpt.training.resumption import described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfckpt.planning import RestoreReport
    from tfckpt.training.resumption import Resumption


class Fit:
    """One ``fit`` of a model, from ``on_train_begin`` on."""

    def __init__(
        self,
        callback: Any,
        run: Any,
        objects: Mapping[str, Any],
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """``callback`` is that of a `Run`, whose checkpoint has the ``objects``."""
        self._callback, self._model, self._objects = callback, callback.model, objects
        self._run, self._say, self._warn = run, say, warn
        self._fits = fits = run.fits
        self._known = run.report is not None  # restored before, by the caller or an earlier `fit`
        self._list = list_of(callback)
        self._others = [each for each in self._list.callbacks if each is not callback]
        self._list.callbacks = [*self._others, callback]  # last: it saves what the others have seen
        known = {**objects, "the trained model": self._model}
        own = fit.dataset_of(self._model), fit.validation_data_of(self._model)
        self._datasets = data.DatasetsRead(fits.iterators, own, self._reads_own)
        weakref.finalize(self, self._datasets.end)  # also where an error ends the `fit`
        named = run.config.manager.callbacks if run.config.manager else {}
        self._states = States([*self._others, self._model], named, known, self._datasets)
        self._number = fits.begin(self._others)
        self._epochs = int(callback.params["epochs"])
        self._steps_per_execution = batches_of_a_call(self._model)
        self._initial_epoch = fit.initial_epoch_of(self._model)
        self._epoch = self._calls = self._last_calls = self._skip = self.batches_of_last_call = 0
        self._begun = self._ended = self._resumed = self._called = False
        self._exact = self._asked = self._in_epochs = False
        self._function: Any = None  # that the last step has called
        self._data = Data(self._model, self._number, fits)
        self._logs: Any = {}
        self._checks_left = 2  # before the first step, and after it
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()  # that were looked at
        self._eager: fit.EagerOperations | None = None
        self._eager_step: set[Any] = set()
        self._said: set[str] = set()
        self._ahead: tuple[Position, Resumption] | None = None  # where the training goes on
        self._later: Resumption | None = None

    # Where it begins

    def begin(self) -> None:
        """In ``on_train_begin``: find what is resumed, check it, and say where Keras begins."""
        self._say_once(*self._states.warnings())
        _before(self._list, "on_epoch_begin", self._all_have_begun)
        resumption = self._found()
        position = None if resumption is None else resumption.position
        if resumption is None or position is None or position.fit < self._number:
            first = resumption.epoch if resumption is not None and position is None else 0
            self._go()
            if first >= self._epochs:
                self._say_once(fit_checks.about_end(first, self._epochs, 0))
        elif position.fit > self._number:  # a later `fit` goes on
            first, self._later = self._epochs, resumption
            manager = self._run.manager
            end = manager and manager._files.end_of_fit(self._number, resumption.prefix)
            self._say_once(fit_checks.about_another(self._number, position, kept=end is not None))
            self._data.skip(resumption.passes)
            build_compiled(self._model)  # at the end Keras reads the averages of its optimizer
            if end is not None:
                self._build_validation(resumption)
                resumption.restore_end(end)
            self._end_restored = end is not None
            self._states.begins()
        elif position.finished >= self._epochs or self._was_stopped(position, resumption):
            first = self._epochs
            self._data.skip(resumption.passes)
            self._epoch, self._calls, self._ended = position.epoch, position.calls, position.ended
            self._build_validation(resumption)
            arrays = self._restore(resumption, position)
            self._begun = True
            _before(
                self._list,
                "on_train_end",
                lambda: self._restore_end(position, resumption, arrays),
            )
            self._say_once(fit_checks.about_end(position.finished, self._epochs, self._number))
        else:
            self._check(position, resumption)
            self._ahead = position, resumption
            first = max(position.finished, self._initial_epoch or 0)
        self._start = fit.Start(self._model, first)

    def _found(self) -> Resumption | None:
        """What is resumed, after creating the variables of the first step if necessary."""
        try:
            return self._find()
        except (NotBuiltError, RefusedError) as error:
            own = has_own_step(self._model) or isinstance(error, NotBuiltError)
            if not own or not hasattr(self._data.dataset, "element_spec"):
                raise
            build_by_step(self._model, self._data.dataset.element_spec)
            return self._find()

    def _find(self) -> Resumption | None:
        """Of the run: what it has restored already, or what it finds now."""
        run, number = self._run, self._fits.begun
        found: Resumption | None = run.resumption
        if self._known:
            if found is not None and not number:
                found.keep()
            return found
        if found is not None:  # an earlier `fit` was passed over
            found.check(number)
            return found
        if run.config.restore is None:
            return None
        (report, found), where = run.find(number), directory_of(run)
        if report.path and lies_in(report.path, where) and of_another_model(self._model, where):
            self._warn(fit_checks.OF_ANOTHER_MODEL.format(where))
        if found is None or not found.waits(number):
            run.restored(report, found)
        return found

    def _was_stopped(self, position: Position, resumption: Resumption) -> bool:
        return position.ended and position.stopped and "callbacks" in resumption.parts

    def _check(self, position: Position, resumption: Resumption) -> None:
        """Raise what would not go on exactly, before anything is assigned."""
        parts = resumption.parts
        if "seeds" in parts:
            check_seed(position, global_seed(), fit_checks.set_seed_of(self._model))
        needed = {"iterator"} if position.ended else {"iterator", "batch"}
        other = other_steps(position, self._steps(), self._steps_per_execution, self._model)
        if other and not position.ended and needed <= parts:
            raise in_mid_epoch(other)
        exact = not other and needed <= parts and bool(position.calls or position.ended)
        asked = self._initial_epoch
        if asked is not None and asked != position.initial_epoch:
            ahead = asked >= position.finished and (position.ended or asked > position.epoch)
            if exact and not ahead:
                raise other_initial_epoch(position, asked)
            exact = False
        if self._data.dataset is None:  # a loop of one's own calls the callback
            exact = False
        elif exact and (said := other_data(position, self._data.element, self._data.content)):
            self._say_once(said)
            exact = self._data.element == position.element or not position.goes_on
        if exact:
            for sentence in self._data.seek_epoch(position):
                self._say_once(sentence)
            self._skip = 0 if position.ended else position.calls
        if other:
            self._say_once(
                f"{other}: epoch {position.finished + 1} starts at the beginning of the dataset"
            )
        self._exact = exact

    def _all_have_begun(self, epoch: int) -> None:
        """Before the first ``on_epoch_begin``: restore what was found."""
        self._start.check(epoch)
        self._in_epochs = True
        self._initial_epoch = epoch if self._initial_epoch is None else self._initial_epoch
        try:
            self._states.begins()
            if self._ahead is not None:
                self._restore_position(epoch, *self._ahead)
        except BaseException:
            self._callback.refused()
            raise
        self._begun = True

    def _restore_position(self, epoch: int, target: Position, resumption: Resumption) -> None:
        self._build_metrics()
        self._build_validation(resumption)
        if self._skip:
            for callback in self._others:  # the saved values include what they assign
                callback.on_epoch_begin(epoch, {})
            self._list.callbacks = [self._callback]
        arrays = self._restore(resumption, target)
        if not self._skip:
            self._model.reset_metrics()  # as Keras has just done
        self._restore_callbacks(target, resumption.parts, arrays)
        if self._exact:
            if not self._skip:
                self._restore_generators(target, resumption)
            self._data.restore(target, arrays)

    def _build_metrics(self) -> None:
        """Make the variables that a first step makes."""
        try:
            if self._data.dataset is not None:
                build_by_step(self._model, self._data.dataset.element_spec)
        except NotBuiltError:
            build_compiled(self._model)
            self._say_once(*[fit_checks.NO_METRICS] * bool(self._skip))

    def _build_validation(self, resumption: Resumption) -> None:
        """Make the metrics that earlier validations have made.

        Where ``train_step`` updates no metric, tf_keras puts into the logs of an epoch what it
        returns; once a validation has made metrics of these names, it puts in their values
        (``_validate_and_get_metrics_result`` in tf_keras/src/engine/training.py).
        """
        own = has_own_step(self._model) and not fit.is_keras3(self._model)
        if own and fit.validation_data_of(self._model) is not None and resumption.metrics_to_come:
            build_by_evaluation(self._model, self._data.dataset.element_spec)
            self._say_once(*fit_checks.about_metrics(resumption.metrics_to_come))

    def _restore(self, resumption: Resumption, position: Position) -> Mapping[str, Any]:
        """Assign everything; returns the arrays of the training state."""
        report, arrays = resumption.restore()
        fit.set_steps_counted(self._model, position.counter)
        self._go(report, resumption)
        return arrays

    def _restore_callbacks(
        self, position: Position, parts: frozenset[str], arrays: Mapping[str, Any]
    ) -> None:
        self._states.begins()
        if "callbacks" in parts:
            self._say_once(*self._states.restore(position.callbacks, arrays))
            self._model.stop_training = position.stopped

    def _restore_end(
        self, position: Position, resumption: Resumption, arrays: Mapping[str, Any]
    ) -> None:
        """What this ``fit`` had left when it ended, before the others draw in ``on_train_end``."""
        self._restore_callbacks(position, resumption.parts, arrays)
        resumption.restore_generators()
        self._data.restore_source(position, arrays)

    def _restore_generators(self, position: Position, resumption: Resumption) -> None:
        """Not where reading the batches again has drawn from them."""
        replayed = position.in_iterator and position.data == data.REPLAYED
        resumption.restore_generators(but=("python", "numpy") if replayed else ())

    def _go(
        self, report: RestoreReport | None = None, resumption: Resumption | None = None
    ) -> None:
        """Nothing can be refused any more."""
        self._resumed, run = True, self._run
        self._fits.count()
        if not self._known:  # another `fit` of the same run continues from its current values
            if report is not None:
                run.restored(report, resumption)
            self._say(fit_checks.summary(run.report))
            if run.report is not None and (text := run.report.warnings):
                self._warn(f"{run.report.path}: {text}")
        elif report is None and self._fits.begun == 2:  # the first that follows
            self._say(fit_checks.ONCE_MORE)
        line, warnings = run.saves.outlook()
        self._say(line)
        for warning in warnings:
            self._warn(warning)
        run.resumption, run.saves.ahead = None, ""

    # What it goes through

    @property
    def resuming(self) -> bool:
        """Whether the saved position is still ahead."""
        return self._skip > 0

    def epoch_begins(self, epoch: int) -> None:
        self._last_calls = self._calls
        self._epoch, self._calls, self._ended, self._called = epoch, 0, False, False
        self._data.epoch_begins()

    def batch_begins(self) -> None:
        """Before a call of the train function."""
        if not self._called:
            self._called = True
            self._data.takes(fit.iterator_of(self._model))
            if self._ahead is not None and self._exact and self._ahead[0].in_iterator:
                position, resumption = self._ahead
                # tf_keras turns arrays into a dataset of this many epochs, and prefetches to its
                # end.
                same_end = position.epochs == self._epochs or not fit.ends_by_epochs(self._model)
                self._data.skip_batches(position, resumption, same_end=same_end)
            if self._skip:
                self._skipped = fit.SkippedStep(self._model, self._skip_batch)
            else:
                self._ahead = None
        if self._skip:
            self._asked = True
        elif not self._model.run_eagerly and fit.own_train_function(self._model) != self._function:
            self._function = fit.own_train_function(self._model)
            self._say_once(*self._states.traced(self._function))
        if self._checks_left and not self._skip:
            self._checks_left -= 1
            graphs = [each for each in self._traced() if each not in self._graphs]
            self._graphs.update(graphs)
            self._say_once(
                *self._data.warnings(),
                *fit_checks.about_objects(self._model, self._objects),
                *fit_checks.about_replicas(self._model),
                *fit_checks.about_step(graphs, self._model),
            )
            if self._model.run_eagerly:
                if not fit.is_keras3(self._model):
                    self._say_once(*fit_checks.about_eager_layers(self._model))
                self._eager = fit.EagerOperations()
        self.batches_of_last_call = (
            1 if self._steps_per_execution == 1 else batches_of_a_call(self._model)
        )

    def _traced(self) -> list[Any]:
        """The graphs of the next step, traced; Keras raises what fails."""
        with contextlib.suppress(Exception):
            if tf_data.is_dataset(self._data.dataset):
                fit.trace(self._model, self._data.iterator)
        return fit.graphs_of(fit.own_train_function(self._model))

    def _skip_batch(self, iterator: Any) -> Any:
        """What Keras calls for a step that was trained before."""
        if not self._asked or self._ahead is None:  # by another `fit`, or by `train_on_batch`
            return self._skipped.give_back()(iterator)
        self._asked = False
        return dict(self._ahead[0].logs)

    def batch_ends(self, logs: Any) -> None:
        self._calls += 1
        if self._eager is not None:
            last, self._eager_step = self._eager_step, self._eager.end()
            self._eager = None
            said = fit_checks.about_eager_steps(last, self._eager_step, self._model)
            self._say_once(*said)
        if not self._skip:
            self._logs = logs
            self._data.pulled += self.batches_of_last_call
            return
        if self._asked:
            raise fit.not_called(self._model)
        self._skip -= 1
        if not self._skip and self._ahead is not None:  # here the saved training was
            self._skipped.give_back()
            self._list.callbacks = [*self._others, self._callback]
            self._logs = self._ahead[0].logs
            self._restore_generators(*self._ahead)
            self._ahead = None

    def epoch_ends(self) -> None:
        if self._skip:
            self._skipped.give_back()
            raise of_the_data(
                f"epoch {self._epoch + 1} has {self._calls} steps, but the checkpoint is of "
                f"step {self._calls + self._skip}",
                restored=True,
            )
        self._ended = True
        self._data.epoch_ended()

    def _reads_own(self, dataset: Any) -> None:
        """An iterator is made of data of this ``fit``."""
        beside = self._in_epochs and fit.in_callback(self._model)
        if beside and not self._data.read_beside(dataset):
            self._states.lose(fit_checks.READ_BESIDE)

    def validated(self) -> None:
        """After an evaluation."""
        self._data.validated()

    def end(self) -> Resumption | None:
        """End the training; returns the checkpoint of a later ``fit`` if one was found."""
        later = self._later
        if later is not None:
            if not self._end_restored:  # now, since Keras finalizes the weights before
                later.restore_weights()
            self._fits.count(later.histories)
        self._fits.end()
        if later is None and self._begun:
            values, arrays = self._collected()
            source, more = self._data.source.collect()[:2]
            left = FitEnd(values, source, generators.take(), arrays | more)
            self._fits.ends[self._number] = left
        elif later is not None and (end := later.ends().get(self._number)) is not None:
            self._fits.ends[self._number] = end
            if "callbacks" in later.parts:
                self._say_once(*self._states.restore(end.values, end.arrays))
                self._data.source.restore(end.source, end.arrays)
            if "seeds" in later.parts:
                generators.restore(end.generators, later.prefix)
        self._datasets.end()
        return later

    def _collected(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the training holds now; says what cannot be saved."""
        values, arrays, not_saved = self._states.collect()
        self._say_once(*not_saved)
        return values, arrays

    # What a save says of it

    def state(self) -> tuple[dict[str, Any], Any]:
        """JSON values for the record, and an object to save."""
        if not self._resumed or not self._begun:
            return {}, None
        epoch, calls, ended = self._epoch, self._calls, self._ended
        initial = self._initial_epoch or 0
        if not calls and not ended and epoch > initial:
            epoch, calls, ended = epoch - 1, self._last_calls, True
        seed = global_seed()
        of_data, iterator, arrays = self._data.state(ended=ended, seeded=seed is not None)
        callbacks, of_callbacks = self._collected()
        arrays |= of_callbacks
        for number, end in self._fits.ends.items():
            arrays |= end.prefixed(number) if number < self._number else {}
        held = None
        if arrays or iterator is not None:
            held = data.StoredState(iterator, list(arrays.values()))
        position = Position(
            fit=self._number,
            initial_epoch=initial,
            epochs=self._epochs,
            epoch=epoch,
            calls=calls,
            ended=ended,
            **of_data,
            steps=self._steps(),
            steps_per_execution=self._steps_per_execution,
            global_seed=seed,
            stopped=bool(self._model.stop_training),
            counter=fit.steps_counted(self._model),
            logs=data.numbers_in(self._logs),
            generators=generators.take(),
            callbacks=callbacks,
            arrays=list(arrays),
        )
        return described(position, held, self._fits), held

    def _steps(self) -> int | None:
        steps = self._callback.params.get("steps")
        return None if steps is None else int(steps)

    def _say_once(self, *sentences: str) -> None:
        for sentence in sentences:
            if sentence not in self._said:
                self._said.add(sentence)
                self._say(sentence)


def batches_of_a_call(model: Any) -> int:
    """How many batches one call of the train function takes."""
    steps = fit.steps_per_execution(model)
    return 1 if steps is None else as_int(steps)  # a variable in tf_keras


def list_of(callback: Any) -> Any:
    """Keras's CallbackList, found in the call stack."""
    if (found := fit.list_of(callback)) is None:
        raise TfckptError(
            "the callback was not called by Keras's CallbackList",
            hint="pass it to `fit`, or put it into a CallbackList with the others",
        )
    return found


def _before(callbacks: Any, event: str, function: Callable[..., None]) -> None:
    """Have a CallbackList call a function once, before it tells its callbacks of an event."""
    notify = getattr(callbacks, event)

    def call_and_notify(*args: Any, **kwargs: Any) -> None:
        setattr(callbacks, event, notify)
        function(*args[:1])
        notify(*args, **kwargs)

    setattr(callbacks, event, call_and_notify)
