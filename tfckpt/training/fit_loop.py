"""One ``fit``: its position in the data, and how it returns to a saved position.

Keras runs its own loop again from the first epoch, without training: the train function is replaced
by one that returns without a step, the other callbacks are not called, and nothing is evaluated. So
Keras creates as many iterators, ends as many epochs and counts as many steps as before, in the way
of its release, at some microseconds a step. At the saved position, the current iterator is
restored, or as many batches are read as were taken, and then every variable is assigned, metrics
too, which exist only after a step: the first call runs one, and undoes it. Refusals come first.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfckpt.live.building.build import build_compiled
from tfckpt.live.private import fit
from tfckpt.live.private.runtime import global_seed
from tfckpt.live.program_state import iterators, random_state
from tfckpt.training import fit_checks
from tfckpt.training.feed import Feed
from tfckpt.training.fit_hooks import (
    Functions,
    batches_of_a_call,
    before_first_epoch,
    list_of,
)
from tfckpt.training.state import callback_state, refusals
from tfckpt.training.state.extra_state import ExtraState
from tfckpt.training.state.position import Position
from tfckpt.training.state.resumption import described
from tfckpt.training.undo import Before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.training.state.fits import Fits
    from tfckpt.training.state.resumption import Restoration, Resumption


class Loop:
    """One ``fit`` of a model, from ``on_train_begin`` on."""

    def __init__(
        self,
        callback: Any,
        objects: Mapping[str, Any],
        fits: Fits,
        say: Callable[[str], None],
        named: Mapping[str, Sequence[str]],
        *,
        end_of: Callable[[int], str | None],
    ) -> None:
        self._callback, self._model = callback, callback.model
        self._objects, self._named = objects, named
        self._fits, self._say, self._end_of = fits, say, end_of
        self._list = list_of(callback)
        self._others = [each for each in self._list.callbacks if each is not callback]
        self._fit = fits.begin(self._others)
        self._functions = Functions(self._model)
        self._epochs = int(callback.params["epochs"])
        self._steps_per_execution = batches_of_a_call(self._model)
        self._initial_epoch: int | None = None
        self._epoch = self._calls = self._last_calls = self.batches_of_last_call = 0
        self._ended = self._direct = self._resumed = self._asked = False
        self._feed = Feed(self._model, self._fit, fits)
        self._extra = ExtraState(self._model, objects, self._others, fits.beginning)
        self._logs: Any = None
        self._checks_left = 2  # before the first step, and after it
        self._said: set[str] = set()
        self._target: Position | None = None
        self._later: Resumption | None = None

    @property
    def resuming(self) -> bool:
        """Whether the saved position is still ahead."""
        return self._target is not None

    # Called by the callback

    def begin(
        self,
        find: Callable[[], Resumption | None],
        on_resumed: Callable[[Restoration | None], None],
        on_refused: Callable[[], None],
    ) -> None:
        """Training begins."""
        self._on_resumed, self._on_refused = on_resumed, on_refused
        self._say_once(*callback_state.inexact(self._others, self._named))
        self._before = Before(self._model, self._objects, self._extra)
        self._list.callbacks = [*self._others, self._callback]
        before_first_epoch(self._list, self._extra.begins)
        with self._or_as_before():
            self._start = fit.Start(self._model, self._first_epoch(find()))
            self._functions.train_by(self._step)

    def epoch_begins(self, epoch: int, logs: Any) -> None:
        first = self._initial_epoch is None
        if self._initial_epoch is None:
            self._initial_epoch = epoch
            with self._or_as_before():
                self._start.check(epoch)
        self._last_calls = self._calls
        self._epoch, self._calls, self._ended = epoch, 0, False
        if (target := self._target) is None:
            return
        with self._or_as_before():
            if first and epoch != target.initial_epoch:
                if epoch >= target.finished and (target.ended or epoch > target.epoch):
                    self._direct = True
                elif not self._direct:
                    raise refusals.other_initial_epoch(target, epoch)
            if self._direct:
                self._resolve(target)
                self._model.reset_metrics()  # as Keras has just done
                self._go_on(target)
                self._notify_others_of(epoch)

    def batch_begins(self) -> None:
        """The next call of the train function is a step of this ``fit``."""
        self._functions.renew()
        self._asked = True

    def batch_ends(self) -> None:
        """After a batch, which may have been passed over."""
        if self._asked and not self._functions.replaced:
            raise fit.not_called(self._model)
        if self._resumed and self._target is not None:
            with self._before.unchanged():  # the saved values include what they assign
                self._notify_others_of(self._epoch)
            self._go_on(self._target)

    def epoch_ends(self) -> None:
        """After an epoch, which may be the saved position."""
        self._ended, target = True, self._target
        self._feed.epoch_ended()
        if target is None or self._epoch < target.epoch:
            return
        with self._or_as_before():
            if not target.ended or self._calls != target.calls:
                raise refusals.of_the_data(
                    f"epoch {self._epoch + 1} has {self._calls} steps, but the checkpoint is of "
                    f"step {target.calls}"
                )
            self._arrive(target)
            self._go_on(target)

    def end(self) -> Resumption | None:
        """End the training; returns the checkpoint of a later ``fit`` if one was found."""
        with self._or_as_before():
            if (target := self._target) is not None:
                if not self._direct:
                    raise refusals.of_the_data(
                        f"training ended before epoch {target.epoch + 1}, step {target.calls}, "
                        "where the checkpoint was saved"
                    )
                self._epoch, self._calls, self._ended = target.epoch, target.calls, target.ended
                self._go_on(target)
            if self._later is not None:  # now, since Keras finalizes the weights before
                self._later.restore_weights(self._end_of(self._fit))
                self._fits.count(self._later.histories)
        self._fits.end()
        self._functions.give_back()
        return self._later

    def training(self) -> tuple[dict[str, Any], Any]:
        """The state of this ``fit``: JSON values for the record, and an object to save."""
        if not self._resumed:
            return {}, None
        epoch, calls, ended = self._epoch, self._calls, self._ended
        initial = self._initial_epoch or 0
        if not calls and not ended and epoch > initial:
            epoch, calls, ended = epoch - 1, self._last_calls, True
        seed, feed = global_seed(), self._feed
        kind, iterator, of_data = feed.saved(seeded=seed is not None)
        values, extra, not_saved = self._extra.collect()
        self._say_once(*not_saved)
        arrays = {**callback_state.arrays(self._others), **of_data, **extra}
        held = None
        if arrays or iterator is not None:
            held = iterators.StoredState(iterator, list(arrays.values()))
        position = Position(
            fit=self._fit,
            initial_epoch=initial,
            epochs=self._epochs,
            epoch=epoch,
            calls=calls,
            ended=ended,
            **feed.position,
            steps=self._steps(),
            steps_per_execution=self._steps_per_execution,
            data=kind,
            global_seed=seed,
            stopped=bool(self._model.stop_training),
            counter=fit.steps_counted(self._model),
            logs=iterators.numbers_in(self._logs),
            generators=random_state.take(),
            callbacks=callback_state.collect(self._others, self._named),
            arrays=list(arrays),
        )
        return described(position, held, self._fits, values), held

    # Back to the saved position

    def _first_epoch(self, resumption: Resumption | None) -> int:
        """The epoch to begin at; 0 if the caller of ``fit`` decides.

        Nothing is assigned yet, unless there is nothing to train: Keras then finalizes the weights.
        """
        position = resumption.position if resumption is not None else None
        if resumption is None or position is None or position.fit < self._fit:
            self._go(None)
            first = resumption.epoch if resumption is not None and position is None else 0
            if first >= self._epochs:
                self._say_once(fit_checks.about_end(first, self._epochs, 0))
            return first
        if position.fit > self._fit:
            kept = self._end_of(self._fit) is not None
            self._say_once(fit_checks.about_another(self._fit, position, kept=kept))
            self._later = resumption
            self._feed.pass_over(resumption.passes)
            build_compiled(self._model)  # at the end Keras reads the averages of its optimizer
            return self._epochs
        self._resumption = resumption
        stopped = position.ended and position.stopped and "callbacks" in resumption.parts
        if position.finished >= self._epochs or stopped:
            self._direct = True
            self._feed.pass_over(resumption.passes)
            self._resolve(position)
            self._say_once(fit_checks.about_end(position.finished, self._epochs, self._fit))
            self._target = position
            # The others need their state when Keras calls their on_train_end.
            self._list.callbacks = [self._callback, *self._others]
            return self._epochs
        return self._pass_over_until(position, resumption.parts)

    def _pass_over_until(self, position: Position, parts: frozenset[str]) -> int:
        if "seeds" in parts:
            refusals.check_seed(position, global_seed())
        needed = {"iterator"} if position.ended else {"iterator", "batch"}
        steps = self._steps(), self._steps_per_execution
        other = refusals.other_steps(position, *steps, self._model)
        if other and not position.ended and needed <= parts:
            raise refusals.in_mid_epoch(other)
        self._direct = bool(other or not needed <= parts or not (position.calls or position.ended))
        if other:
            self._say_once(
                f"{other}: epoch {position.finished + 1} starts at the beginning of the dataset"
            )
        self._target = position
        self._list.callbacks = [self._callback]
        self._functions.evaluate_nothing()
        return position.finished if self._direct else position.initial_epoch

    def _step(self, iterator: Any) -> Any:
        """What Keras calls for a step."""
        if not self._asked:  # by another `fit` after an error in this one, or by `train_on_batch`
            if not self._resumed:
                self._functions.give_back()
            return self._functions.train(iterator)
        self._asked = False
        fresh = self._feed.takes(iterator)
        if self._target is not None:
            with self._or_as_before():
                return self._pass_over(self._target, iterator, fresh=fresh)
        if self._checks_left:
            self._checks_left -= 1
            about_model = fit_checks.about_objects(self._model, self._objects)
            about_step = fit_checks.about_step(self._functions.train)
            self._say_once(*self._feed.warnings(), *about_model, *about_step)
        try:
            self._logs = self._functions.train(iterator)
        except iterators.RAN_OUT:
            self._feed.ran_out.append([self._epoch, self._calls])
            raise
        self._calls += 1
        self.batches_of_last_call = self._batches()
        self._feed.pulled += self.batches_of_last_call
        return self._logs

    def _pass_over(self, target: Position, iterator: Any, *, fresh: bool) -> Any:
        feed = self._feed
        if fresh and (warning := refusals.other_data(target, feed.element, feed.content)):
            self._say_once(warning)
        if [self._epoch, self._calls] in target.ran_out:
            feed.ran_out.append([self._epoch, self._calls])
            raise StopIteration
        batches = self._batches()
        feed.before_first(target, self._resumption)
        if self._logs is None:
            with self._before.unchanged(feed.handles), self._extra.unchanged():
                self._logs = self._functions.train(iterator)
            feed.rest(target)
            feed.taken += batches
        elif target.data == iterators.REPLAYED:
            if not iterators.pull(iterator, batches):
                raise StopIteration
            feed.taken += batches
        self._calls += 1
        feed.pulled += batches
        if (self._epoch, self._calls) == (target.epoch, target.calls) and not target.ended:
            self._arrive(target)
            return iterators.with_numbers(self._logs, target.logs)
        return self._logs

    def _arrive(self, target: Position) -> None:
        """At the saved position: check the data, then restore all but the callbacks."""
        if self._feed.iterators != target.iterators:
            raise refusals.of_the_data(
                f"Keras created {target.iterators} iterators up to this point, and now creates "
                f"{self._feed.iterators}"
            )
        # tf_keras turns arrays into a dataset of this many epochs, and prefetches to its end.
        other_end = target.epochs != self._epochs and fit.ends_by_epochs(self._model)
        self._feed.come_to(target, self._resumption, same_end=not other_end)
        self._resolve(target)

    def _resolve(self, target: Position) -> None:
        """Assign everything; nothing is refused from here on."""
        self._functions.evaluate()
        restored, self._arrays = self._resumption.restore()
        if not self._direct:
            self._say_once(*fit_checks.about_metrics(self._model, restored.report.plan))
            self._resumption.put_generators()
            self._feed.resolve(target, self._arrays)
        fit.set_steps_counted(self._model, target.counter)
        self._go(restored)

    def _go(self, restored: Restoration | None) -> None:
        """Nothing can be refused any more."""
        self._resumed = True
        self._fits.count()
        self._on_resumed(restored)

    def _go_on(self, target: Position) -> None:
        """Call the other callbacks again, with their restored state."""
        self._target = None
        self._list.callbacks = [*self._others, self._callback]
        if "callbacks" in self._resumption.parts:
            self._say_once(*self._extra.restore(self._resumption.values, self._arrays))
            self._say_once(
                *callback_state.restore(self._others, target.callbacks, self._arrays, self._named)
            )
            self._model.stop_training = target.stopped
        del self._arrays

    def _notify_others_of(self, epoch: int) -> None:
        for callback in self._others:
            callback.on_epoch_begin(epoch, {})

    @contextlib.contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """Undo all changes if the body fails before training starts."""
        try:
            yield
        except iterators.RAN_OUT:
            raise
        except BaseException:
            if not self._resumed:
                self._target = None
                self._functions.give_back()
                self._feed.put_back()
                self._before.put_back()
                self._on_refused()
            raise

    def _batches(self) -> int:
        """Batches of the next call; tf_keras takes fewer in the last call of an epoch."""
        return 1 if self._steps_per_execution == 1 else batches_of_a_call(self._model)

    def _steps(self) -> int | None:
        steps = self._callback.params.get("steps")
        return None if steps is None else int(steps)

    def _say_once(self, *sentences: str) -> None:
        for sentence in sentences:
            if sentence not in self._said:
                self._said.add(sentence)
                self._say(sentence)
