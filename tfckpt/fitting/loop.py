"""One ``fit``: where it is in its data, and how it comes back to where it was.

Keras goes through its own loop again, from the first epoch on, with nothing to train: the train
function is replaced by one that answers without a step, the other callbacks hear nothing, nothing
is evaluated. So Keras makes as many iterators, ends as many epochs of a data set and counts as many
steps as it did before, in whichever way its release does that; some microseconds a step. At the
place that was saved, the iterator in use is restored, or asked for as many batches as were taken,
and then every variable is assigned: metrics too, which exist only once a step has run. That step is
the first call's; what it did is assigned over.

Refused is what would go on otherwise than before without a word: another global seed, other steps
of an epoch in the middle of one, data that is gone through in another way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.errors import RestoreError
from tfckpt.fitting import statements, states
from tfckpt.fitting.keras_side import Hook, batches_of_a_call, list_of, start_at
from tfckpt.fitting.position import Position
from tfckpt.fitting.resumption import described
from tfckpt.live import data, generators

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfckpt.fitting.fits import Fits
    from tfckpt.fitting.resumption import Resumption


class Loop:
    """One ``fit`` of a model, from ``on_train_begin`` on.

    Args:
        callback: the one that saves, with the model and the parameters that Keras gave it.
        objects: of the run.
        fits: of the run.
        say: prints a sentence.
        named: attributes of other callbacks that are saved besides, by class.
    """

    def __init__(
        self,
        callback: Any,
        objects: Mapping[str, Any],
        fits: Fits,
        say: Callable[[str], None],
        named: Mapping[str, Sequence[str]],
    ) -> None:
        self._callback = callback
        self._model = callback.model
        self._objects = objects
        self._fits = fits
        self._say = say
        self._named = named
        self._list = list_of(callback)
        self._others = [each for each in self._list.callbacks if each is not callback]
        self._fit = fits.begin(self._others)
        self._train: Any = self._model.train_function
        if isinstance(self._train, Hook):  # of a `fit` that failed
            self._train = self._train.own
        self._epochs = int(callback.params["epochs"])
        self._steps_per_execution = batches_of_a_call(self._model)
        self._initial_epoch: int | None = None
        self._epoch = self._calls = self._iterators = self._pulled = self._taken = 0
        self._last_calls = 0
        self._ended = False
        self._ran_out: list[list[int]] = []
        self._iterator: Any = None
        self._mark: Any = None
        self._logs: Any = None
        self._to_judge = 2  # before the first step, and after it
        self._said: set[str] = set()
        self._resumption: Resumption | None = None
        self._target: Position | None = None
        self._direct = False
        self._arrived = False
        self._waiting: Position | None = None
        self._arrays: Mapping[str, Any] = {}

    @property
    def resuming(self) -> bool:
        """Whether the place that was saved lies ahead."""
        return self._target is not None

    @property
    def steps_of_a_call(self) -> int | None:
        """How many steps a batch is for Keras; None where it may be another number each time."""
        return 1 if self._steps_per_execution == 1 else None

    # What the callback is told

    def begin(self, resumption: Resumption | None) -> bool:
        """Training begins; whether the resumption is of this ``fit`` or an earlier one."""
        vars(self._model)["train_function"] = Hook(self._step, self._train)
        vars(self._model).pop("_should_eval", None)
        self._list.callbacks = [*self._others, self._callback]
        start_at(self._model, 0)
        self._tell(*states.inexact(self._others, self._named), *statements.about_model(self._model))
        return resumption is None or self._resume(resumption)

    def epoch_begins(self, epoch: int, logs: Any) -> None:
        first = self._initial_epoch is None
        if self._initial_epoch is None:
            self._initial_epoch = epoch
            start_at(self._model, 0)
        self._last_calls = self._calls
        self._epoch, self._calls, self._ended = epoch, 0, False
        target = self._target
        if target is None:
            return
        if first and epoch != target.initial_epoch:
            self._begins_elsewhere(epoch, target)
        if self._direct:
            self._settle(target)
            self._go_on(target)
        if self._direct or (epoch == target.epoch and not target.ended):
            for callback in self._others:
                callback.on_epoch_begin(epoch, logs)

    def batch_ends(self) -> None:
        """After a batch that was passed over."""
        if self._arrived and self._target is not None:
            self._go_on(self._target)

    def epoch_ends(self) -> None:
        """After an epoch; where the place that was saved lies ahead, perhaps it is here."""
        self._ended = True
        target = self._target
        if target is None or self._epoch < target.epoch:
            return
        if not target.ended or self._calls != target.calls:
            raise RestoreError(
                f"epoch {self._epoch} has {self._calls} steps, and the checkpoint is of step "
                f"{target.calls}: the data is not what it was",
                hint=_RESTART,
            )
        self._check(target)
        self._settle(target)
        self._waiting = target
        self._go_on(target)

    def end(self) -> None:
        """Training is over."""
        vars(self._model)["train_function"] = self._train
        start_at(self._model, 0)
        if (target := self._target) is not None:
            if not self._direct:
                raise RestoreError(
                    f"training ended before it was at epoch {target.epoch}, step {target.calls}, "
                    "where it was saved: the data is not what it was",
                    hint=_RESTART,
                )
            self._epoch, self._calls, self._ended = target.epoch, target.calls, target.ended
            self._go_on(target)
        self._fits.end()

    def training(self) -> tuple[dict[str, Any], Any]:
        """The state of this ``fit``: what the record says, and what the checkpoint holds."""
        epoch, calls, ended = self._epoch, self._calls, self._ended
        initial = self._initial_epoch or 0
        if not calls and not ended and epoch > initial:
            epoch, calls, ended = epoch - 1, self._last_calls, True
        seed = generators.global_seed()
        kind, element, iterator = data.SAVED, "", self._iterator
        if iterator is not None:
            element = data.element_of(iterator)
            kind = data.kind_of(iterator, seeded=seed is not None, iterators=self._iterators)
        arrays = states.arrays(self._others)
        held = None
        if arrays or (iterator is not None and kind == data.SAVED):
            saved = iterator if kind == data.SAVED else None
            held = data.Held(saved, list(arrays.values()))
        counter = getattr(self._model, "_train_counter", None)
        position = Position(
            fit=self._fit,
            initial_epoch=initial,
            epochs=self._epochs,
            epoch=epoch,
            calls=calls,
            ended=ended,
            iterators=self._iterators,
            pulled=self._pulled,
            ran_out=self._ran_out,
            steps=self._steps(),
            steps_per_execution=self._steps_per_execution,
            data=kind,
            element=element,
            global_seed=seed,
            stopped=bool(self._model.stop_training),
            counter=None if counter is None else int(counter.numpy()),
            logs=data.numbers_in(self._logs),
            generators=generators.take(),
            callbacks=states.collect(self._others, self._named),
            arrays=list(arrays),
        )
        return described(position, held, self._fits.histories), held

    # The way back

    def _resume(self, resumption: Resumption) -> bool:
        position = resumption.position
        if position is None:
            if resumption.epoch >= self._epochs:
                self._tell(statements.about_end(resumption.epoch, self._epochs, 0))
            start_at(self._model, resumption.epoch)
            return True
        if position.fit > self._fit:
            self._tell(statements.about_another(self._fit, position))
            self._fits.pass_over(resumption.histories)
            start_at(self._model, self._epochs)
            return False
        if position.fit < self._fit:
            return True
        self._resumption, self._target = resumption, position
        self._list.callbacks = [self._callback]
        vars(self._model)["_should_eval"] = Hook(self._evaluates, self._model._should_eval)
        stopped = position.ended and position.stopped and "callbacks" in resumption.parts
        if position.finished >= self._epochs or stopped:
            self._tell(statements.about_end(position.finished, self._epochs, self._fit))
            self._direct = True
            self._settle(position)  # before Keras finalizes the weights
            start_at(self._model, self._epochs)
            # What the others knew, they must know when they are told of the end.
            self._list.callbacks = [self._callback, *self._others]
            return True
        self._check_seed(position, resumption)
        needed = {"iterator"} if position.ended else {"iterator", "batch"}
        other = self._other_steps(position)
        if other and not position.ended and needed <= resumption.parts:
            raise RestoreError(f"the middle of an epoch was saved, and {other}", hint=_RESTART)
        self._direct = bool(
            other or not needed <= resumption.parts or not (position.calls or position.ended)
        )
        if other:
            self._tell(f"{other}: epoch {position.finished} begins with data of its own")
        start_at(self._model, position.finished if self._direct else position.initial_epoch)
        return True

    def _evaluates(self, *_: Any) -> bool:
        return False

    def _begins_elsewhere(self, epoch: int, target: Position) -> None:
        if epoch >= target.finished and (target.ended or epoch > target.epoch):
            self._direct = True
        elif not self._direct:
            raise RestoreError(
                f"`initial_epoch` was {target.initial_epoch} and is {epoch}, and the middle of the "
                f"training was saved, at epoch {target.finished}",
                hint="leave it as it was: the callback resumes the epoch by itself",
            )

    def _check_seed(self, position: Position, resumption: Resumption) -> None:
        now = generators.global_seed()
        if "seeds" in resumption.parts and now != position.global_seed:
            raise RestoreError(
                f"the global seed was {position.global_seed} and is {now}: the data of later "
                "epochs would come in another order",
                hint="call keras.utils.set_random_seed as before, or leave `seeds` out of the "
                "policy's training_state",
            )

    def _other_steps(self, position: Position) -> str:
        """How the steps of an epoch differ from what they were."""
        now = {
            "steps of an epoch": (position.steps, self._steps()),
            "steps_per_execution": (
                position.steps_per_execution,
                self._steps_per_execution,
            ),
        }
        differ = [f"the {what} were {a} and are {b}" for what, (a, b) in now.items() if a != b]
        if getattr(self._model, "autotune_steps_per_execution", False):
            differ.append("steps_per_execution is tuned while it trains")
        return ", ".join(differ)

    def _step(self, iterator: Any) -> Any:
        """What Keras calls for a step."""
        fresh = iterator is not self._iterator
        if fresh:
            self._iterator = iterator
            self._iterators += 1
            self._pulled = self._taken = 0
        if self._target is not None:
            return self._pass_over(self._target, iterator)
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            if not fresh:
                self._come_to(waiting, iterator)
        if self._to_judge:
            self._to_judge -= 1
            self._tell(*statements.about_data(iterator))
            self._tell(*statements.about_objects(self._model, self._objects))
        try:
            self._logs = self._train(iterator)
        except data.RAN_OUT:
            self._ran_out.append([self._epoch, self._calls])
            raise
        self._calls += 1
        self._pulled += self._batches()
        return self._logs

    def _pass_over(self, target: Position, iterator: Any) -> Any:
        if [self._epoch, self._calls] in target.ran_out:
            self._ran_out.append([self._epoch, self._calls])
            raise StopIteration
        batches = self._batches()
        if target.data == data.SAVED and not self._pulled:
            self._mark = data.mark(iterator)
        if self._logs is None:
            if self._resumption is not None:
                self._resumption.before_a_step(self._model)
            self._logs = self._train(iterator)
            self._taken += batches
        elif target.data == data.REPLAYED:
            if not data.pull(iterator, batches):
                raise StopIteration
            self._taken += batches
        self._calls += 1
        self._pulled += batches
        if (self._epoch, self._calls) == (target.epoch, target.calls) and not target.ended:
            self._check(target)
            self._come_to(target, iterator)
            self._settle(target)
            self._arrived = True
            return data.with_numbers(self._logs, target.logs)
        return self._logs

    def _check(self, target: Position) -> None:
        if self._iterators != target.iterators:
            raise RestoreError(
                f"Keras made {target.iterators} iterators up to here and makes {self._iterators} "
                "now: the data is not given to `fit` as it was",
                hint=_RESTART,
            )
        element = data.element_of(self._iterator)
        if element != target.element:
            raise RestoreError(
                f"a batch was {target.element} and is {element}: the data is not what it was",
                hint=_RESTART,
            )

    def _come_to(self, target: Position, iterator: Any) -> None:
        """To the batch that comes next."""
        resumption = self._resumption
        # tf_keras makes arrays a dataset of so many epochs, and reads ahead to its end.
        other_end = target.epochs != self._epochs and not hasattr(self._model, "_initial_epoch")
        if target.data == data.SAVED and resumption is not None and not other_end:
            resumption.place(iterator, self._mark)
        else:
            missing = target.pulled - self._taken
            if missing - data.pull(iterator, missing) >= target.steps_per_execution:
                raise RestoreError(
                    f"the data ends before batch {target.pulled}, where it was saved: it is not "
                    "what it was",
                    hint=_RESTART,
                )
        self._pulled = self._taken = target.pulled

    def _settle(self, target: Position) -> None:
        """Everything but the data and the callbacks is as it was."""
        vars(self._model).pop("_should_eval", None)
        resumption = self._resumption
        if resumption is None:
            return
        self._arrays = resumption.settle()
        if "seeds" in resumption.parts and not self._direct:
            resumption.put_generators(target)
        counter = getattr(self._model, "_train_counter", None)
        if counter is not None and target.counter is not None:
            counter.assign(target.counter)

    def _go_on(self, target: Position) -> None:
        """The other callbacks hear again, and know what they knew."""
        self._target = None
        self._list.callbacks = [*self._others, self._callback]
        if self._resumption is not None and "callbacks" in self._resumption.parts:
            said = states.restore(self._others, target.callbacks, self._arrays, self._named)
            self._tell(*said)
            self._model.stop_training = target.stopped
        self._arrays = {}

    def _batches(self) -> int:
        """How many the next call takes; tf_keras takes fewer in the last of an epoch."""
        return 1 if self._steps_per_execution == 1 else batches_of_a_call(self._model)

    def _steps(self) -> int | None:
        steps = self._callback.params.get("steps")
        return None if steps is None else int(steps)

    def _tell(self, *sentences: str) -> None:
        for sentence in sentences:
            if sentence not in self._said:
                self._said.add(sentence)
                self._say(sentence)


_RESTART = "to begin that epoch anew, leave `batch` out of the policy's training_state"
